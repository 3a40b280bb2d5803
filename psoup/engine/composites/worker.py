"""The work of executors over composites.

`enter` puts rows of a leg into `joins/<id>`, `combine` also finds the combinations that they make,
`store` gives ids to those that had none, `match` lets new predicates meet old combinations. A task
needs nothing of the driver but its unit, and the shared folder.
"""

from __future__ import annotations

import uuid
from pathlib import Path

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from datastem.blocks import BLOCK_BITS
from psoup.engine import pieces
from psoup.engine.composites.combining import CombinationRows, LegTurn, TooManyCombinations
from psoup.engine.composites.reading import LegReading
from psoup.engine.composites.runs import LegBatch, bucket_edges, key_rows, sorted_rows
from psoup.engine.composites.units import CombinationSlice, CombineUnit, EnterUnit, StoreUnit
from psoup.engine.jobs import CompositeOutcome, Outcome, SparkJob, Written
from psoup.engine.ledger import joins_name, stem_name
from psoup.engine.predicates import ALL_IDS, Ranges, predicates_of
from psoup.engine.worker import insert, write_pieces
from psoup.store.delta.files import write_data_file
from psoup.store.delta.reading import reader
from psoup.store.layout import MATCHES, combination_part, combinations_schema
from querystem.index import QueryStem

JOIN_BOUNDS = ("row_id",)
# A row group of `joins/<id>` has so many rows at least.
_GROUP_ROWS = 1 << 13


def combine(job: SparkJob, unit: CombineUnit) -> list[Outcome]:
    """Combines the rows that came with each other and with those that were there."""
    work, legs = unit.work, range(unit.work.plan.legs)
    reading = LegReading(job, work)
    came = [reading.arrived(leg, unit.arrivals[leg]) for leg in legs]
    keyed = [key_rows(work.plan.edges, leg, came[leg]) for leg in legs]
    own = [_between(came[leg], *unit.own[leg]) for leg in legs]
    turn = LegTurn(work.plan, [], reading.key_columns, work.most, reading.ends)
    found: list[CombinationRows] = []
    try:
        for leg in legs:
            turn.runs = [reading.runs(keyed[one] if one < leg else None) for one in legs]
            found += turn.combinations(leg, own[leg])
    except TooManyCombinations:
        return [CompositeOutcome(work.id, too_many=True)]
    made = CombinationRows.joined(found, len(legs))
    entered = [_rows_of(keyed[leg], own[leg]) for leg in legs]
    written = write_joins(job, work.id, sorted_rows(pa.concat_tables(entered)))
    fanouts = tuple((side, *counts) for side, counts in turn.fanouts.items())
    if unit.first is None:
        draft = write_draft(job, work.id, made) if len(made) else ""
        return [*written, CompositeOutcome(work.id, len(made), fanouts, draft)]
    told = CompositeOutcome(work.id, len(made), fanouts)
    return [*written, told, *_store(job, reading, made, unit.first)]


def enter(job: SparkJob, unit: EnterUnit) -> list[Outcome]:
    """Puts rows of a leg into `joins/<id>`."""
    reading = LegReading(job, unit.work)
    rows = reading.arrived(unit.leg, unit.arrival)
    table = key_rows(unit.work.plan.edges, unit.leg, rows)
    return write_joins(job, unit.work.id, table)


def store(job: SparkJob, unit: StoreUnit) -> list[Outcome]:
    """Gives the combinations of a draft their ids, and matches them."""
    path = Path(job.root) / stem_name(unit.work.id) / unit.draft
    with pa.memory_map(str(path)) as source:
        table = pa.ipc.open_file(source).read_all()
    made = combinations_of(table, unit.work.plan.legs)
    written = _store(job, LegReading(job, unit.work), made, unit.first)
    if not job.trial:
        path.unlink(missing_ok=True)
    return written


def match(job: SparkJob, unit: CombinationSlice) -> list[Outcome]:
    """Matches old combinations with the predicates that have not met them yet."""
    root = Path(job.root) / stem_name(unit.work.id)
    table = pa.concat_tables([reader(root, file).whole() for file in unit.files])
    ids = table.column("_row_id").to_numpy()
    inside = np.flatnonzero((ids >= unit.lo) & (ids < unit.hi))
    inside = inside[np.argsort(ids[inside])]
    made = combinations_of(table.take(pa.array(inside)), unit.work.plan.legs)
    reading = LegReading(job, unit.work)
    return _match(job, reading, made, ids[inside], unit.predicates)


