"""Equality joins that don't fit a worker: done by Spark over the rows of the legs.

Tasks read each leg with the verified reader (`psoup.engine.spark.scanning`), leave out rows that no
admitted predicate matches, and hash the join keys of the others. Spark joins by these hashes, in
memory, by shuffling or on disk, as it decides. Tasks then check whether join keys are equal and
parts near enough, and write drafts, as those of `worker` do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import from_arrow_schema

from datastem.arrays import Int64s, Mask
from datastem.blocks import BLOCK_BITS
from datastem.codec import INSTANT
from psoup.engine.composites.admitting import matching_ids
from psoup.engine.composites.combining import CombinationRows, JoinPlan
from psoup.engine.composites.lookup.edges import leg_columns, sides_of
from psoup.engine.composites.reading import LegReading, stem_column
from psoup.engine.composites.units import Arrival, CompositeWork
from psoup.engine.composites.worker import wanted, write_draft
from psoup.engine.ledger import stem_name
from psoup.engine.spark.jobs import CompositeOutcome, SparkJob
from psoup.engine.spark.scanning import Batches, Damages, StemScan
from psoup.engine.steps.pieces import runs
from querystem.expressions import ColumnRef, references_of
from querystem.join.factors import conjunction
from querystem.kernel import matches

# A leg of at most this many rows is broadcast. Spark can't know how many rows a scan yields.
BROADCAST_ROWS = 1 << 20
# Rows of all legs per partition of a shuffle: a task takes less than half a second.
_PARTITION_ROWS = 1 << 18
# Combinations of one draft.
_DRAFT_ROWS = 1 << 19
# The part of a task that found more combinations than one task may.
_TOO_MANY = -1

# The outcomes that name drafts, by the first row id of leg 0 in their part.
Drafts = dict[int, list[CompositeOutcome]]


@dataclass(frozen=True, slots=True)
class SparkJoin:
    """The join of all rows that arrive at the legs."""

    job: SparkJob
    work: CompositeWork
    arrivals: tuple[Arrival, ...]

    def find(self, spark: SparkSession, part_rows: int) -> Drafts:
        """Write the combinations to drafts; return the outcomes that name them, by the first row id
        of their part: a part has `part_rows` rows of leg 0. Raise CorruptStore if a file is damaged
        or missing."""
        rows = [arrival.hi - arrival.lo for arrival in self.arrivals]
        parallelism = spark.sparkContext.defaultParallelism
        partitions = max(parallelism, sum(rows) // _PARTITION_ROWS)
        spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
        # Legs are joined one after the other, in the order of the plan for leg 0.
        damages = Damages(spark)
        joined, frame = [0], self._leg(spark, 0, damages)
        for leg in self.work.plan.orders[0]:
            leg_rows = self._leg(spark, leg, damages)
            leg_rows = (
                sql.broadcast(leg_rows) if rows[leg] <= BROADCAST_ROWS else leg_rows.hint("merge")
            )
            frame = frame.join(leg_rows, self._condition(joined, leg))
            joined.append(leg)
        equal = partial(equal_rows, self.work, self.arrivals[0].lo, part_rows)
        combinations = frame.mapInArrow(equal, from_arrow_schema(_parts_schema(self.work)))
        # All combinations of a part in one task, so that there are few drafts.
        parts = -(-rows[0] // part_rows)
        grouped = combinations.repartition(parts, "part").sortWithinPartitions("part")
        write = partial(write_drafts, self.job, self.work)
        written = grouped.mapInArrow(write, "part long, draft string, count long").collect()
        damages.check()
        drafts: Drafts = {}
        for row in written:
            outcome = CompositeOutcome(
                self.work.id, row["count"], (), row["draft"], row["part"] == _TOO_MANY
            )
            first = self.arrivals[0].lo + row["part"] * part_rows
            drafts.setdefault(first, []).append(outcome)
        return drafts

    def _leg(self, spark: SparkSession, leg: int, damages: Damages) -> DataFrame:
        """Return the admitted rows of a leg, with the hashes of their join keys."""
        arrival, stem = self.arrivals[leg], self.work.legs[leg]
        keys = key_names(self.work.plan, leg)
        columns = ("_row_id", "_ts", "_position", *(stem_column(c.name) for c in keys.values()))
        root = str(Path(self.job.root) / stem_name(stem.stream_id))
        optional = self.job.optional(stem.stream_id)
        scan = StemScan(root, stem.files, arrival.lo, arrival.hi, columns, optional)
        sides = sides_of(self.work.plan.edges, leg)
        schema = pa.schema(
            [
                *((f"{name}{leg}", pa.int64()) for name in ("id", "ts", "position")),
                *((name, column.type.arrow) for name, column in keys.items()),
                *((f"hash{side.number}", pa.int64()) for side in sides),
            ]
        )
        hashed = partial(hashed_rows, self.job, self.work.plan, leg, arrival, schema)
        return damages.frame(spark, scan, hashed, schema)

    def _condition(self, joined: Sequence[int], leg: int) -> list[Column]:
        connecting = self.work.plan.connecting(dict.fromkeys(joined), leg)
        # The two sides of an edge differ in their lowest bit.
        conditions = [
            sql.col(f"hash{side.number ^ 1}") == sql.col(f"hash{side.number}")
            for side in connecting
        ]
        if self.work.plan.span is not None:
            for joined_leg in joined:
                apart = sql.abs(sql.col(f"ts{joined_leg}") - sql.col(f"ts{leg}"))
                conditions.append(apart <= self.work.plan.span)
        return conditions


def key_names(plan: JoinPlan, leg: int) -> dict[str, ColumnRef]:
    """Return the columns of a leg's join keys by their names in Spark, which have no dots: Spark
    would read those as fields."""
    references = {
        reference.name: reference
        for edge in plan.edges
        for reference in references_of(edge.condition)
    }
    names = sorted(leg_columns(plan.edges, leg))
    return {f"key{leg}_{place}": references[name] for place, name in enumerate(names)}


def hashed_rows(
    job: SparkJob, plan: JoinPlan, leg: int, arrival: Arrival, schema: pa.Schema, batches: Batches
) -> Batches:
    """Yield the rows of a leg that the arrival's predicates match, with the hash of each side's
    join key. Rows with a join key that can't equal another are left out. Runs in an executor."""
    admitted = AdmittedBlocks(Path(job.root) / "matches", arrival)
    names = list(key_names(plan, leg))
    for batch in batches:
        ids, ts, positions, *keys = batch.filter(
            pa.array(admitted.contain(batch.column("_row_id").to_numpy()))
        ).columns
        hashes, valid = _hashes(plan, leg, pa.RecordBatch.from_arrays(keys, names=names))
        columns = [ids, ts.cast(INSTANT).view(pa.int64()), positions, *keys, *hashes]
        rows = pa.RecordBatch.from_arrays(
            [
                column if column.type == type_ else column.cast(type_)
                for column, type_ in zip(columns, schema.types, strict=True)
            ],
            schema=schema,
        )
        yield rows.filter(pa.array(valid))


