"""Grants, quotas, publishers and the audit, as a store reports them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from client_sdk._wire.values import moment, span
from psoup.v1 import psoup_pb2 as pb


@dataclass(frozen=True, slots=True)
class Grant:
    """An action that a role or an owner may do. One of `role` and `owner` is empty.

    `object` is a stream or view; it is empty for the whole tenant.
    """

    action: str
    object: str
    role: str
    owner: str

    @classmethod
    def from_wire(cls, message: pb.Grant) -> Grant:
        return cls(message.action, message.object, message.role, message.owner)


@dataclass(frozen=True, slots=True)
class QuotaLimit:
    """A limit, and what is used of it at present."""

    name: str
    limit: int
    used: int


@dataclass(frozen=True, slots=True)
class Quota:
    """The limits of a tenant, or of one owner of it."""

    tenant: str
    owner: str
    limits: tuple[QuotaLimit, ...]

    @classmethod
    def from_wire(cls, message: pb.Quota) -> Quota:
        limits = (QuotaLimit(limit.name, limit.limit, limit.used) for limit in message.limits)
        return cls(message.tenant, message.owner, tuple(limits))


@dataclass(frozen=True, slots=True)
class PublisherRecord:
    """A name under which an owner has published, and its last batch. `row_count` counts the rows of
    all its batches; `lease` is how long the store remembers it after the last one, None for ever.
    """

    owner: str
    name: str
    sequence: int
    position: bytes
    published_at: datetime
    mark: bytes
    row_count: int
    lease: timedelta | None

    @classmethod
    def from_wire(cls, message: pb.Publisher) -> PublisherRecord:
        return cls(
            owner=message.owner,
            name=message.name,
            sequence=message.sequence,
            position=message.position,
            published_at=moment(message.published_at),
            mark=message.mark,
            row_count=message.row_count,
            lease=span(message.lease) if message.HasField("lease") else None,
        )


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """Something that was administered. `tenant` is the tenant it is about, empty for the store."""

    position: bytes
    at: datetime
    tenant: str
    actor: str
    action: str
    object: str
    detail: str
    server: str

    @classmethod
    def from_wire(cls, message: pb.AuditRecord) -> AuditRecord:
        return cls(
            position=message.position,
            at=moment(message.at),
            tenant=message.tenant,
            actor=message.actor,
            action=message.action,
            object=message.object,
            detail=message.detail,
            server=message.server,
        )
