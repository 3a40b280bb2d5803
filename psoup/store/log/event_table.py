"""Events as rows of the log table: how a commit is written and read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

import pyarrow as pa

from datastem.schema import StreamSchema
from datastem.zones import ZoneRules
from psoup.store.errors import UnsupportedFormat
from psoup.store.layout import LOG
from psoup.store.log.access_events import AccessEnded, AccessPut, access_body, read_access
from psoup.store.log.events import (
    MANY,
    Accept,
    ClockStatement,
    Composite,
    Confirm,
    Data,
    Denied,
    Entry,
    Event,
    Expire,
    Interest,
    Jump,
    LegPredicate,
    PublishersForgotten,
    Register,
    RegisterMany,
    Release,
    Renew,
    Replace,
    RowsErased,
    StreamAltered,
    StreamCreated,
    StreamEnded,
    Tick,
    Trigger,
    Unregister,
    ViewCreated,
    ViewEnded,
    WriterStarted,
    ZoneDefined,
)
from psoup.store.log.position import Position
from psoup.store.state.losses import Lost
from querystem.user_functions import FunctionDefinition
from querystem.views import ViewDefinition

# The kinds that can't be read without their payload.
WITH_PAYLOAD = frozenset({"register_many"})
_INSTANTS = frozenset({"stamp", "min_ts", "max_ts", "before", "reached", "clock"})


def to_table(entries: Sequence[Entry]) -> pa.Table:
    """Write the entries of one commit as rows of the log table."""
    rows = [_row(entry) for entry in entries]
    columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in LOG]
    return pa.Table.from_arrays(columns, schema=LOG)


def from_table(version: int, table: pa.Table) -> list[Entry]:
    """Return the entries of one commit. Raise UnsupportedFormat for an unknown kind of event."""
    names = table.column_names
    # Instants as integers, because `to_pylist` would make a datetime of each.
    columns = [
        column.cast(pa.int64()).to_pylist() if name in _INSTANTS else column.to_pylist()
        for name, column in zip(names, table.columns, strict=True)
    ]
    rows = zip(*columns, strict=True)
    return [_entry(version, dict(zip(names, row, strict=True))) for row in rows]


def _row(entry: Entry) -> dict[str, Any]:
    return _columns(entry.event) | {
        "ordinal": entry.position.ordinal,
        "tenant": entry.tenant,
        "owner": entry.owner,
        "stamp": entry.stamp,
        "server": entry.server or None,
        "clock": entry.clock,
        "actor": entry.actor or None,
    }


def _columns(event: Event) -> dict[str, Any]:
    match event:
        case Data():
            return {"kind": "data"} | {
                field.name: getattr(event, field.name) for field in fields(event)
            }
        case StreamCreated(stream_id, schema):
            return _definition("create", stream_id, schema=schema.to_json())
        case StreamAltered(stream_id, version, schema):
            return _definition("alter", stream_id, version=version, schema=schema.to_json())
        case StreamEnded(stream_id):
            return _definition("drop", stream_id)
        case ViewCreated(view_id, FunctionDefinition() as function, over):
            form = function.to_json()
            return _definition("create_function", view_id, function=form, over=over)
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
        case AccessPut():
            return _definition("access", None, **access_body(event))
        case AccessEnded():
            return _definition("access_ended", None, **access_body(event))
        case WriterStarted(mark):
            return _definition("writer", None, mark=mark)
        case RowsErased(stream_id, rows, digest, salt, stamp):
            repeated = {"stamp": stamp} if stamp else {}
            return _definition("erase", stream_id, rows=rows, digest=digest, salt=salt, **repeated)
        case ZoneDefined(rules):
            return _definition("zone", None, **rules.to_json())
        case Denied():
            return _definition("denied", None, **asdict(event))
        case PublishersForgotten():
            return _definition("forget_publishers", None, **asdict(event))
        case ClockStatement():
            return _definition("clock_asked", None, **asdict(event))
        case Jump() | Confirm() | Accept() | Release():
            return _definition(type(event).__name__.lower(), None, **asdict(event))
        case RegisterMany(stream_id, text, query, lease, rows, views):
            body = {"text": text, "query": query, "lease": lease, "views": views}
            columns = _definition("register_many", stream_id, **body)
            return columns | {"rows": rows.num_rows, "payload": _encode(rows)}
        case Register() | Replace():
            body = asdict(event) | {"handle": event.handle.hex()}
            kind = type(event).__name__.lower()
            return _definition(kind, event.legs[0].stream_id, **body)


def _definition(kind: str, stream_id: int | None, **body: Any) -> dict[str, Any]:
    return {"kind": kind, "stream_id": stream_id, "body": json.dumps(body)}


def _entry(version: int, row: Mapping[str, Any]) -> Entry:
    position = Position(version, row["ordinal"])
    server = row.get("server") or ""
    head = position, row["stamp"], row["tenant"], row["owner"]
    return Entry(*head, _event(row), server, row.get("clock"), row.get("actor") or "")


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
        case "alter":
            body = json.loads(row["body"])
            schema = StreamSchema.from_json(body["schema"])
            return StreamAltered(stream_id, body["version"], schema)
        case "drop":
            return StreamEnded(stream_id)
        case "create_view":
            body = json.loads(row["body"])
            view = ViewDefinition.from_json(body["view"])
            return ViewCreated(stream_id, view, tuple(body["over"]))
        case "create_function":
            body = json.loads(row["body"])
            function = FunctionDefinition.from_json(body["function"])
            return ViewCreated(stream_id, function, tuple(body["over"]))
        case "drop_view":
            return ViewEnded(stream_id)
        case "unregister" | "renew" | "expire" as kind:
            return _BY_HANDLE[kind](bytes.fromhex(json.loads(row["body"])["handle"]))
        case "interest":
            return Interest(stream_id, **json.loads(row["body"]))
        case "tick":
            return Tick()
        case "writer":
            return WriterStarted(**json.loads(row["body"]))
        case "clock_asked":
            return ClockStatement(**json.loads(row["body"]))
        case "access" | "access_ended" as kind:
            return read_access(kind, json.loads(row["body"]))
        case "erase":
            return RowsErased(stream_id, **json.loads(row["body"]))
        case "zone":
            return ZoneDefined(ZoneRules.from_json(json.loads(row["body"])))
        case "denied":
            return Denied(**json.loads(row["body"]))
        case "forget_publishers":
            body = json.loads(row["body"])
            return PublishersForgotten(body["owner"], tuple(body["names"]), body["expired"])
        case "jump":
            return Jump(**json.loads(row["body"]))
        case "accept":
            return Accept(tuple(Lost(**rows) for rows in json.loads(row["body"])["rows"]))
        case "release":
            return Release(tuple(json.loads(row["body"])["names"]))
        case "confirm":
            return Confirm(**json.loads(row["body"]))
        case "register":
            return Register(**_query(json.loads(row["body"])))
        case "replace":
            return Replace(**_query(json.loads(row["body"])))
        case "register_many":
            body = json.loads(row["body"])
            views = tuple(body.pop("views"))
            rows = _decode(row["payload"])
            return RegisterMany(stream_id=stream_id, rows=rows, views=views, **body)
        case kind:
            raise UnsupportedFormat(
                f"the log holds an event that this version does not know ({kind}): upgrade psoup"
            )


def _query(body: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a registration."""
    composite = body.pop("composite")
    return body | {
        "handle": bytes.fromhex(body["handle"]),
        "legs": tuple(LegPredicate(**leg) for leg in body["legs"]),
        "triggers": tuple(Trigger(**trigger) for trigger in body["triggers"]),
        "composite": None if composite is None else _composite(composite),
        "views": tuple(body["views"]),
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
