"""The events of the log: a closed union.

A writer has read everything before its commit (the commit is compare-and-set). So ids are assigned
once, when an event is written, and every reader gets the same ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from datastem.schema import StreamSchema
from datastem.zones import ZoneRules
from psoup.store.log.access_events import AccessEvent
from psoup.store.log.position import Position
from psoup.store.state.losses import Lost
from querystem.user_functions import FunctionDefinition
from querystem.views import ViewDefinition


@dataclass(frozen=True, slots=True)
class StreamCreated:
    """A stream was created, with the id that names it from here on."""

    stream_id: int
    schema: StreamSchema


@dataclass(frozen=True, slots=True)
class StreamAltered:
    """A stream got another schema: `schema` holds from this position on. `version` counts the
    schemas of the stream from 1, which StreamCreated brought."""

    stream_id: int
    version: int
    schema: StreamSchema


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """A stream was dropped."""

    stream_id: int


@dataclass(frozen=True, slots=True)
class ViewCreated:
    """A view or a function was created, with an id that no stream has. `over` are the ids of the
    streams, views and functions that its text names, itself or through others."""

    view_id: int
    definition: ViewDefinition | FunctionDefinition
    over: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ViewEnded:
    """A view or a function was dropped, itself or with what it names."""

    view_id: int


@dataclass(frozen=True, slots=True)
class Trigger:
    """The rows that refresh a registration: matched as a predicate like any other."""

    stream_id: int
    predicate_id: int
    key: str


@dataclass(frozen=True, slots=True)
class LegPredicate:
    """The predicate of a leg, over the leg's stream. `key` is its predicate key: the normal form as
    JSON."""

    stream_id: int
    predicate_id: int
    key: str


@dataclass(frozen=True, slots=True)
class Composite:
    """A join that registrations can share, and the predicate of one over its combinations.

    `legs` are the ids of its streams and `factors` the conditions between them as JSON, both in a
    canonical order. Rows whose ts are more than `span` apart are not combined; None means no limit.
    """

    composite_id: int
    legs: tuple[int, ...]
    factors: str
    span: int | None
    predicate_id: int
    key: str


@dataclass(frozen=True, slots=True)
class Register:
    """A query was registered. `legs` are in the order of the query's, and so are the `triggers` of
    it and of its parts. `query` is the bound form without the predicates of its legs, as JSON, and
    so are `parameters`.

    `composite` is the join that the engine maintains for it, if the query has one that it can
    maintain. `views` are the ids of the views that the text was bound through.
    """

    handle: bytes
    client_key: str
    legs: tuple[LegPredicate, ...]
    text: str
    parameters: str
    query: str
    lease: int
    triggers: tuple[Trigger, ...] = ()
    composite: Composite | None = None
    views: tuple[int, ...] = ()


# The columns of RegisterMany's rows.
MANY = pa.schema(
    [
        ("handle", pa.binary()),
        ("client_key", pa.string()),
        ("predicate_id", pa.int64()),
        ("key", pa.string()),
        ("parameters", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class RegisterMany:
    """Registrations of one text that differ in the values of its parameters, at one position.

    `rows` has the columns of MANY; handles ascend, so that registrations of one position have an
    order.
    """

    stream_id: int
    text: str
    query: str
    lease: int
    rows: pa.Table
    views: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Replace:
    """A registration got another query. Its handle and client key stay, and its lease is renewed.
    The fields are those of a Register.

    With `same_text` it is the query of its text by other rules of time zones: the position of the
    text stays, and so does the lease.
    """

    handle: bytes
    legs: tuple[LegPredicate, ...]
    text: str
    parameters: str
    query: str
    triggers: tuple[Trigger, ...] = ()
    composite: Composite | None = None
    views: tuple[int, ...] = ()
    same_text: bool = False


@dataclass(frozen=True, slots=True)
class Unregister:
    """A registration was ended by its client."""

    handle: bytes


@dataclass(frozen=True, slots=True)
class Renew:
    """A registration was used: its lease begins again."""

    handle: bytes


@dataclass(frozen=True, slots=True)
class Expire:
    """A registration ended because its lease ran out. It is appended only if that is still so."""

    handle: bytes


@dataclass(frozen=True, slots=True)
class Interest:
    """A caller needs the matches of a predicate from the ts `since` on (None: all), further back
    than the windows of its registrations reach."""

    stream_id: int
    predicate_id: int
    since: int | None


@dataclass(frozen=True, slots=True)
class Tick:
    """A sign that a server was running at the stamp, which leases count."""


@dataclass(frozen=True, slots=True)
class ClockStatement:
    """A server states its clock, and with `asks` requests the clocks of the others.

    A server does so before it would move the stamps far forward. One that may not append because
    its clock is ahead answers with the same event, with `asks` False. The entry itself has the last
    stamp and no clock.
    """

    server: str
    clock: int
    asks: bool = True


@dataclass(frozen=True, slots=True)
class Jump:
    """The stamp of this commit is far past the last one, and its server can't account for the time.
    It is the first event of its commit.

    `before` is the last stamp, `to` this one, `server` the server with that clock. Durations: a
    server whose clock is within `agree` of a later stamp confirms the jump, and so do `settle` of
    later stamps.
    """

    before: int
    to: int
    server: str
    agree: int
    settle: int


@dataclass(frozen=True, slots=True)
class Confirm:
    """An operator says that a jump is true. `number` counts the jumps of the log from 1."""

    number: int


@dataclass(frozen=True, slots=True)
class Accept:
    """An operator accepts that rows are lost: answers go on without them."""

    rows: tuple[Lost, ...]


@dataclass(frozen=True, slots=True)
class Release:
    """An operator releases quarantine entries by name: the engine retries them."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WriterStarted:
    """A process appends for the first time: its first commit ends with this. `mark` is a random
    int64 that distinguishes the histories of a store and of its restored back-up."""

    mark: int


