"""Joins that don't fit a worker: done by Spark over the Delta tables of the legs.

Each leg is read at its newest version, limited to row ids, and passes through Python once: rows
that no admitted predicate matches are left out, and the others get the hashes of their join keys.
Spark joins by these hashes, in memory, by shuffling or on disk, as it decides. Python then checks
whether join keys are equal and parts near enough, and writes drafts, as the tasks of `worker` do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql

from datastem.arrays import Int64s, Mask
from datastem.blocks import BLOCK_BITS
from psoup.engine.composites.admitting import matching_ids
from psoup.engine.composites.combining import CombinationRows, JoinPlan
from psoup.engine.composites.keys import leg_columns, sides_of
from psoup.engine.composites.reading import stem_column
from psoup.engine.composites.units import Arrival, CompositeWork
from psoup.engine.composites.worker import write_draft
from psoup.engine.jobs import CompositeOutcome, SparkJob
from psoup.engine.ledger import stem_name
from psoup.engine.pieces import runs
from querystem.expressions import ColumnRef, references_of
from querystem.join.factors import conjunction
from querystem.kernel import matches

# A leg of at most this many rows is broadcast. File sizes mislead Spark: stems are packed.
BROADCAST_ROWS = 1 << 20
# Rows of all legs per partition of a shuffle: a task takes less than half a second.
_PARTITION_ROWS = 1 << 18
# Combinations of one draft.
_DRAFT_ROWS = 1 << 19

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class SparkJoin:
    """The join of all rows that arrive at the legs."""

    job: SparkJob
    work: CompositeWork
    arrivals: tuple[Arrival, ...]

    def find(self, spark: SparkSession) -> list[CompositeOutcome]:
        """Write the combinations to drafts; return the outcomes that name them."""
        rows = [arrival.hi - arrival.lo for arrival in self.arrivals]
        parallelism = spark.sparkContext.defaultParallelism
        partitions = max(parallelism, sum(rows) // _PARTITION_ROWS)
        spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
        # Legs are joined one after the other, in the order of the plan for leg 0.
        joined, frame = [0], self._leg(spark, 0)
        for leg in self.work.plan.orders[0]:
            leg_rows = self._leg(spark, leg)
            leg_rows = (
                sql.broadcast(leg_rows) if rows[leg] <= BROADCAST_ROWS else leg_rows.hint("merge")
            )
            frame = frame.join(leg_rows, self._condition(joined, leg))
            joined.append(leg)
        drafts = partial(write_drafts, self.job, self.work)
        written = frame.mapInArrow(drafts, "draft string, count long").collect()
        return [
            CompositeOutcome(self.work.id, row["count"], (), row["draft"], row["count"] < 0)
            for row in written
        ]

    def _leg(self, spark: SparkSession, leg: int) -> DataFrame:
        """Return the admitted rows of a leg, with the hashes of their join keys."""
        arrival = self.arrivals[leg]
        root = Path(self.job.root) / stem_name(self.work.legs[leg].stream_id)
        stem = spark.read.format("delta").load(str(root))
        inside = (stem["_row_id"] >= arrival.lo) & (stem["_row_id"] < arrival.hi)
        columns = [
            stem[stem_column(column.name)].alias(name)
            for name, column in key_names(self.work.plan, leg).items()
        ]
        read = stem.where(inside).select(
            stem["_row_id"].alias(f"id{leg}"),
            sql.unix_micros(stem["_ts"]).alias(f"ts{leg}"),
            stem["_position"].alias(f"position{leg}"),
            *columns,
        )
        hashes = ", ".join(f"hash{side} long" for side in sides_of(self.work.plan.edges, leg))
        fields = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in read.schema)
        keyed = partial(hashed_rows, self.job, self.work.plan, leg, arrival)
        return read.mapInArrow(keyed, f"{fields}, {hashes}")

    def _condition(self, joined: Sequence[int], leg: int) -> list[Column]:
        connecting = self.work.plan.connecting(dict.fromkeys(joined), leg)
        # The two sides of an edge differ in their lowest bit.
        conditions = [
            sql.col(f"hash{side ^ 1}") == sql.col(f"hash{side}") for _, side, _ in connecting
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
        for pair in edge.equalities
        for side in pair
        for reference in references_of(side)
    }
    names = sorted(leg_columns(plan.edges, leg))
    return {f"key{leg}_{place}": references[name] for place, name in enumerate(names)}


def hashed_rows(
    job: SparkJob, plan: JoinPlan, leg: int, arrival: Arrival, batches: Batches
) -> Batches:
    """Yield the rows of a leg that the arrival's predicates match, with the hash of each side's
    join key. Rows with a join key that can't equal another are left out. Runs in an executor."""
    admitted = AdmittedBlocks(Path(job.root) / "matches", arrival)
    for batch in batches:
        batch = batch.filter(pa.array(admitted.contain(batch.column(f"id{leg}").to_numpy())))
        keys = _keys(plan, [leg], batch)
        valid, hashes = np.ones(batch.num_rows, np.bool_), []
        for side in sides_of(plan.edges, leg):
            hashed, side_valid = plan.edges[side >> 1].hashes(side & 1, keys)
            valid &= side_valid
            hashes.append((f"hash{side}", pa.array(hashed)))
        columns = [*batch.columns, *(column for _, column in hashes)]
        names = [*batch.schema.names, *(name for name, _ in hashes)]
        yield pa.RecordBatch.from_arrays(columns, names=names).filter(pa.array(valid))


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


def write_drafts(job: SparkJob, work: CompositeWork, batches: Batches) -> Batches:
    """Write the combinations of joined rows with equal join keys to drafts; yield their names and
    counts. A task with too many yields a count below 0. Runs in an executor."""
    pending: list[CombinationRows] = []
    total = 0
    for batch in batches:
        pending.append(_equal_parts(work.plan, batch))
        total += len(pending[-1])
        if total > work.max_candidates:
            yield _row("", -1)
            return
        if sum(map(len, pending)) >= _DRAFT_ROWS:
            yield _write(job, work, pending)
            pending = []
    if any(map(len, pending)):
        yield _write(job, work, pending)


def _write(job: SparkJob, work: CompositeWork, groups: list[CombinationRows]) -> pa.RecordBatch:
    combinations = CombinationRows.joined(groups, work.plan.legs)
    return _row(write_draft(job, work.id, combinations), len(combinations))


def _row(draft: str, count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"draft": [draft], "count": pa.array([count], pa.int64())})


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