def _hashes(plan: JoinPlan, leg: int, keys: pa.RecordBatch) -> tuple[list[pa.Array], Mask]:
    """Return the hashes of a leg's join keys by side, and a mask of the rows whose join keys can
    all equal another."""
    keys = _keys(plan, [leg], keys)
    hashed = [side.key.keys(side.end, keys) for side in sides_of(plan.edges, leg)]
    valid = np.logical_and.reduce([mask for _, mask in hashed])
    return [pa.array(hashes) for hashes, _ in hashed], valid


class AdmittedBlocks:
    """The row ids that an arrival admits, read block by block."""

    def __init__(self, root: Path, arrival: Arrival) -> None:
        self._root = root
        self._arrival = arrival
        self._block, self._ids = -1, np.empty(0, np.int64)

    def contain(self, ids: Int64s) -> Mask:
        """Return a mask of the ids that are admitted."""
        inside = np.zeros(len(ids), np.bool_)
        for first, last in runs(ids >> BLOCK_BITS):
            self._find(int(ids[first]) >> BLOCK_BITS)
            inside[first:last] = np.isin(ids[first:last], self._ids)
        return inside

    def _find(self, block: int) -> None:
        # The rows of a file ascend by id, so it pays to keep only the last block.
        if block != self._block:
            low, high = block << BLOCK_BITS, (block + 1) << BLOCK_BITS
            files = [
                file
                for file in self._arrival.pieces
                if file.low["lo"] < high and file.high["hi"] > low
            ]
            self._ids = matching_ids(self._root, files, self._arrival.predicates, low, high)
            self._block = block


