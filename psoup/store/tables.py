"""The tables in which the newest row of each primary key counts: catalog, registrations,
predicates, composites, publishers, leases, access, writers, erasures and zones.

Each step appends the rows that changed; compaction keeps the newest ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datastem.arrays import Mask
from datastem.schema import StreamSchema
from datastem.zones import ZoneRules
from psoup.store.delta import DeltaFolder, Snapshot
from psoup.store.delta.reading import reader
from psoup.store.epochs import Epoch
from psoup.store.layout import (
    ACCESS,
    CATALOG,
    COMPOSITES,
    ERASURES,
    LEASES,
    PREDICATES,
    PUBLISHERS,
    REGISTRATIONS,
    WRITERS,
    ZONES,
)
from psoup.store.log.access_events import read_value
from psoup.store.log.position import Position
from psoup.store.state.columns import handle_halves, with_constants
from psoup.store.state.composites import CompositeState
from psoup.store.state.erasures import Erasure, pack_ids, unpack_ids
from psoup.store.state.interest_requests import requests_from_json, requests_to_json
from psoup.store.state.leases import Expired
from psoup.store.state.state import State
from psoup.store.state.streams import AcceptedBatch, PublisherKey, StreamState
from psoup.store.state.touched import Touched
from psoup.store.state.views import ViewState
from psoup.store.state.writers import WriterMarks
from querystem.user_functions import FunctionDefinition
from querystem.views import ViewDefinition

KEYS: Mapping[str, tuple[str, ...]] = {
    "catalog": ("stream_id",),
    "registrations": ("handle",),
    "predicates": ("predicate_id",),
    "composites": ("composite_id",),
    "publishers": ("tenant", "owner", "publisher"),
    "leases": ("handle",),
    "access": ("kind", "id"),
    "writers": ("version",),
    "erasures": ("stream_id", "erased"),
    "zones": ("zone",),
}
# Columns whose values repeat, and are read as dictionaries.
REPEATED: Mapping[str, tuple[str, ...]] = {
    "registrations": ("tenant", "owner", "text", "query"),
    "predicates": ("tenant",),
}


def changed_rows(state: State, touched: Touched, position: Position) -> dict[str, pa.Table]:
    """Return the rows that the engine appends after a step, by table; unchanged tables are left
    out."""
    at = position.packed
    streams = [_stream_row(state.streams[key], at) for key in touched.streams]
    streams += [_view_row(state.views[key], at) for key in touched.views]
    publishers = [_publisher_row(state, key, at) for key in touched.publishers]
    leases = [_lease_row(state, key, at) for key in touched.leases]
    composites = [_composite_row(state, key, at) for key in touched.composites]
    access = [_access_row(state, *key, at) for key in touched.access]
    writers = [
        {"version": key, "mark": state.writers.at(key), "position": at, "ended": False}
        for key in sorted(touched.writers)
    ]
    erasures = [_erasure_row(state, *key, at) for key in sorted(touched.erasures)]
    zones = [_zone_row(state.zones[name], at) for name in sorted(touched.zones)]
    tables = {
        "catalog": pa.Table.from_pylist(streams, schema=CATALOG),
        "registrations": _registration_rows(state, touched.registrations, at),
        "predicates": _predicate_rows(state, touched.predicates, at),
        "composites": pa.Table.from_pylist(composites, schema=COMPOSITES),
        "publishers": pa.Table.from_pylist(publishers, schema=PUBLISHERS),
        "leases": pa.Table.from_pylist(leases, schema=LEASES),
        "access": pa.Table.from_pylist(access, schema=ACCESS),
        "writers": pa.Table.from_pylist(writers, schema=WRITERS),
        "erasures": pa.Table.from_pylist(erasures, schema=ERASURES),
        "zones": pa.Table.from_pylist(zones, schema=ZONES),
    }
    return {name: table for name, table in tables.items() if table.num_rows}


def newest(table: pa.Table, keys: Iterable[str]) -> pa.Table:
    """Return the newest row of each key, ended ones left out; rows keep their order."""
    keys = list(keys)
    last = _last(table, keys)
    last[table.column("ended").to_numpy()] = False
    return table if last.all() else table.filter(pa.array(last))


def _last(table: pa.Table, keys: list[str]) -> Mask:
    """Mark the rows that are the newest of their key."""
    # Most keys have one row, which is the newest. Only the others are sorted.
    last = ~_shared(_marks(table, keys))
    (doubtful,) = np.nonzero(~last)
    few = table.take(pa.array(doubtful))
    columns = {name: few.column(name) for name in (*keys, "position")}
    order = [("position", "ascending"), ("_row", "ascending")]
    ordered = pa.table({**columns, "_row": doubtful}).sort_by(order)
    # Without threads the groups are filled in sorted order, so the last row is the newest.
    newest_rows = ordered.group_by(keys, use_threads=False).aggregate([("_row", "last")])
    last[newest_rows.column("_row_last").to_numpy()] = True
    return last


def _marks(table: pa.Table, keys: list[str]) -> Any:
    """Return a number for each row: equal for equal keys, and mostly different for different
    ones."""
    match keys:
        case ["handle"]:
            halves = handle_halves(table.column("handle"))
            return halves[:, 0] ^ halves[:, 1]
        case ["predicate_id" | "stream_id" | "composite_id" | "version" as name]:
            return table.column(name).to_numpy()
    # One mark for all rows of the other tables: they are all sorted.
    return np.zeros(table.num_rows, np.int64)


def _shared(marks: Any) -> Mask:
    """Mark the numbers that occur more than once: few of those of a large table."""
    order = np.argsort(marks)
    # `same[n]` is True if the n-th number in order equals the one before it. A number is shared if
    # it equals a neighbour on either side.
    same = np.concatenate([[False], marks[order][1:] == marks[order][:-1], [False]])
    shared = np.empty(len(marks), np.bool_)
    shared[order] = (same[1:] | same[:-1])[: len(marks)]
    return shared


def read_newest(
    folder: DeltaFolder, snapshot: Snapshot, schema: pa.Schema, repeated: Iterable[str] = ()
) -> pa.Table:
    """Read the live rows of one of these tables."""
    return newest(read_files(folder, snapshot, schema, repeated), KEYS[folder.root.name])


def read_newest_columns(
    folder: DeltaFolder, snapshot: Snapshot, schema: pa.Schema, names: Iterable[str]
) -> pa.Table:
    """Read some columns of the live rows of one of these tables; its keys, `position` and `ended`
    must be among them."""
    columns = list(names)
    tables = [reader(folder.root, file).read(columns) for file in snapshot.files.values()]
    table = pa.concat_tables(tables) if tables else schema.empty_table().select(columns)
    return newest(table, KEYS[folder.root.name])


def read_files(
    folder: DeltaFolder, snapshot: Snapshot, schema: pa.Schema, repeated: Iterable[str] = ()
) -> pa.Table:
    """Read all rows of an unpartitioned table; columns of `repeated` values as dictionaries."""
    repeated = list(repeated)
    tables = [reader(folder.root, file).whole(repeated) for file in snapshot.files.values()]
    return pa.concat_tables(tables) if tables else schema.empty_table()


def load_state(epoch: Epoch, read: Callable[[str], pa.Table]) -> State:
    """Return the state at an epoch; `read` returns the live rows of a table by its name."""
    state = State(epoch.position, epoch.clock, epoch.next_predicate_id)
    # Streams come first, because registrations are counted in them. Composites and leases come
    # after the registrations, which they look up.
    for row in read("catalog").to_pylist():
        _load_definition(state, row, epoch)
    state.predicates.extend(read("predicates"))
    _load_registrations(state, read("registrations"))
    _load_composites(state, read("composites"))
    _load_publishers(state, read("publishers"))
    _load_leases(state, read("leases"))
    for row in read("access").to_pylist():
        state.put_access(read_value(row["kind"], json.loads(row["body"])))
    writers = read("writers").sort_by("version")
    state.writers = WriterMarks(*(writers.column(name).to_pylist() for name in ("version", "mark")))
    for row in _with_micros(read("erasures"), "stamp").sort_by("erased").to_pylist():
        state.put_erasure(_erasure(row), row["salt"])
    for row in read("zones").to_pylist():
        state.zones[row["zone"]] = ZoneRules.from_json(json.loads(row["rules"]))
    state.leases.outages = epoch.outages
    state.jumps = epoch.jumps
    state.losses = epoch.losses
    state.quarantine = epoch.quarantine
    return state


def _load_registrations(state: State, table: pa.Table) -> None:
    halves = handle_halves(table.column("handle"))
    order = np.lexsort([halves[:, 1], halves[:, 0], table.column("position").to_numpy()])
    # A table that is in order already is not copied.
    if (np.diff(order) < 0).any():
        table = table.take(pa.array(order))
    table = with_constants(_with_micros(table, "stamp"), {"contact": 0})
    state.registrations.extend(table)
    registrations, _ = state.columns
    for tenant_and_owner, count in registrations.by_owner().items():
        state.count_owned("registrations", *tenant_and_owner, count)
    for stream_id, count in registrations.by_stream().items():
        stream = state.streams[stream_id]
        state.streams[stream_id] = replace(stream, registrations=count)


def _load_publishers(state: State, table: pa.Table) -> None:
    for row in _with_micros(table, "stamp").to_pylist():
        state.put_publisher(
            (row["tenant"], row["owner"], row["publisher"]),
            AcceptedBatch(
                row["sequence"],
                row["request_digest"],
                row["first_row_id"],
                row["rows"],
                Position.unpack(row["position"]),
                row["stamp"],
                row["total_rows"],
                row["mark"],
                row["lease"],
            ),
        )


def _load_composites(state: State, table: pa.Table) -> None:
    registrations, _ = state.columns
    counts = registrations.by_composite()
    for row in table.to_pylist():
        composite = CompositeState(
            row["composite_id"],
            row["tenant"],
            tuple(row["legs"]),
            row["factors"],
            row["span"],
            Position.unpack(row["position"]),
            counts[row["composite_id"]],
        )
        state.composites[composite.id] = composite


def _load_leases(state: State, table: pa.Table) -> None:
    table = _with_micros(_with_micros(table, "renewed"), "expired")
    live = pc.is_null(table.column("expired"))
    renewed = table.filter(live).combine_chunks()
    registrations, _ = state.columns
    registrations.renew_all(renewed.column("handle"), renewed.column("renewed").to_numpy())
    # In the order they expired: the first of the mapping is dropped first.
    for row in table.filter(pc.invert(live)).sort_by("position").to_pylist():
        state.leases.expired[row["handle"]] = Expired(
            row["tenant"], row.get("owner"), row["expired"]
        )


def _load_definition(state: State, row: Mapping[str, Any], epoch: Epoch) -> None:
    """Load a stream, a view or a function."""
    form = json.loads(row["schema"])
    if "over" in form:
        _load_view(state, row, form)
    else:
        _load_stream(state, row, form, epoch)


def _load_view(state: State, row: Mapping[str, Any], form: Mapping[str, Any]) -> None:
    kind = FunctionDefinition if "parameters" in form else ViewDefinition
    definition, position = kind.from_json(form), Position.unpack(row["position"])
    identity = row["stream_id"], row["tenant"], row["owner"]
    view = ViewState(*identity, definition, tuple(form["over"]), position, form["ended"])
    state.views[view.id] = view
    if not view.dropped:
        state.view_names[view.tenant, definition.name] = view.id
        state.count_owned("views", view.tenant, view.owner, 1)


def _load_stream(
    state: State, row: Mapping[str, Any], form: Mapping[str, Any], epoch: Epoch
) -> None:
    mark = epoch.streams.get(row["stream_id"])
    stream = StreamState(
        row["stream_id"],
        row["tenant"],
        row["owner"],
        StreamSchema.from_json(form),
        Position.unpack(row["position"]),
        mark.high if mark else 0,
        mark.reached if mark else None,
        dropped=form["ended"],
        interest_requests=requests_from_json(form.get("asked", ())),
        version=row["schema_version"],
        retained_since=Position.unpack(form["retained_since"]),
        late_rows=mark.late_rows if mark else 0,
        leap=mark.leap if mark else None,
    )
    state.streams[stream.id] = stream
    if not stream.dropped:
        state.stream_names[stream.tenant, stream.schema.name] = stream.id
        state.count_owned("streams", stream.tenant, stream.owner, 1)


def _with_micros(table: pa.Table, name: str) -> pa.Table:
    index = table.column_names.index(name)
    return table.set_column(index, name, table.column(name).cast(pa.int64()))


def _stream_row(stream: StreamState, at: int) -> dict[str, Any]:
    form = stream.schema.to_json() | {
        "ended": stream.dropped,
        "retained_since": stream.retained_since.packed,
    }
    if stream.interest_requests:
        form["asked"] = requests_to_json(stream.interest_requests)
    return _definition_row(stream, form, at, stream.version)


def _view_row(view: ViewState, at: int) -> dict[str, Any]:
    form = view.definition.to_json() | {"over": view.over, "ended": view.dropped}
    return _definition_row(view, form, at)


def _definition_row(
    defined: StreamState | ViewState, form: Mapping[str, Any], at: int, version: int = 1
) -> dict[str, Any]:
    return {
        "stream_id": defined.id,
        "tenant": defined.tenant,
        "owner": defined.owner,
        "name": form["name"],
        "schema": json.dumps(form),
        "schema_version": version,
        "position": at,
        "ended": False,
    }


def _registration_rows(state: State, handles: Iterable[bytes], at: int) -> pa.Table:
    registrations, _ = state.columns
    keys = pa.array(handles, pa.binary())
    rows = registrations.rows_of(keys)
    # Row numbers ascend by (position, handle), the order in which registrations are loaded.
    live = registrations.take(np.sort(rows[rows >= 0]))
    return _changes(live, keys.filter(pa.array(rows < 0)), at, REGISTRATIONS)


def _predicate_rows(state: State, ids: Iterable[int], at: int) -> pa.Table:
    _, predicates = state.columns
    keys = np.fromiter(ids, np.int64)
    rows = predicates.rows_of(keys)
    live = with_constants(predicates.take(rows[rows >= 0]), {"position": at})
    return _changes(live, pa.array(keys[rows < 0]), at, PREDICATES)


def _changes(live: pa.Table, ended: pa.Array, at: int, schema: pa.Schema) -> pa.Table:
    """Return the live rows, and for each ended key a row with nothing but the key."""
    live_rows = live.append_column("ended", pa.array(np.zeros(live.num_rows, np.bool_)))
    ended_rows = pa.table(
        {
            schema.names[0]: ended,
            "position": np.full(len(ended), at),
            "ended": np.ones(len(ended), np.bool_),
        }
    )
    together = pa.concat_tables([live_rows, ended_rows], promote_options="default")
    return together.select(schema.names).cast(schema)


def _composite_row(state: State, composite_id: int, at: int) -> dict[str, Any]:
    """Return the row of a composite, which is written when it begins and when it ends."""
    composite = state.composites.get(composite_id)
    if composite is None:
        return {"composite_id": composite_id, "position": at, "ended": True}
    return {
        "composite_id": composite.id,
        "tenant": composite.tenant,
        "legs": list(composite.legs),
        "factors": composite.factors,
        "span": composite.span,
        "position": composite.position.packed,
        "ended": False,
    }


def _lease_row(state: State, handle: bytes, at: int) -> dict[str, Any]:
    row = {"handle": handle, "position": at, "ended": False}
    registration = state.registrations.get(handle)
    if registration is not None:
        return row | {"renewed": registration.since}
    expired = state.leases.expired.get(handle)
    if expired is None:
        return row | {"ended": True}
    names = {"tenant": expired.tenant, "owner": expired.owner}
    return row | names | {"expired": expired.stamp}


def _access_row(state: State, kind: str, id_: str, at: int) -> dict[str, Any]:
    row = {"kind": kind, "id": id_, "position": at}
    value = state.access.get(kind, id_)
    if value is None:
        return row | {"ended": True}
    body = asdict(value)
    return row | {"tenant": body.get("tenant"), "body": json.dumps(body), "ended": False}


def _publisher_row(state: State, key: PublisherKey, at: int) -> dict[str, Any]:
    row = dict(zip(KEYS["publishers"], key, strict=True))
    last = state.publishers.get(key)
    if last is None:
        return row | {"position": at, "ended": True}
    return row | {
        "sequence": last.sequence,
        "request_digest": last.request_digest,
        "first_row_id": last.first_row_id,
        "rows": last.rows,
        "total_rows": last.total_rows,
        "mark": last.mark,
        "lease": last.lease,
        "stamp": last.stamp,
        "position": last.position.packed,
        "ended": False,
    }


def _erasure_row(state: State, stream_id: int, position: Position, at: int) -> dict[str, Any]:
    erasures = state.erased(stream_id)
    (erasure,) = (record for record in erasures.records if record.position == position)
    return {
        "stream_id": stream_id,
        "erased": position.packed,
        "stamp": erasure.stamp,
        "count": len(erasure.ids),
        "rows": pack_ids(erasure.ids),
        "digest": erasure.digest,
        "salt": erasures.salt,
        "position": at,
        "ended": False,
    }


def _erasure(row: Mapping[str, Any]) -> Erasure:
    position, ids = Position.unpack(row["erased"]), unpack_ids(row["rows"])
    return Erasure(row["stream_id"], position, row["stamp"], ids, row["digest"])


def _zone_row(rules: ZoneRules, at: int) -> dict[str, Any]:
    return {
        "zone": rules.name,
        "version": rules.version,
        "rules": json.dumps(rules.to_json()),
        "position": at,
        "ended": False,
    }
