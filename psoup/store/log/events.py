"""The events of the log: a closed union, each with the ids it was given.

Whoever appends has read everything before (the commit is compare-and-set), so ids are assigned
once, when an event is written; every reader finds the same ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import pyarrow as pa

from datastem.schema import StreamSchema
from psoup.store.errors import UnsupportedFormat
from psoup.store.layout import FORMAT, LOG
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
    """A view was created, with an id from the numbers of the streams. `over` are the ids of the
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

    `composite` is the join that the engine is to find ahead of time, where it can be found so.
    `views` are the ids of the views that the text was bound through.
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


@dataclass(frozen=True, slots=True)
class Compose:
    """A registration that had no composite got one. It is appended only where that is so."""

    handle: bytes
    composite: Composite


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
    """A registration ended that nobody had asked for. It is appended only where that is so."""

    handle: bytes


@dataclass(frozen=True, slots=True)
class Interest:
    """Somebody wants the rows of a predicate from the ts `since` on, or all where that is None,
    which is further back than the windows of its registrations reach."""

    stream_id: int
    predicate_id: int
    since: int | None


@dataclass(frozen=True, slots=True)
class Tick:
    """Nothing happened, and a server was up to say so."""


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
class Upgrade:
    """The store has another format from this commit on. `checked` names for each table the version
    from which on it has checksums."""

    format: int
    checked: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Data:
    """A batch of rows, or a heartbeat where `rows` is 0 and `max_ts` an instant.

    `publisher` is empty and `sequence` 0 for a batch without identity. `before` is the greatest ts
    the stream had reached before it. `payload` is None where the log was read without payloads.
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
    | Compose
    | RegisterMany
    | Replace
    | Unregister
    | Renew
    | Expire
    | Interest
    | Tick
    | Jump
    | Confirm
    | Accept
    | Upgrade
    | Data
)


@dataclass(frozen=True, slots=True)
class Entry:
    """An event in its place.

    `stamp` is the clock of its server, or the stamp before where that is greater. `server` names
    the machine it was made on and `clock` is what that one's own clock said; an event of format 1
    has neither.
    """

    position: Position
    stamp: int
    tenant: str
    owner: str
    event: Event
    server: str = ""
    clock: int | None = None


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
# The kinds that can't be read without their payload.
WITH_PAYLOAD = frozenset({"register_many"})


def to_table(entries: Sequence[Entry]) -> pa.Table:
    """Writes the entries of one commit as rows of the log table."""
    rows = [_row(entry) for entry in entries]
    columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in LOG]
    return pa.Table.from_arrays(columns, schema=LOG)


def from_table(version: int, table: pa.Table) -> list[Entry]:
    instants = ("stamp", "min_ts", "max_ts", "before", "clock")
    for name in [name for name in instants if name in table.column_names]:
        index = table.column_names.index(name)
        table = table.set_column(index, name, table.column(name).cast(pa.int64()))
    return [_entry(version, row) for row in table.to_pylist()]


def _row(entry: Entry) -> dict[str, Any]:
    return _columns(entry.event) | {
        "ordinal": entry.position.ordinal,
        "tenant": entry.tenant,
        "owner": entry.owner,
        "stamp": entry.stamp,
        "server": entry.server or None,
        "clock": entry.clock,
    }


def _columns(event: Event) -> dict[str, Any]:
    match event:
        case Data():
            return {"kind": "data"} | {
                field.name: getattr(event, field.name) for field in fields(event)
            }
        case StreamCreated(stream_id, schema):
            return _definition("create", stream_id, schema=schema.to_json())
        case StreamEnded(stream_id):
            return _definition("drop", stream_id)
        case ViewCreated(view_id, definition, over):
            return _definition("create_view", view_id, view=definition.to_json(), over=over)
        case ViewEnded(view_id):
            return _definition("drop_view", view_id)
        case Unregister(handle) | Renew(handle) | Expire(handle):
            return _definition(type(event).__name__.lower(), None, handle=handle.hex())
        case Interest(stream_id, predicate_id, since):
            return _definition("interest", stream_id, predicate_id=predicate_id, since=since)
        case Tick():
            return _definition("tick", None)
        case Upgrade():
            return _definition("format", None, **asdict(event))
        case Jump() | Confirm() | Accept():
            return _definition(type(event).__name__.lower(), None, **asdict(event))
        case RegisterMany(stream_id, text, query, lease, rows, views):
            body = {"text": text, "query": query, "lease": lease, "views": views}
            columns = _definition("register_many", stream_id, **body)
            return columns | {"rows": rows.num_rows, "payload": _encode(rows)}
        case Register() | Replace():
            body = asdict(event) | {"handle": event.handle.hex()}
            kind = type(event).__name__.lower()
            return _definition(kind, event.legs[0].stream_id, **body)
        case Compose(handle, composite):
            body = {"handle": handle.hex(), "composite": asdict(composite)}
            return _definition("compose", None, **body)


def _definition(kind: str, stream_id: int | None, **body: Any) -> dict[str, Any]:
    return {"kind": kind, "stream_id": stream_id, "body": json.dumps(body)}


def _entry(version: int, row: Mapping[str, Any]) -> Entry:
    position = Position(version, row["ordinal"])
    server = row.get("server") or ""
    head = position, row["stamp"], row["tenant"], row["owner"]
    return Entry(*head, _event(row), server, row.get("clock"))


_BY_HANDLE: dict[str, type[Unregister] | type[Renew] | type[Expire]] = {
    "unregister": Unregister,
    "renew": Renew,
    "expire": Expire,
}


def _event(row: Mapping[str, Any]) -> Event:
    stream_id = row["stream_id"]
    match row["kind"]:
        case "data":
            values: dict[str, Any] = {field.name: row.get(field.name) for field in fields(Data)}
            return Data(**values)
        case "create":
            body = json.loads(row["body"])
            return StreamCreated(stream_id, StreamSchema.from_json(body["schema"]))
        case "drop":
            return StreamEnded(stream_id)
        case "create_view":
            body = json.loads(row["body"])
            view = ViewDefinition.from_json(body["view"])
            return ViewCreated(stream_id, view, tuple(body["over"]))
        case "drop_view":
            return ViewEnded(stream_id)
        case "unregister" | "renew" | "expire" as kind:
            return _BY_HANDLE[kind](bytes.fromhex(json.loads(row["body"])["handle"]))
        case "interest":
            return Interest(stream_id, **json.loads(row["body"]))
        case "tick":
            return Tick()
        case "jump":
            return Jump(**json.loads(row["body"]))
        case "accept":
            return Accept(tuple(Lost(**rows) for rows in json.loads(row["body"])["rows"]))
        case "upgrade" | "format":
            return _upgrade(json.loads(row["body"]))
        case "confirm":
            return Confirm(**json.loads(row["body"]))
        case "register":
            return Register(**_query(stream_id, json.loads(row["body"])))
        case "compose":
            body = json.loads(row["body"])
            return Compose(bytes.fromhex(body["handle"]), _composite(body["composite"]))
        case "replace":
            return Replace(**_query(stream_id, json.loads(row["body"])))
        case "register_many":
            body = json.loads(row["body"])
            views = tuple(body.pop("views", ()))
            rows = _decode(row["payload"])
            return RegisterMany(stream_id=stream_id, rows=rows, views=views, **body)
        case kind:
            raise UnsupportedFormat(
                f"the log holds an event that this version does not know ({kind}): upgrade psoup"
            )


def _upgrade(body: dict[str, Any]) -> Upgrade:
    """Reads an upgrade. Programs of format 2 pass over the kind `upgrade` whatever its format, so
    they are stopped by the kind `format`, which they don't know.

    Raises UnsupportedFormat for a later format than this program's.
    """
    event = Upgrade(**body)
    if event.format > FORMAT:
        raise UnsupportedFormat(
            f"the store has format {event.format} now, this version reads up to {FORMAT}: "
            "upgrade psoup"
        )
    return event


def _query(stream_id: int, body: dict[str, Any]) -> dict[str, Any]:
    """Reads the fields of a registration; one of format 2 has one leg, whose parts stand beside the
    others, and up to format 3 one has a trigger or none."""
    if "legs" not in body:
        leg = {"predicate_id": body.pop("predicate_id"), "key": body.pop("key")}
        body["legs"] = [{"stream_id": stream_id} | leg]
    if "trigger" in body:
        trigger = body.pop("trigger")
        body["triggers"] = [] if trigger is None else [trigger]
    composite = body.pop("composite", None)
    return body | {
        "handle": bytes.fromhex(body["handle"]),
        "legs": tuple(LegPredicate(**leg) for leg in body["legs"]),
        "triggers": tuple(Trigger(**trigger) for trigger in body["triggers"]),
        "composite": None if composite is None else _composite(composite),
        "views": tuple(body.get("views", ())),
    }


def _composite(body: dict[str, Any]) -> Composite:
    return Composite(**body | {"legs": tuple(body["legs"])})


def _encode(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, MANY) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def _decode(payload: bytes) -> pa.Table:
    return pa.ipc.open_stream(payload).read_all()
