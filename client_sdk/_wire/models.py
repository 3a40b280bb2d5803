"""Streams, registrations and acknowledgements, as a store reports them."""

from __future__ import annotations

from collections.abc import Iterable
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


def columns_of(messages: Iterable[pb.Column]) -> tuple[Column, ...]:
    return tuple(
        Column(item.name, item.type, item.optional, from_value(item.default), tuple(item.former))
        for item in messages
    )


def pattern_name(pattern: pb.UpdatePattern) -> str:
    """Return MON, WKS, WK or STR; empty if the server does not say."""
    name = pb.UpdatePattern.Name(pattern).removeprefix("UPDATE_PATTERN_")
    return "" if name == "UNSPECIFIED" else name


@dataclass(frozen=True, slots=True)
class NowLeap:
    """The last batch or heartbeat of a publisher that took NOW of a stream past the clock: to
    `now`, when that said `at`. The name of the publisher is empty if it gave none."""

    owner: str
    publisher: str
    now: datetime
    at: datetime

    @classmethod
    def from_wire(cls, message: pb.NowLeap) -> NowLeap:
        return cls(message.owner, message.publisher, moment(message.now), moment(message.at))


@dataclass(frozen=True, slots=True)
class StreamStats:
    """What a stream takes, as one server knows it.

    The bytes are those of its rows in the log that the engine has yet to consume, of the rows that
    it has consumed, and of what it has matched; the last are 0 for callers who do not administer
    the tenant. `behind_rows` are in no epoch yet, and `behind` is the age of the oldest of them.
    `late_rows` came after NOW of the stream had passed their ts. `last_leap` took NOW ahead of the
    clock; it is None if nothing did, and for callers who do not administer the tenant.
    """

    log_bytes: int
    stem_bytes: int
    match_bytes: int
    behind_rows: int
    behind: timedelta
    late_rows: int = 0
    last_leap: NowLeap | None = None

    @classmethod
    def from_wire(cls, message: pb.StreamStats) -> StreamStats:
        return cls(
            message.log_bytes,
            message.stem_bytes,
            message.match_bytes,
            message.behind_rows,
            span(message.behind),
            message.late_rows,
            NowLeap.from_wire(message.last_leap) if message.HasField("last_leap") else None,
        )


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream as the store describes it.

    `retain` is None if rows are kept for ever. `now` is None if the stream has event time and no
    rows yet. `key` has the columns of the stream key: a row replaces the earlier row of its key. It
    is empty if every row stays a row. With event time NOW is the clock if `by_clock`. `policies`
    are the statements of its row policies; a caller bound by them sees neither them nor
    `row_count`, which is 0 then. `stats` come with one stream, not with a list, for callers who may
    read all of its rows. Rows may have the `dropped` columns still, which are left out.
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
    stats: StreamStats | None = None
    dropped: tuple[str, ...] = ()
    by_clock: bool = False

    @property
    def event_time(self) -> tuple[str, ...]:
        """The column with the event time, if there is one."""
        return (self.ordered_by,) if self.ordered_by else ()

    @property
    def now_is_clock(self) -> bool:
        """Whether NOW of the stream is the clock, not as far as its rows have come."""
        return not self.ordered_by or self.by_clock

    @property
    def schema(self) -> pa.Schema:
        return schema_of(self.columns)

    @property
    def present_names(self) -> dict[str, str]:
        """The names of columns by those that rows may use instead."""
        return {former: column.name for column in self.columns for former in column.former}

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
            stats=StreamStats.from_wire(message.stats) if message.HasField("stats") else None,
            dropped=tuple(message.dropped),
            by_clock=message.by_clock,
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
class Function:
    """A function as the store describes it: a name for an expression over `parameters`, whose value
    has this `type`.

    `over` are the functions that it calls, itself or through others.
    """

    name: str
    id: int
    parameters: tuple[Column, ...]
    type: str
    sql: str
    over: tuple[str, ...]

    @classmethod
    def from_wire(cls, message: pb.Function) -> Function:
        parameters, over = columns_of(message.parameters), tuple(message.over)
        return cls(message.name, message.id, parameters, message.type, message.sql, over)