def write_joins(job: SparkJob, composite_id: int, table: pa.Table) -> list[Outcome]:
    """Writes rows of `joins/<id>`, sorted, as one file."""
    if not table.num_rows:
        return []
    name = joins_name(composite_id)
    file = write_data_file(
        Path(job.root) / name,
        table,
        bounds=JOIN_BOUNDS,
        sync=job.sync,
        cuts=bucket_edges(table, _GROUP_ROWS),
    )
    return [Written(name, file)]


def write_draft(job: SparkJob, composite_id: int, made: CombinationRows) -> str:
    """Writes combinations that have no ids yet. A draft that nobody takes goes with the grace."""
    name = f".{uuid.uuid4().hex}.tmp"
    table = combinations_table(made, np.zeros(len(made), np.int64))
    path = Path(job.root) / stem_name(composite_id) / name
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return name


def _store(job: SparkJob, reading: LegReading, made: CombinationRows, first: int) -> list[Outcome]:
    """Writes combinations with ids from `first` on, by the time of their latest part, and the
    pieces of the predicates that match them."""
    if not len(made):
        return []
    made = made.take(np.lexsort((made.ts, made.until)))
    ids = np.arange(first, first + len(made))
    bounds = ("_row_id", "_ts", "_until", "_position", *_parts(reading.work.plan.legs))
    written = insert(job, reading.work.id, combinations_table(made, ids), bounds)
    return [*written, *_match(job, reading, made, ids, ALL_IDS)]


def _match(
    job: SparkJob, reading: LegReading, made: CombinationRows, ids: Int64s, predicates: Ranges
) -> list[Outcome]:
    """Matches combinations with the predicates in some ranges; their ids ascend."""
    known = predicates_of(job.root)
    known.advance(job.predicates, job.excluded)
    stem = known.stem(reading.work.id, predicates)
    if stem.empty:
        return []
    blocks = pieces.runs(ids >> BLOCK_BITS)
    found = pieces.in_order(
        _pieces(stem.index, reading, made.take(slice(first, last)), ids[first:last])
        for first, last in blocks
    )
    return write_pieces(job, reading.work.id, found)


def _pieces(index: QueryStem, reading: LegReading, made: CombinationRows, ids: Int64s) -> pa.Table:
    """The pieces of the combinations of one block."""
    view, there = reading.view(made, index.columns)
    if not len(there):
        return MATCHES.empty_table()
    return pieces.probe_block(index, reading.work.id, ids[there], view)


def combinations_table(made: CombinationRows, ids: Int64s) -> pa.Table:
    """Combinations as rows of `stems/<id>`."""
    arrays = [ids, made.ts, made.until, made.positions, *made.parts]
    schema = combinations_schema(len(made.parts))
    columns = [pa.array(each).cast(type_) for each, type_ in zip(arrays, schema.types, strict=True)]
    return pa.Table.from_arrays(columns, schema=schema)


def combinations_of(table: pa.Table, legs: int) -> CombinationRows:
    """Reads what `combinations_table` has made."""
    names = ("_ts", "_until", "_position", *_parts(legs))
    ts, until, positions, *parts = (
        table.column(each).cast(pa.int64()).to_numpy() for each in names
    )
    return CombinationRows(tuple(parts), ts, until, positions)


def _parts(legs: int) -> list[str]:
    return [combination_part(number) for number in range(legs)]


def _rows_of(table: pa.Table, rows: LegBatch) -> pa.Table:
    """The rows of `joins/<id>` that are of some rows of a leg."""
    return table.filter(pa.array(np.isin(table.column("row_id").to_numpy(), rows.ids)))


def _between(rows: LegBatch, low: int, high: int) -> LegBatch:
    """The rows with an id in `[low, high)`."""
    inside = np.flatnonzero((rows.ids >= low) & (rows.ids < high))
    return rows if len(inside) == len(rows.ids) else rows.take(inside)
