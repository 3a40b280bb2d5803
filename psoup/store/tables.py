"""The tables in which the newest row of a key counts: catalog, registrations, predicates,
publishers. Each step appends the rows that changed; compaction keeps the newest ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from datastem.schema import StreamSchema
from psoup.store.delta import DeltaFolder, Snapshot
from psoup.store.epochs import Epoch
from psoup.store.layout import CATALOG, LEASES, PREDICATES, PUBLISHERS, REGISTRATIONS
from psoup.store.leases import Expired
from psoup.store.position import Position
from psoup.store.state import Predicate, Publisher, Registration, State, StreamState, Touched

KEYS: Mapping[str, tuple[str, ...]] = {
    "catalog": ("stream_id",),
    "registrations": ("handle",),
    "predicates": ("predicate_id",),
    "publishers": ("tenant", "publisher"),
    "leases": ("handle",),
}


def changed_rows(state: State, touched: Touched, position: Position) -> dict[str, pa.Table]:
    """What the engine appends after a step, by table; a table without changes is left out."""
    at = position.packed
    rows: dict[str, tuple[pa.Schema, list[dict[str, Any]]]] = {
        "catalog": (CATALOG, [_stream_row(state.streams[key], at) for key in touched.streams]),
        "registrations": (
            REGISTRATIONS,
            [_registration_row(state, key, at) for key in touched.registrations],
        ),
        "predicates": (PREDICATES, [_predicate_row(state, key, at) for key in touched.predicates]),
        "publishers": (PUBLISHERS, [_publisher_row(state, key, at) for key in touched.publishers]),
        "leases": (LEASES, [_lease_row(state, key, at) for key in touched.leases]),
    }
    return {
        name: pa.Table.from_pylist(table_rows, schema=schema)
        for name, (schema, table_rows) in rows.items()
        if table_rows
    }


def newest(table: pa.Table, keys: Iterable[str]) -> pa.Table:
    """The newest row of each key, ended ones left out."""
    keys = list(keys)
    order = table.append_column("_index", pa.array(range(table.num_rows), pa.int64()))
    order = order.sort_by([("position", "ascending"), ("_index", "ascending")])
    last = order.group_by(keys, use_threads=False).aggregate([("_index", "last")])
    kept = table.take(last.column("_index_last"))
    return kept.filter(pc.invert(kept.column("ended")))


def read_newest(folder: DeltaFolder, snapshot: Snapshot, schema: pa.Schema) -> pa.Table:
    """The live rows of one of these tables."""
    return newest(read_files(folder, snapshot, schema), KEYS[folder.root.name])


def read_files(folder: DeltaFolder, snapshot: Snapshot, schema: pa.Schema) -> pa.Table:
    """All rows of an unpartitioned table."""
    tables = [pq.ParquetFile(folder.path_of(file)).read() for file in snapshot.files.values()]
    return pa.concat_tables(tables) if tables else schema.empty_table()


def load_state(epoch: Epoch, tables: Mapping[str, pa.Table]) -> State:
    """The state at an epoch from the live rows of the four tables."""
    state = State(epoch.position, epoch.clock, epoch.next_stream_id, epoch.next_predicate_id)
    for row in tables["catalog"].to_pylist():
        _load_stream(state, row, epoch)
    for row in tables["predicates"].to_pylist():
        predicate = Predicate(
            row["predicate_id"], row["tenant"], row["stream_id"], row["key"], row["registrations"]
        )
        state.predicates[predicate.id] = predicate
        state.predicate_keys[predicate.stream_id, predicate.key] = predicate.id
    for row in _with_micros(tables["registrations"], "stamp").to_pylist():
        del row["ended"]
        row["position"] = Position.unpack(row["position"])
        state.insert_registration(Registration(**row))
    for row in tables["publishers"].to_pylist():
        state.publishers[row["tenant"], row["publisher"]] = Publisher(
            row["sequence"],
            row["digest"],
            row["first_row_id"],
            row["rows"],
            Position.unpack(row["position"]),
        )
    _load_leases(state, tables["leases"])
    state.leases.outages = epoch.outages
    return state


def _load_leases(state: State, table: pa.Table) -> None:
    for name in ("renewed", "expired"):
        table = _with_micros(table, name)
    for row in table.sort_by("position").to_pylist():
        if row["expired"] is None:
            state.leases.renewed[row["handle"]] = row["renewed"]
        else:
            state.leases.expired[row["handle"]] = Expired(row["tenant"], row["expired"])


def _load_stream(state: State, row: Mapping[str, Any], epoch: Epoch) -> None:
    form = json.loads(row["schema"])
    mark = epoch.streams.get(row["stream_id"])
    stream = StreamState(
        row["stream_id"],
        row["tenant"],
        row["owner"],
        StreamSchema.from_json(form),
        Position.unpack(row["position"]),
        mark.high if mark else 0,
        mark.reached if mark else None,
        dropped=form.get("dropped", False),
    )
    state.streams[stream.id] = stream
    if not stream.dropped:
        state.stream_names[stream.tenant, stream.schema.name] = stream.id


def _with_micros(table: pa.Table, name: str) -> pa.Table:
    index = table.column_names.index(name)
    return table.set_column(index, name, table.column(name).cast(pa.int64()))


def _stream_row(stream: StreamState, at: int) -> dict[str, Any]:
    form = stream.schema.to_json() | {"dropped": stream.dropped}
    return {
        "stream_id": stream.id,
        "tenant": stream.tenant,
        "owner": stream.owner,
        "name": stream.schema.name,
        "schema": json.dumps(form),
        "schema_version": 1,
        "position": at,
        "ended": False,
    }


def _registration_row(state: State, handle: bytes, at: int) -> dict[str, Any]:
    registration = state.registrations.get(handle)
    if registration is None:
        return {"handle": handle, "position": at, "ended": True}
    return {
        "handle": handle,
        "tenant": registration.tenant,
        "owner": registration.owner,
        "client_key": registration.client_key,
        "stream_id": registration.stream_id,
        "predicate_id": registration.predicate_id,
        "text": registration.text,
        "parameters": registration.parameters,
        "query": registration.query,
        "lease": registration.lease,
        "stamp": registration.stamp,
        "position": registration.position.packed,
        "ended": False,
    }


def _predicate_row(state: State, predicate_id: int, at: int) -> dict[str, Any]:
    predicate = state.predicates.get(predicate_id)
    if predicate is None:
        return {"predicate_id": predicate_id, "position": at, "ended": True}
    return {
        "predicate_id": predicate_id,
        "tenant": predicate.tenant,
        "stream_id": predicate.stream_id,
        "key": predicate.key,
        "registrations": predicate.registrations,
        "position": at,
        "ended": False,
    }


def _lease_row(state: State, handle: bytes, at: int) -> dict[str, Any]:
    row = {"handle": handle, "position": at, "ended": False}
    if handle in state.leases.renewed:
        return row | {"renewed": state.leases.renewed[handle]}
    expired = state.leases.expired.get(handle)
    if expired is None:
        return row | {"ended": True}
    return row | {"tenant": expired.tenant, "expired": expired.stamp}


def _publisher_row(state: State, key: tuple[str, str], at: int) -> dict[str, Any]:
    publisher = state.publishers[key]
    return {
        "tenant": key[0],
        "publisher": key[1],
        "sequence": publisher.sequence,
        "digest": publisher.digest,
        "first_row_id": publisher.first_row_id,
        "rows": publisher.rows,
        "position": publisher.position.packed,
        "ended": False,
    }
