"""Streams, registrations and acknowledgements, as a store tells of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pyarrow as pa

from client_sdk._wire.access import Grant
from client_sdk._wire.values import (
    Column,
    Scalar,
    from_value,
    moment,
    optional_moment,
    schema_of,
    span,
)
from psoup.v1 import psoup_pb2 as pb


def columns_of(messages: object) -> tuple[Column, ...]:
    return tuple(Column(item.name, item.type) for item in messages)  # type: ignore[attr-defined]


def pattern_name(pattern: pb.UpdatePattern) -> str:
    """Gives MON, WKS, WK or STR; empty where the server does not say."""
    name = pb.UpdatePattern.Name(pattern).removeprefix("UPDATE_PATTERN_")
    return "" if name == "UNSPECIFIED" else name


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream as the store describes it.

    `retain` is None where rows are kept for ever, `now` where the stream has event time and no rows
    yet. `key` is empty where every row stays a row; else a row replaces the earlier row of its key.
    `policies` are the statements that make its row policies; a caller whom they bind is told
    neither them nor `row_count`, which is 0 then.
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
    policies: tuple[str, ...] = ()

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
            policies=tuple(message.policies),
        )


@dataclass(frozen=True, slots=True)
class View:
    """A view as the store describes it: a name for a query.

    `over` are the streams and views that its query names, itself or through other views.
    """

    name: str
    id: int
    columns: tuple[Column, ...]
    sql: str
    over: tuple[str, ...]

    @property
    def schema(self) -> pa.Schema:
        return schema_of(self.columns)

    @classmethod
    def from_wire(cls, message: pb.View) -> View:
        columns = columns_of(message.columns)
        return cls(message.name, message.id, columns, message.sql, tuple(message.over))


@dataclass(frozen=True, slots=True)
class EndedRegistration:
    """A registration over a stream or view that was dropped."""

    handle: bytes
    owner: str
    client_key: str


@dataclass(frozen=True, slots=True)
class Ended:
    """What ended with a stream or view that was dropped, as far as the caller may see it.

    The store names at most 100 of a kind, and counts all.
    """

    views: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    grants: tuple[Grant, ...] = ()
    registrations: tuple[EndedRegistration, ...] = ()
    view_count: int = 0
    policy_count: int = 0
    grant_count: int = 0
    registration_count: int = 0

    @classmethod
    def from_wire(cls, message: pb.Ended) -> Ended:
        return cls(
            views=tuple(message.views),
            policies=tuple(message.policies),
            grants=tuple(map(Grant.from_wire, message.grants)),
            registrations=tuple(
                EndedRegistration(one.handle, one.owner, one.client_key)
                for one in message.registrations
            ),
            view_count=message.view_count,
            policy_count=message.policy_count,
            grant_count=message.grant_count,
            registration_count=message.registration_count,
        )


@dataclass(frozen=True, slots=True)
class Definition:
    """A definition has the stream or the view as it is now (CREATE) or as it was (DROP); None after
    a GRANT or REVOKE. `ended` is what ended with a stream or view that was dropped."""

    defined: Stream | View | None
    position: bytes
    notes: tuple[str, ...]
    ended: Ended = Ended()

    @property
    def stream(self) -> Stream:
        """The stream. Raises TypeError where none was defined."""
        if not isinstance(self.defined, Stream):
            raise TypeError("no stream was defined")
        return self.defined

    @property
    def view(self) -> View:
        """The view. Raises TypeError where none was defined."""
        if not isinstance(self.defined, View):
            raise TypeError("no view was defined")
        return self.defined

    @classmethod
    def from_wire(cls, message: pb.DefineResponse) -> Definition:
        defined: Stream | View | None = None
        if message.HasField("view"):
            defined = View.from_wire(message.view)
        elif message.HasField("stream"):
            defined = Stream.from_wire(message.stream)
        ended = Ended.from_wire(message.ended)
        return cls(defined, message.position, tuple(message.notes), ended)


@dataclass(frozen=True, slots=True)
class Registered:
    """`register` gives this. `created` is False where the key was known already; `replaced` is
    True where it had another query until now.

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
    replaced: bool = False

    @property
    def hex(self) -> str:
        """The handle as text; every verb takes it in this form too."""
        return self.handle.hex()


@dataclass(frozen=True, slots=True)
class RegisteredMany:
    """The handles are in the order of the table. `replaced_count` had other queries until now."""

    handles: tuple[bytes, ...]
    position: bytes
    created_count: int
    replaced_count: int = 0


@dataclass(frozen=True, slots=True)
class RegistrationLeg:
    """A reference of a registered query to a stream. `matched_rows` of `stream_rows` are
    precomputed.
    """

    stream: str
    window: str
    matched_rows: int
    stream_rows: int

    @classmethod
    def from_wire(cls, message: pb.RegistrationLeg) -> RegistrationLeg:
        return cls(
            stream=message.stream,
            window=message.window,
            matched_rows=message.matched_rows,
            stream_rows=message.stream_rows,
        )


@dataclass(frozen=True, slots=True)
class Registration:
    """A registration as the store keeps it. `matched_rows` of `stream_rows` are precomputed.

    `refresh` is that of the whole query, and empty without one. `legs` are the query's references
    to streams; `stream`, `window` and the counts of rows are those of the first. They are empty if
    the server does not tell them. `views` are those that the text was bound through.
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
    matched_rows: int
    stream_rows: int
    refresh: str
    pattern: str = ""
    lease_until: datetime | None = None
    legs: tuple[RegistrationLeg, ...] = ()
    views: tuple[str, ...] = ()

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
            matched_rows=message.matched_rows,
            stream_rows=message.stream_rows,
            refresh=message.refresh,
            pattern=pattern_name(message.pattern),
            lease_until=optional_moment(message, "lease_until"),
            legs=tuple(map(RegistrationLeg.from_wire, message.legs)),
            views=tuple(message.views),
        )


@dataclass(frozen=True, slots=True)
class Published:
    """The batch is durable. `duplicate` is True where its sequence had been accepted before.

    Where it is `unverified` too, the store took that sequence so long ago that it no longer knows
    the rows. They may have been other ones than these, unless these were sent with that sequence
    and no other ever was.
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
    """Tells it of servers from before the field too: in that case they have no row id to tell."""
    return message.unverified or (message.duplicate and message.first_row_id < 0)