@dataclass(frozen=True, slots=True)
class EndedRegistration:
    """A registration over a stream or view that was dropped."""

    handle: bytes
    owner: str
    client_key: str


@dataclass(frozen=True, slots=True)
class Ended:
    """What ended with a stream, view or function that was dropped, as far as the caller may see it.
    `views` are views and functions.

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
                EndedRegistration(registration.handle, registration.owner, registration.client_key)
                for registration in message.registrations
            ),
            view_count=message.view_count,
            policy_count=message.policy_count,
            grant_count=message.grant_count,
            registration_count=message.registration_count,
        )


@dataclass(frozen=True, slots=True)
class Definition:
    """What a statement defined: the stream, view or function after a CREATE, or before a DROP, else
    None.

    `ended` is what ended with what was dropped.
    """

    defined: Stream | View | Function | None
    position: bytes
    notes: tuple[str, ...]
    ended: Ended = Ended()

    @property
    def stream(self) -> Stream:
        """The stream. Raises TypeError if none was defined."""
        if not isinstance(self.defined, Stream):
            raise TypeError("no stream was defined")
        return self.defined

    @property
    def view(self) -> View:
        """The view. Raises TypeError if none was defined."""
        if not isinstance(self.defined, View):
            raise TypeError("no view was defined")
        return self.defined

    @property
    def function(self) -> Function:
        """The function. Raises TypeError if none was defined."""
        if not isinstance(self.defined, Function):
            raise TypeError("no function was defined")
        return self.defined

    @classmethod
    def from_wire(cls, message: pb.DefineResponse) -> Definition:
        defined: Stream | View | Function | None = None
        if message.HasField("function"):
            defined = Function.from_wire(message.function)
        elif message.HasField("view"):
            defined = View.from_wire(message.view)
        elif message.HasField("stream"):
            defined = Stream.from_wire(message.stream)
        ended = Ended.from_wire(message.ended)
        return cls(defined, message.position, tuple(message.notes), ended)


@dataclass(frozen=True, slots=True)
class Registered:
    """What `register` returns: the handle of the registration, and what its answers are like.

    `created` is False if the client key was registered already; `replaced` is True if it had
    another query until now. `pattern` is what can happen to rows of the answer: MON, WKS, WK or
    STR. The registration may end at `lease_until` unless it is invoked or synced before.
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
        """The handle as 32 hexadecimal digits, which every method takes too."""
        return self.handle.hex()


@dataclass(frozen=True, slots=True)
class RegisteredMany:
    """What `register_many` returns. The handles are in the order of the table.

    `created_count` of them are new, `replaced_count` had other queries until now.
    """

    handles: tuple[bytes, ...]
    position: bytes
    created_count: int
    replaced_count: int = 0


@dataclass(frozen=True, slots=True)
class RegistrationLeg:
    """A reference of a registered query to a stream. `matched_rows` of `stream_rows` are matched
    ahead.
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
    """A registration as the store keeps it. `matched_rows` of `stream_rows` are matched ahead.

    `key` is its client key. `refresh` is the REFRESH of the whole query, empty without one. `legs`
    are the query's references to streams; `stream`, `window` and the row counts are those of the
    first. They are empty if the server does not report them. `views` are the views that the query
    goes through.
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
        """The handle as 32 hexadecimal digits."""
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
    """The acknowledgement of a batch, which is durable. `duplicate` is True if its sequence had
    been accepted before.

    If it is `unverified` too, the store accepted that sequence so long ago that it can't compare
    the rows. They may have been others, unless the program never sent other rows with that
    sequence.
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
    """Return whether the store could not compare a duplicate with the rows it has.

    Servers from before the field `unverified` leave out the row id instead.
    """
    return message.unverified or (message.duplicate and message.first_row_id < 0)
