"""The work of executors over composites.

`enter` writes rows of a leg to `joins/<id>`, `combine` also joins them with the other legs, `store`
gives ids to the combinations of a draft, and `match` matches old combinations with new predicates.
A task needs only its unit and the shared folder.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s, Mask
from datastem.blocks import BLOCK_BITS, BLOCK_ROWS
from psoup.engine.composites.combining import (
    CombinationRows,
    LegJoin,
    Runs,
    TooManyCombinations,
)
from psoup.engine.composites.reading import LegReading
from psoup.engine.composites.rows import JoinState
from psoup.engine.composites.runs import LegBatch, bucket_edges, key_rows, sorted_rows
from psoup.engine.composites.units import CombinationSlice, CombineUnit, EnterUnit, StoreUnit
from psoup.engine.ledger import joins_name, stem_name
from psoup.engine.matching.predicates import ALL_IDS, Ranges, Stem, predicates_of
from psoup.engine.spark.jobs import CompositeOutcome, Outcome, SparkJob, Written
from psoup.engine.steps import pieces
from psoup.engine.steps.worker import insert, write_pieces
from psoup.store.delta.files import write_data_file
from psoup.store.delta.reading import reader
from psoup.store.layout import combination_part, combinations_schema
from querystem.index import QueryStem

JOIN_BOUNDS = ("row_id",)
# The least rows of a row group of `joins/<id>`.
_MIN_GROUP_ROWS = 1 << 13
# The combinations of one draft, about.
_DRAFT_ROWS = 1 << 20


def combine(job: SparkJob, unit: CombineUnit) -> list[Outcome]:
    """Join the arriving rows with each other and with the stored ones; return the outcomes."""
    work, legs = unit.work, range(unit.work.plan.legs)
    reading = LegReading(job, work)
    entered = None if unit.entered is None else reading.entered(unit.entered)
    arrived = list(_arrived(unit, reading, entered))
    # Rows that have entered were hashed and sorted by other tasks.
    new_legs = legs if entered is None else []
    keyed = [key_rows(work.plan.edges, leg, arrived[leg]) for leg in new_legs]
    join = LegJoin(work.plan, [], reading.key_columns, work.max_candidates, reading.ends)
    passes = _passes(unit, reading, keyed, entered)
    batches = _selected(job, unit, reading, _joined(join, arrived, passes))
    outcomes = list[Outcome]()
    try:
        if unit.first is None:
            outcomes += _drafts(job, work.id, len(legs), batches)
        else:
            combinations = CombinationRows.joined(list(batches), len(legs))
            outcomes.append(CompositeOutcome(work.id, len(combinations)))
            outcomes += _store(job, reading, combinations, unit.first)
    except TooManyCombinations:
        return [CompositeOutcome(work.id, too_many=True)]
    if entered is None:
        outcomes += write_joins(job, work.id, sorted_rows(pa.concat_tables(keyed)))
    fanouts = tuple((side, *counts) for side, counts in join.fanouts.items())
    return [*outcomes, CompositeOutcome(work.id, fanouts=fanouts)]


def _arrived(
    unit: CombineUnit, reading: LegReading, entered: JoinState | None
) -> Iterator[LegBatch]:
    """Yield the rows that arrive at each leg."""
    for leg, arrival in enumerate(unit.arrivals):
        if entered is None or unit.buckets is None:
            yield reading.arrived(leg, arrival)
        else:
            yield reading.entered_rows(leg, entered, unit.buckets)


def _joined(
    join: LegJoin, arrived: Sequence[LegBatch], passes: Iterable[tuple[int, list[Runs]]]
) -> Iterator[CombinationRows]:
    """Yield the combinations of all passes, in batches."""
    for leg, runs in passes:
        join.runs = runs
        yield from join.combinations(leg, arrived[leg])


def _selected(
    job: SparkJob, unit: CombineUnit, reading: LegReading, batches: Iterable[CombinationRows]
) -> Iterator[CombinationRows]:
    """Yield the combinations that are to be stored."""
    if unit.missing is None:
        for batch in batches:
            yield wanted(job, reading, batch)
        return
    leg = next(leg for leg, arrival in enumerate(unit.arrivals) if arrival.lo < arrival.hi)
    low, high = unit.arrivals[leg].lo, unit.arrivals[leg].hi
    stored = reading.stored_parts(unit.missing.files, leg, low, high)
    for batch in batches:
        matching = wanted(job, reading, batch, unit.missing.predicates)
        yield matching.take(np.flatnonzero(~are_among(matching.parts, stored)))


def wanted(
    job: SparkJob,
    reading: LegReading,
    combinations: CombinationRows,
    predicates: Ranges = ALL_IDS,
) -> CombinationRows:
    """Return the combinations that a predicate in these ranges matches."""
    if not len(combinations) or (reading.work.wants_all and predicates == ALL_IDS):
        return combinations
    index = _stem(job, reading.work.id, predicates).index
    mask = np.zeros(len(combinations), np.bool_)
    for first in range(0, len(combinations), BLOCK_ROWS):
        view, complete = reading.view(
            combinations.take(slice(first, first + BLOCK_ROWS)), index.columns
        )
        for matches in index.probe_slices(view, 0) if len(complete) else ():
            for part in matches.parts:
                mask[first + complete[part.lists().rows]] = True
    return combinations if mask.all() else combinations.take(np.flatnonzero(mask))


def are_among(parts: Sequence[Int64s], others: Sequence[Int64s]) -> Mask:
    """Return a mask of the combinations that others are equal to, given the row ids of each leg."""
    # Each combination gets the number of its row ids, leg by leg; equal ones get equal numbers.
    count = len(parts[0])
    numbers = np.zeros(count + len(others[0]), np.int64)
    for leg_ids, other_ids in zip(parts, others, strict=True):
        distinct, places = np.unique(np.concatenate([leg_ids, other_ids]), return_inverse=True)
        # Renumbered after each leg, so that the products stay small.
        numbers = np.unique(numbers * len(distinct) + places, return_inverse=True)[1]
    return np.isin(numbers[:count], numbers[count:])


def _drafts(
    job: SparkJob, composite_id: int, legs: int, batches: Iterable[CombinationRows]
) -> Iterator[CompositeOutcome]:
    """Write combinations to drafts, each of which fits in memory."""
    parts, count = list[CombinationRows](), 0

    def outcome() -> CompositeOutcome:
        draft = write_draft(job, composite_id, CombinationRows.joined(parts, legs))
        return CompositeOutcome(composite_id, count, draft=draft)

    for batch in batches:
        parts.append(batch)
        count += len(batch)
        if count >= _DRAFT_ROWS:
            yield outcome()
            parts, count = [], 0
    if count:
        yield outcome()


def _passes(
    unit: CombineUnit,
    reading: LegReading,
    keyed: Sequence[pa.Table],
    entered: JoinState | None,
) -> Iterator[tuple[int, list[Runs]]]:
    """Yield the joins that together find each combination once: the leg whose arrivals are joined,
    and the rows of each leg to join them with."""
    legs = range(unit.work.plan.legs)
    if not unit.later:
        for leg in legs:
            # Arrivals of earlier legs only, so that each combination is found once.
            earlier = [
                reading.runs(keyed[partner]) if entered is None else reading.runs_with(entered)
                for partner in legs[:leg]
            ]
            yield leg, [*earlier, *(reading.runs(None) for _ in legs[leg:])]
        return
    for leg in legs[1:]:
        # Leg is the first one with a later row.
        low, high = unit.later[leg]
        if low < high:
            earlier = [
                reading.runs_within(partner, 0, unit.later[partner][0]) for partner in legs[:leg]
            ]
            following = [reading.runs(None) for _ in legs[leg + 1 :]]
            yield 0, [*earlier, reading.runs_within(leg, low, high), *following]


def enter(job: SparkJob, unit: EnterUnit) -> list[Outcome]:
    """Write rows of a leg to `joins/<id>`."""
    reading = LegReading(job, unit.work)
    rows = reading.arrived(unit.leg, unit.arrival)
    table = key_rows(unit.work.plan.edges, unit.leg, rows)
    return write_joins(job, unit.work.id, table)


def store(job: SparkJob, unit: StoreUnit) -> list[Outcome]:
    """Store the combinations of a draft with ids, and match them."""
    path = Path(job.root) / stem_name(unit.work.id) / unit.draft
    with pa.memory_map(str(path)) as source:
        table = pa.ipc.open_file(source).read_all()
    combinations = combinations_of(table, unit.work.plan.legs)
    written = _store(job, LegReading(job, unit.work), combinations, unit.first)
    if not job.trial:
        path.unlink(missing_ok=True)
    return written


def match(job: SparkJob, unit: CombinationSlice) -> list[Outcome]:
    """Match old combinations with predicates that were not matched with them yet."""
    root = Path(job.root) / stem_name(unit.work.id)
    table = pa.concat_tables([reader(root, file).whole() for file in unit.files])
    ids = table.column("_row_id").to_numpy()
    inside = np.flatnonzero((ids >= unit.lo) & (ids < unit.hi))
    # Places in the table, in the order of ids, since pieces are made block by block.
    inside = inside[np.argsort(ids[inside])]
    combinations = combinations_of(table.take(pa.array(inside)), unit.work.plan.legs)
    reading = LegReading(job, unit.work)
    return _match(job, reading, combinations, ids[inside], unit.predicates)


def write_joins(job: SparkJob, composite_id: int, table: pa.Table) -> list[Outcome]:
    """Write sorted rows of `joins/<id>` as one file."""
    if not table.num_rows:
        return []
    name = joins_name(composite_id)
    file = write_data_file(
        Path(job.root) / name,
        table,
        bounds=JOIN_BOUNDS,
        sync=job.sync,
        cuts=bucket_edges(table, _MIN_GROUP_ROWS),
    )
    return [Written(name, file)]


def write_draft(job: SparkJob, composite_id: int, combinations: CombinationRows) -> str:
    """Write combinations without ids to a draft; return its name. `Vacuum` deletes unused
    drafts."""
    name = f".{uuid.uuid4().hex}.tmp"
    table = combinations_table(combinations, np.zeros(len(combinations), np.int64))
    path = Path(job.root) / stem_name(composite_id) / name
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return name


def _store(
    job: SparkJob, reading: LegReading, combinations: CombinationRows, first: int
) -> list[Outcome]:
    """Write combinations with ids from `first` on, in the order of their latest part, and the
    pieces of the predicates that match them."""
    if not len(combinations):
        return []
    # In the order of time, so that blocks of combinations have narrow bounds.
    combinations = combinations.take(np.lexsort((combinations.ts, combinations.until)))
    ids = np.arange(first, first + len(combinations))
    bounds = ("_row_id", "_ts", "_until", "_position", *_parts(reading.work.plan.legs))
    written = insert(job, reading.work.id, combinations_table(combinations, ids), bounds)
    return [*written, *_match(job, reading, combinations, ids, ALL_IDS)]


def _match(
    job: SparkJob,
    reading: LegReading,
    combinations: CombinationRows,
    ids: Int64s,
    predicates: Ranges,
) -> list[Outcome]:
    """Match combinations, whose ids must ascend, with the predicates in these ranges."""
    stem = _stem(job, reading.work.id, predicates)
    if stem.empty:
        return []
    blocks = pieces.runs(ids >> BLOCK_BITS)
    tables = pieces.together(
        table
        for first, last in blocks
        for table in _pieces(
            stem.index, reading, combinations.take(slice(first, last)), ids[first:last]
        )
    )
    return [file for table in tables for file in write_pieces(job, reading.work.id, table)]


def _stem(job: SparkJob, composite_id: int, predicates: Ranges) -> Stem:
    """Return the index of the predicates over a composite in these ranges."""
    live_predicates = predicates_of(job.root)
    live_predicates.advance(job.predicates, job.excluded)
    return live_predicates.stem(composite_id, predicates)


def _pieces(
    index: QueryStem, reading: LegReading, combinations: CombinationRows, ids: Int64s
) -> Iterator[pa.Table]:
    """Return the pieces of the combinations of one block, in tables."""
    view, complete = reading.view(combinations, index.columns)
    if not len(complete):
        return iter(())
    return pieces.probe_block(index, reading.work.id, ids[complete], view)


def combinations_table(combinations: CombinationRows, ids: Int64s) -> pa.Table:
    """Return combinations as rows of `stems/<id>`."""
    arrays = [ids, combinations.ts, combinations.until, combinations.positions, *combinations.parts]
    schema = combinations_schema(len(combinations.parts))
    columns = [
        pa.array(values).cast(type_) for values, type_ in zip(arrays, schema.types, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def combinations_of(table: pa.Table, legs: int) -> CombinationRows:
    """Return the combinations in a table of `combinations_table`."""
    names = ("_ts", "_until", "_position", *_parts(legs))
    ts, until, positions, *parts = (
        table.column(name).cast(pa.int64()).to_numpy() for name in names
    )
    return CombinationRows(tuple(parts), ts, until, positions)


def _parts(legs: int) -> list[str]:
    return [combination_part(number) for number in range(legs)]