def equal_rows(work: CompositeWork, low: int, part_rows: int, batches: Batches) -> Batches:
    """Yield the combinations of joined rows with equal join keys, with the number of their part. A
    task with too many yields one of part _TOO_MANY instead. Runs in an executor."""
    schema, total = _parts_schema(work), 0
    for batch in batches:
        combinations = _equal_parts(work.plan, batch)
        total += len(combinations)
        if total > work.max_candidates:
            arrays = [np.full(1, _TOO_MANY), *(np.zeros(1, np.int64) for _ in schema.names[1:])]
            yield pa.RecordBatch.from_arrays(list(map(pa.array, arrays)), schema=schema)
            return
        parts = (combinations.parts[0] - low) // part_rows
        times = (combinations.ts, combinations.until, combinations.positions)
        arrays = [parts, *times, *combinations.parts]
        yield pa.RecordBatch.from_arrays(list(map(pa.array, arrays)), schema=schema)


def write_drafts(job: SparkJob, work: CompositeWork, batches: Batches) -> Batches:
    """Write combinations, sorted by the number of their part, to drafts of one part each; yield the
    part, the name and the count of each. Runs in an executor."""
    pending: list[CombinationRows] = []
    part, count = _TOO_MANY, 0
    for batch in batches:
        numbers = batch.column("part").to_numpy()
        _, ts, until, positions, *ids = (column.to_numpy() for column in batch.columns)
        rows = CombinationRows(tuple(ids), ts, until, positions)
        for first, last in runs(numbers):
            number = int(numbers[first])
            if number == _TOO_MANY:
                yield _row(number, "", 0)
                return
            if pending and (number != part or count >= _DRAFT_ROWS):
                yield _write(job, work, part, pending)
                pending, count = [], 0
            pending.append(rows.take(slice(first, last)))
            part, count = number, count + last - first
    if pending:
        yield _write(job, work, part, pending)


def _write(
    job: SparkJob, work: CompositeWork, part: int, groups: list[CombinationRows]
) -> pa.RecordBatch:
    combinations = CombinationRows.joined(groups, work.plan.legs)
    combinations = wanted(job, LegReading(job, work), combinations)
    draft = write_draft(job, work.id, combinations) if len(combinations) else ""
    return _row(part, draft, len(combinations))


def _row(part: int, draft: str, count: int) -> pa.RecordBatch:
    numbers = [pa.array([number], pa.int64()) for number in (part, count)]
    return pa.RecordBatch.from_arrays(
        [numbers[0], pa.array([draft]), numbers[1]], names=["part", "draft", "count"]
    )


def _parts_schema(work: CompositeWork) -> pa.Schema:
    """Return the columns of combinations between tasks: the number of their part, their times and
    position, and the row id of each leg."""
    names = ["part", "ts", "until", "position", *(f"id{leg}" for leg in range(work.plan.legs))]
    return pa.schema([(name, pa.int64()) for name in names])


def _equal_parts(plan: JoinPlan, batch: pa.RecordBatch) -> CombinationRows:
    """Return the combinations of a batch of joined rows whose join keys are equal, not just their
    hashes."""
    legs = range(plan.legs)
    keys = _keys(plan, legs, batch)
    equal = matches(conjunction([edge.condition for edge in plan.edges]), keys)
    # Arrays of shape (legs, combinations).
    ts, positions, parts = (
        np.stack([batch.column(f"{name}{leg}").to_numpy() for leg in legs])
        for name in ("ts", "position", "id")
    )
    first, last = ts.min(axis=0), ts.max(axis=0)
    if plan.span is not None:
        equal = equal & (last - first <= plan.span)
    combinations = CombinationRows(tuple(parts), first, last, positions.max(axis=0))
    return combinations.take(np.flatnonzero(equal))


def _keys(plan: JoinPlan, legs: Sequence[int], batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the columns of join keys in a batch from Spark, with the names and types of the
    edges."""
    named = [(name, column) for leg in legs for name, column in key_names(plan, leg).items()]
    columns = [batch.column(name).cast(column.type.arrow) for name, column in named]
    return pa.RecordBatch.from_arrays(columns, names=[column.name for _, column in named])
