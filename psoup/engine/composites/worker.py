"""The work of executors over composites.

`enter` puts rows of a leg into `joins/<id>`, `combine` also finds the combinations that they make,
`store` gives ids to those that had none, `match` lets new predicates meet old combinations. A task
needs nothing of the driver but its unit, and the shared folder.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from datastem.blocks import BLOCK_BITS
from datastem.codec import INSTANT
from psoup.engine import pieces
from psoup.engine.composites.admitting import matching_ids
from psoup.engine.composites.combining import (
    CombinationRows,
    Ends,
    JoinPlan,
    LegTurn,
    Runs,
    TooManyCombinations,
)
from psoup.engine.composites.keys import leg_columns, sides_of
from psoup.engine.composites.rows import JoinState, RowEnds, StemRows, read_cache
from psoup.engine.composites.runs import KeyRun, LegBatch, bucket_edges, key_rows
from psoup.engine.jobs import CompositeOutcome, Outcome, SparkJob, Written
from psoup.engine.ledger import stem_name
from psoup.engine.predicates import EVERY, Ranges, predicates_of
from psoup.engine.worker import insert, write_pieces
from psoup.store.delta.files import DataFile, write_data_file
from psoup.store.delta.reading import reader
from psoup.store.layout import MATCHES, combination_part, combinations_schema
from querystem.index import QueryStem
from querystem.join.factors import item_of
from querystem.query import item_column

JOIN_BOUNDS = ("row_id",)
# A row group of `joins/<id>` has so many rows at least.
_GROUP_ROWS = 1 << 13
# The columns that every row has: their name in a query, and in the stem.
_SYSTEM = {"ts": "_ts", "row_id": "_row_id"}


@dataclass(frozen=True, slots=True)
class CompositeLeg:
    """The stream of a leg, and the files of its stem. Where `closures` are given, the ends count
    that were caused by rows with ids below `closed_by`."""

    stream_id: int
    files: tuple[DataFile, ...]
    closures: tuple[DataFile, ...] = ()
    closed_by: int = 0


@dataclass(frozen=True, slots=True)
class CompositeWork:
    """What all units over a composite have in common. `budget` is what a process may keep of what
    it has read, in bytes; `most` the candidates that one unit may look at."""

    id: int
    plan: JoinPlan
    legs: tuple[CompositeLeg, ...]
    joins: tuple[DataFile, ...] = ()
    budget: int = 256 << 20
    most: int = 1 << 26


@dataclass(frozen=True, slots=True)
class Arrival:
    """The rows `[lo, hi)` of a leg that some `predicates` match, as the files `pieces` of the
    matches table say. Where they come `again`, those that are in `joins/<id>` are left out."""

    lo: int
    hi: int
    predicates: tuple[int, ...] = ()
    pieces: tuple[DataFile, ...] = ()
    again: bool = False


NOBODY = Arrival(0, 0)


@dataclass(frozen=True, slots=True)
class CombineUnit:
    """Rows come to legs: `arrivals[k]` to leg k. This unit is about those in `own[k]`. The first
    combination gets the id `first`; without it they are kept as a draft."""

    work: CompositeWork
    arrivals: tuple[Arrival, ...]
    own: tuple[tuple[int, int], ...]
    first: int | None


@dataclass(frozen=True, slots=True)
class EnterUnit:
    """Rows come to a leg that need not be combined."""

    work: CompositeWork
    leg: int
    arrival: Arrival


@dataclass(frozen=True, slots=True)
class StoreUnit:
    """Combinations in a draft that get ids from `first` on."""

    work: CompositeWork
    draft: str
    first: int


@dataclass(frozen=True, slots=True)
class CombinationSlice:
    """Old combinations `[lo, hi)`, in these files, for the predicates in these ranges."""

    work: CompositeWork
    predicates: Ranges
    lo: int
    hi: int
    files: tuple[DataFile, ...]


def combine(job: SparkJob, unit: CombineUnit) -> list[Outcome]:
    """Combines the rows that came with each other and with those that were there."""
    work = unit.work
    reading = LegReading(job, work)
    came = [reading.arrived(leg, arrival) for leg, arrival in enumerate(unit.arrivals)]
    keyed = [key_rows(work.plan.edges, leg, rows) for leg, rows in enumerate(came)]
    own = [_between(rows, *unit.own[leg]) for leg, rows in enumerate(came)]
    turn = LegTurn(work.plan, [], reading.key_columns, work.most, reading.ends)
    found: list[CombinationRows] = []
    try:
        for leg, rows in enumerate(own):
            turn.runs = [
                reading.runs(keyed[other] if other < leg else None)
                for other in range(work.plan.legs)
            ]
            found += turn.combinations(leg, rows)
    except TooManyCombinations:
        return [CompositeOutcome(work.id, sum(len(rows.ids) for rows in own), too_many=True)]
    made = CombinationRows.joined(found, work.plan.legs)
    mine = [
        table.filter(pa.array(np.isin(table.column("row_id").to_numpy(), rows.ids)))
        for table, rows in zip(keyed, own, strict=True)
    ]
    written = [outcome for table in mine for outcome in write_joins(job, work.id, table)]
    fanouts = tuple((side, *counts) for side, counts in turn.fanouts.items())
    rows_in = sum(len(rows.ids) for rows in own)
    if unit.first is None:
        draft = write_draft(job, work.id, made) if len(made) else ""
        return [*written, CompositeOutcome(work.id, rows_in, len(made), fanouts, draft)]
    told = CompositeOutcome(work.id, rows_in, len(made), fanouts)
    return [*written, told, *_store(job, reading, made, unit.first)]


def enter(job: SparkJob, unit: EnterUnit) -> list[Outcome]:
    """Puts rows of a leg into `joins/<id>`."""
    reading = LegReading(job, unit.work)
    rows = reading.arrived(unit.leg, unit.arrival)
    table = key_rows(unit.work.plan.edges, unit.leg, rows)
    return [*write_joins(job, unit.work.id, table), CompositeOutcome(unit.work.id, len(rows.ids))]


def store(job: SparkJob, unit: StoreUnit) -> list[Outcome]:
    """Gives the combinations of a draft their ids, and matches them."""
    path = Path(job.root) / stem_name(unit.work.id) / unit.draft
    with pa.memory_map(str(path)) as source:
        table = pa.ipc.open_file(source).read_all()
    made = combinations_of(table, unit.work.plan.legs)
    written = _store(job, LegReading(job, unit.work), made, unit.first)
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
    name = f"joins/{composite_id}"
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


class LegReading:
    """What a task reads of a composite's legs."""

    def __init__(self, job: SparkJob, work: CompositeWork) -> None:
        self.work = work
        self._root = Path(job.root)
        cache = read_cache(work.budget)
        self._stems = [
            StemRows(self._root / stem_name(leg.stream_id), leg.files, cache) for leg in work.legs
        ]
        self._state = JoinState(self._root / f"joins/{work.id}", work.joins, cache)

    def arrived(self, leg: int, arrival: Arrival) -> LegBatch:
        """The rows that come to a leg."""
        ids = matching_ids(
            self._root / "matches", arrival.pieces, arrival.predicates, arrival.lo, arrival.hi
        )
        if arrival.again:
            side = sides_of(self.work.plan.edges, leg)[0]
            ids = np.setdiff1d(ids, self._state.ids(side), assume_unique=True)
        names, time = sorted(self._key_names[leg]), item_column(leg, "ts")
        there, rows = self.columns(leg, ids, sorted({*names, time, "_position"}))
        ts = rows.column(time).cast(INSTANT).view(pa.int64()).to_numpy()
        positions = rows.column("_position").cast(pa.int64()).to_numpy()
        return LegBatch(there, ts, positions, rows.select(names))

    def runs(self, came: pa.Table | None) -> Runs:
        """The rows by key that there are, and those that came."""
        more = [] if came is None or not came.num_rows else [KeyRun.of(came)]
        return lambda hashes: (*self._state.runs(hashes), *more)

    @property
    def ends(self) -> dict[int, Ends]:
        """The ends of rows of keyed legs."""
        root, cache = self._root / "closures", read_cache(self.work.budget)
        return {
            number: RowEnds(root, leg.closures, leg.closed_by, cache).ends
            for number, leg in enumerate(self.work.legs)
            if leg.closures
        }

    def key_columns(self, leg: int, ids: Int64s) -> tuple[Int64s, pa.RecordBatch]:
        """The columns of a leg's keys, for the rows with some ascending ids that are there."""
        return self.columns(leg, ids, sorted(self._key_names[leg]))

    def columns(self, leg: int, ids: Int64s, names: Sequence[str]) -> tuple[Int64s, pa.RecordBatch]:
        """Columns of a leg's rows, named as predicates over combinations name them."""
        there, rows = self._stems[leg].fetch(ids, [stem_column(name) for name in names])
        return there, pa.RecordBatch.from_arrays(rows.columns, names=list(names))

    @cached_property
    def _key_names(self) -> list[frozenset[str]]:
        edges = self.work.plan.edges
        return [leg_columns(edges, leg) for leg in range(self.work.plan.legs)]

    def view(self, made: CombinationRows, names: Collection[str]) -> tuple[pa.RecordBatch, Int64s]:
        """The named columns of combinations side by side, and the places of those combinations
        whose parts are all there."""
        there, taken = np.ones(len(made), np.bool_), []
        for leg, part in enumerate(made.parts):
            own = sorted({name for name in names if item_of(name) == leg} | {_row_id(leg)})
            ids, places = np.unique(part, return_inverse=True)
            found, rows = self.columns(leg, ids, own)
            left = np.isin(ids, found)
            there &= left[places]
            taken.append((rows, (np.cumsum(left) - 1)[places]))
        chosen = np.flatnonzero(there)
        parts = [rows.take(pa.array(places[chosen])) for rows, places in taken]
        columns = [column for part in parts for column in part.columns]
        shown = [name for part in parts for name in part.schema.names]
        return pa.RecordBatch.from_arrays(columns, names=shown), chosen