@dataclass(frozen=True, slots=True)
class PublishersForgotten:
    """Publishers of an owner were forgotten: the sequences of these names begin again with 1. With
    `expired` they were not used for as long as their leases."""

    owner: str
    names: tuple[str, ...]
    expired: bool = False


@dataclass(frozen=True, slots=True)
class RowsErased:
    """Rows of a stream were erased: `rows` are their ids, packed as text. `digest` is the keyed
    digest of their stream key under `salt`, in hexadecimal; None in a stream without a key. From
    this position on the rows are in no answer, and no row of the key is accepted for a while.

    Without rows it only refuses the key: the first of two events that erase one. `stamp` is when
    that was first said, if a restore repeats it; 0 is the stamp of this event.
    """

    stream_id: int
    rows: str
    digest: int | None
    salt: str
    stamp: int = 0


@dataclass(frozen=True, slots=True)
class ZoneDefined:
    """The store has these rules of a time zone from here on: its first ones, or the next version of
    them. Every process takes them from here."""

    rules: ZoneRules


@dataclass(frozen=True, slots=True)
class Denied:
    """A caller who tried to administer was refused, `count` times in about a minute. `credential`
    names the credential and is not secret."""

    credential: str
    reason: str
    count: int


@dataclass(frozen=True, slots=True)
class Data:
    """A batch of rows, or a heartbeat if `rows` is 0 and `max_ts` an instant.

    `publisher` is empty and `sequence` 0 for a batch without identity. `before` is NOW of an
    event-time stream before it, and `reached` what it took that to. `payload` is None if the log
    was read without payloads.
    `digest` is that of the payload's values. `request_digest` is that of what was sent, which a
    repeat must have.
    `mark` is a text of the publisher's own. `lease` is how long the publisher is remembered after
    this batch, in microseconds; None is for ever. `late_rows` came after NOW had passed their ts.
    """

    stream_id: int
    publisher: str
    sequence: int
    rows: int
    first_row_id: int
    min_ts: int | None
    max_ts: int | None
    before: int | None
    reached: int | None
    digest: bytes
    request_digest: bytes
    payload: bytes | None
    mark: bytes | None = None
    lease: int | None = None
    late_rows: int = 0


Event: TypeAlias = (
    StreamCreated
    | StreamAltered
    | StreamEnded
    | ViewCreated
    | ViewEnded
    | Register
    | RegisterMany
    | Replace
    | Unregister
    | Renew
    | Expire
    | Interest
    | Tick
    | ClockStatement
    | Jump
    | Confirm
    | Accept
    | Release
    | WriterStarted
    | AccessEvent
    | PublishersForgotten
    | RowsErased
    | ZoneDefined
    | Denied
    | Data
)


@dataclass(frozen=True, slots=True)
class Entry:
    """An event at its position.

    `stamp` is the clock of its server, or the stamp before if that is greater. `server` names the
    machine that wrote it and `clock` is that machine's own clock. `actor` is who acted, if that is
    not the owner: an owner of the tenant, or `tenant/owner` of another one.
    """

    position: Position
    stamp: int
    tenant: str
    owner: str
    event: Event
    server: str = ""
    clock: int | None = None
    actor: str = ""
