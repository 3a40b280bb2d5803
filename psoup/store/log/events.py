"""The events of the log: a closed union, each with the ids it was given.

Whoever appends has read everything before (the commit is compare-and-set), so ids are assigned
once, when an event is written; every reader finds the same ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from datastem.schema import StreamSchema
from psoup.store.log.access_events import AccessEvent
from psoup.store.log.position import Position
from psoup.store.state.losses import Lost
from querystem.views import ViewDefinition


@dataclass(frozen=True, slots=True)
class StreamCreated:
    """A stream was created, with the id that names it from here on."""

    stream_id: int
    schema: StreamSchema


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """A stream was dropped."""

    stream_id: int


@dataclass(frozen=True, slots=True)
class ViewCreated:
    """A view was created, with an id that no stream has. `over` are the ids of the
    streams and views that its query names."""

    view_id: int
    definition: ViewDefinition
    over: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ViewEnded:
    """A view was dropped, or ended with what it was over."""

    view_id: int


@dataclass(frozen=True, slots=True)
class Trigger:
    """The rows that refresh a registration: matched as a predicate like any other."""

    stream_id: int
    predicate_id: int
    key: str


@dataclass(frozen=True, slots=True)
class LegPredicate:
    """The predicate of a leg, over the leg's stream. `key` is its normal form as JSON."""

    stream_id: int
    predicate_id: int
    key: str


@dataclass(frozen=True, slots=True)
class Composite:
    """A join that registrations can share, and the predicate of one over its combinations.

    `legs` are the ids of its streams and `factors` the equalities between them as JSON, both in an
    order that is equal for equal composites. Parts whose ts are more than `span` apart are left
    out; None leaves out nothing.
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

    `composite` is the join that the engine is to find ahead of time, if it can be found so. `views`
    are the ids of the views that the text was bound through.
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

    `rows` has the columns of MANY; handles ascend, so that those of one position have an order.
    """

    stream_id: int
    text: str
    query: str
    lease: int
    rows: pa.Table
    views: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Replace:
    """A registration was given another query, at once: its handle, client key and lease stay, and
    its lease begins anew. The fields are those of a Register."""

    handle: bytes
    legs: tuple[LegPredicate, ...]
    text: str
    parameters: str
    query: str
    triggers: tuple[Trigger, ...] = ()
    composite: Composite | None = None
    views: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Unregister:
    """A registration was ended by its client."""

    handle: bytes


@dataclass(frozen=True, slots=True)
class Renew:
    """A registration was asked for: its lease begins anew."""

    handle: bytes


@dataclass(frozen=True, slots=True)
class Expire:
    """A registration ended that nobody had asked for. It is appended only if that is so."""

    handle: bytes


@dataclass(frozen=True, slots=True)
class Interest:
    """Somebody wants the rows of a predicate from the ts `since` on, or all if that is None, which
    is further back than the windows of its registrations reach."""

    stream_id: int
    predicate_id: int
    since: int | None


@dataclass(frozen=True, slots=True)
class Tick:
    """Nothing happened, and a server was up to say so."""


@dataclass(frozen=True, slots=True)
class ClockStatement:
    """A server whose clock would move the stamps far forward asks the others for theirs.

    `server` and `clock` are its own. They are not those of the entry, which has the last stamp and
    vouches for nothing. One that may not append because its clock is ahead answers by the same,
    with `asks` False.
    """

    server: str
    clock: int
    asks: bool = True


@dataclass(frozen=True, slots=True)
class Jump:
    """The stamp of this commit is far past the last one, and its server can't say that so much time
    has passed. Stands first in its commit.

    `before` is the last stamp, `to` this one, `server` whose clock it is. Durations: a server whose
    clock is within `agree` of a later stamp confirms the jump, and so do `settle` of later stamps.
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
    """An operator lets the engine try again what it has set aside, by the names of the entries."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WriterStarted:
    """A process appends for the first time: its first commit ends with this. `mark` is a random
    int64 that tells the histories of a store and of its restored back-up apart."""

    mark: int


@dataclass(frozen=True, slots=True)
class PublishersForgotten:
    """Publishers of an owner were forgotten: the sequences of these names begin again with 1."""

    owner: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Denied:
    """A caller who tried to administer was refused, `count` times in about a minute. `credential`
    names what was shown, and is no secret."""

    credential: str
    reason: str
    count: int


@dataclass(frozen=True, slots=True)
class Data:
    """A batch of rows, or a heartbeat where `rows` is 0 and `max_ts` an instant.

    `publisher` is empty and `sequence` 0 for a batch without identity. `before` is the greatest ts
    the stream had reached before it. `payload` is None if the log was read without payloads.
    """

    stream_id: int
    publisher: str
    sequence: int
    rows: int
    first_row_id: int
    min_ts: int | None
    max_ts: int | None
    before: int | None
    digest: bytes
    payload: bytes | None


Event = (
    StreamCreated
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
    | Denied
    | Data
)


@dataclass(frozen=True, slots=True)
class Entry:
    """An event in its place.

    `stamp` is the clock of its server, or the stamp before if that is greater. `server` names the
    machine it was made on and `clock` is what that one's own clock said. `actor` is who did it if
    that is another than the owner: an owner of the tenant, or one of another tenant, after that and
    a slash.
    """

    position: Position
    stamp: int
    tenant: str
    owner: str
    event: Event
    server: str = ""
    clock: int | None = None
    actor: str = ""