def _store(job: SparkJob, reading: LegReading, made: CombinationRows, first: int) -> list[Outcome]:
    """Writes combinations with ids from `first` on, by the time of their latest part, and the
    pieces of the predicates that match them."""
    if not len(made):
        return []
    made = made.take(np.lexsort((made.ts, made.until)))
    ids = np.arange(first, first + len(made))
    bounds = ("_row_id", "_ts", "_until", "_position", *_parts(reading.work.plan.legs))
    written = insert(job, reading.work.id, combinations_table(made, ids), bounds)
    return [*written, *_match(job, reading, made, ids, EVERY)]


def _match(
    job: SparkJob, reading: LegReading, made: CombinationRows, ids: Int64s, predicates: Ranges
) -> list[Outcome]:
    """Matches combinations with the predicates in some ranges; their ids ascend."""
    known = predicates_of(job.root, job.checked)
    known.advance(job.predicates)
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


def _between(rows: LegBatch, low: int, high: int) -> LegBatch:
    """The rows with an id in `[low, high)`."""
    inside = np.flatnonzero((rows.ids >= low) & (rows.ids < high))
    return rows if len(inside) == len(rows.ids) else rows.take(inside)


def _row_id(leg: int) -> str:
    return item_column(leg, "row_id")


def stem_column(name: str) -> str:
    """The column of a stem that a column of combinations shows."""
    own = name.partition(".")[2] or name
    return _SYSTEM.get(own, own)
