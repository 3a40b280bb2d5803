"""What a store says about itself, as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pyarrow as pa

from client_sdk._clocks import StoreClock
from client_sdk._columns import Column, schema_of
from client_sdk._losses import LostRows
from client_sdk._time import moment, optional_moment, span
from client_sdk._values import Scalar, from_value
from psoup.v1 import psoup_pb2 as pb


def columns_of(messages: object) -> tuple[Column, ...]:
    return tuple(Column(item.name, item.type) for item in messages)  # type: ignore[attr-defined]


def pattern_name(pattern: pb.UpdatePattern) -> str:
    """MON, WKS, WK or STR; empty where the server does not say."""
    name = pb.UpdatePattern.Name(pattern).removeprefix("UPDATE_PATTERN_")
    return "" if name == "UNSPECIFIED" else name


@dataclass(frozen=True, slots=True)
class Stream:
    """`retain` None: rows are kept for ever. `now` None: event time, and no rows yet.

    `key` is empty where every row stays a row; else a row replaces the earlier row of its key.
    """

    name: str
    id: int
    columns: tuple[Column, ...]
    ordered_by: str | None
    retain: timedelta | None
    ahead: timedelta
    row_count: int
    now: datetime | None
    sql: str
    registration_count: int
    key: tuple[str, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        return schema_of(self.columns)

    @classmethod
    def from_wire(cls, message: pb.Stream) -> Stream:
        return cls(
            name=message.name,
            id=message.id,
            columns=columns_of(message.columns),
            ordered_by=message.ordered_by or None,
            retain=span(message.retain) if message.HasField("retain") else None,
            ahead=span(message.ahead),
            row_count=message.row_count,
            now=optional_moment(message, "now"),
            sql=message.sql,
            registration_count=message.registration_count,
            key=tuple(message.key),
        )


@dataclass(frozen=True, slots=True)
class Definition:
    """The stream as it is now (CREATE) or as it was (DROP)."""

    stream: Stream
    position: bytes
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Registered:
    """What `register` gives. `created` is False where the key was known already.

    `pattern` is what can happen to rows of the answer: MON, WKS, WK or STR. The registration may
    end if nobody asks for it until `lease_until`.
    """

    handle: bytes
    position: bytes
    created: bool
    columns: tuple[Column, ...]
    notes: tuple[str, ...]
    pattern: str = ""
    lease_until: datetime | None = None

    @property
    def hex(self) -> str:
        """The handle as text; every verb takes it in this form too."""
        return self.handle.hex()


@dataclass(frozen=True, slots=True)
class RegisteredMany:
    """The handles in the order of the table."""

    handles: tuple[bytes, ...]
    position: bytes
    created_count: int


@dataclass(frozen=True, slots=True)
class Registration:
    """A registration as the store keeps it. `matched_rows` of `stream_rows` are precomputed.

    `refresh` is empty where the answer is always fresh. `trigger_id` is the predicate of
    REFRESH ON.
    """

    handle: bytes
    owner: str
    key: str | None
    sql: str
    parameters: dict[str, Scalar] = field(hash=False)
    stream: str
    window: str
    columns: tuple[Column, ...]
    lease: timedelta
    position: bytes
    registered_at: datetime
    predicate_id: int
    matched_rows: int
    stream_rows: int
    refresh: str
    trigger_id: int | None
    pattern: str = ""
    lease_until: datetime | None = None

    @property
    def hex(self) -> str:
        return self.handle.hex()

    @classmethod
    def from_wire(cls, message: pb.Registration) -> Registration:
        return cls(
            handle=message.handle,
            owner=message.owner,
            key=message.client_key or None,
            sql=message.sql,
            parameters={name: from_value(value) for name, value in message.parameters.items()},
            stream=message.stream,
            window=message.window,
            columns=columns_of(message.columns),
            lease=span(message.lease),
            position=message.position,
            registered_at=moment(message.registered_at),
            predicate_id=message.predicate_id,
            matched_rows=message.matched_rows,
            stream_rows=message.stream_rows,
            refresh=message.refresh,
            trigger_id=message.trigger_id or None,
            pattern=pattern_name(message.pattern),
            lease_until=optional_moment(message, "lease_until"),
        )


@dataclass(frozen=True, slots=True)
class Published:
    """Durable. `duplicate` is True where this sequence had been accepted before.

    `unverified`: that was so long ago that its rows are no longer known. They may have been other
    ones than these, unless these were sent with that sequence and no other ever was.
    """

    position: bytes
    row_count: int
    first_row_id: int
    duplicate: bool
    unverified: bool = False

    @classmethod
    def from_wire(cls, message: pb.PublishResponse) -> Published:
        return cls(
            message.position,
            message.row_count,
            message.first_row_id,
            message.duplicate,
            is_unverified(message),
        )


def is_unverified(message: pb.PublishResponse) -> bool:
    """Servers from before the field have no row id to tell in that case."""
    return message.unverified or (message.duplicate and message.first_row_id < 0)


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """The largest batch a server takes: bytes of a message, rows, bytes decoded, bytes of a value.

    The defaults are those of a server that is told nothing else.
    """

    message_bytes: int = 16 << 20
    batch_rows: int = 1_000_000
    batch_bytes: int = 64 << 20
    value_bytes: int = 1 << 20

    @classmethod
    def from_wire(cls, message: pb.Limits) -> StoreLimits:
        """What a server does not say is as by default."""
        return cls(**{field.name: value for field, value in message.ListFields()})


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """Whether the store's engine runs, and which one was seen last and when, by the server's clock.

    `host` is empty, `pid` 0 and `seen_at` None where there was none or it ended in order.
    """

    running: bool
    host: str
    pid: int
    seen_at: datetime | None

    @classmethod
    def from_wire(cls, message: pb.EngineStatus) -> EngineStatus:
        seen_at = optional_moment(message, "seen_at")
        return cls(message.running, message.host, message.pid, seen_at)


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """`epoch` 0: no engine has ever run; answers are complete all the same.

    `clock` None: a server that does not tell of its clock.
    `engine` is None where the server is of a version that does not say.
    """

    store_id: str
    version: str
    position: bytes
    now: datetime
    stream_count: int
    registration_count: int
    predicate_count: int
    epoch: int
    epoch_at: datetime | None
    behind_rows: int
    behind: timedelta
    backfill_rows: int
    cache_bytes: int
    cache_limit_bytes: int
    uptime: timedelta
    clock: StoreClock | None = None
    limits: StoreLimits = StoreLimits()
    engine: EngineStatus | None = None
    holes: tuple[LostRows, ...] = ()

    @classmethod
    def from_wire(cls, message: pb.StatusResponse) -> StoreStatus:
        return cls(
            store_id=message.store_id,
            version=message.version,
            position=message.position,
            now=moment(message.now),
            stream_count=message.stream_count,
            registration_count=message.registration_count,
            predicate_count=message.predicate_count,
            epoch=message.epoch,
            epoch_at=optional_moment(message, "epoch_at"),
            behind_rows=message.behind_rows,
            behind=span(message.behind),
            backfill_rows=message.backfill_rows,
            cache_bytes=message.cache_bytes,
            cache_limit_bytes=message.cache_limit_bytes,
            uptime=span(message.uptime),
            clock=StoreClock.from_wire(message.clock) if message.HasField("clock") else None,
            limits=StoreLimits.from_wire(message.limits),
            engine=EngineStatus.from_wire(message.engine) if message.HasField("engine") else None,
            holes=tuple(map(LostRows.from_wire, message.holes)),
        )
