"""The part of a task that reads a composite's legs: arriving rows, stored rows by their join keys,
and columns of combinations side by side."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from datastem.codec import INSTANT
from psoup.engine.composites.admitting import matching_ids
from psoup.engine.composites.combining import CombinationRows, Ends, Runs
from psoup.engine.composites.lookup.edges import leg_columns, sides_of
from psoup.engine.composites.lookup.probes import SideRows
from psoup.engine.composites.rows import JoinState, RowEnds, StemRows, read_cache
from psoup.engine.composites.runs import KeyRun, LegBatch
from psoup.engine.composites.units import Arrival, CompositeWork
from psoup.engine.ledger import joins_name, stem_name
from psoup.engine.spark.jobs import SparkJob
from psoup.store.delta.files import DataFile
from psoup.store.delta.reading import reader, row_groups
from psoup.store.layout import combination_part
from querystem.join.factors import item_of
from querystem.sources import item_column

# The columns that every row has: their name in a query, and in the stem.
_SYSTEM_COLUMNS = {"ts": "_ts", "row_id": "_row_id"}


class LegReading:
    """The reader of a composite's legs in a task."""

    def __init__(self, job: SparkJob, work: CompositeWork) -> None:
        self.work = work
        self._root = Path(job.root)
        cache = read_cache(work.budget)
        self._stems = [
            StemRows(
                self._root / stem_name(leg.stream_id),
                leg.files,
                cache,
                job.optional(leg.stream_id),
            )
            for leg in work.legs
        ]
        self._state = JoinState(self._root / joins_name(work.id), work.joins, cache)

    def arrived(self, leg: int, arrival: Arrival) -> LegBatch:
        """Return the rows that arrive at a leg."""
        ids = matching_ids(
            self._root / "matches", arrival.pieces, arrival.predicates, arrival.lo, arrival.hi
        )
        if arrival.again:
            # A row may be in some sides of its leg only: by each of them it has been joined.
            ids = np.setdiff1d(ids, self._state.ids(self._sides(leg)), assume_unique=True)
        names, time = sorted(self._key_names[leg]), item_column(leg, "ts")
        existing_ids, rows = self.columns(leg, ids, sorted({*names, time, "_position"}))
        ts = rows.column(time).cast(INSTANT).view(pa.int64()).to_numpy()
        positions = rows.column("_position").cast(pa.int64()).to_numpy()
        return LegBatch(existing_ids, ts, positions, rows.select(names))

    def entered_rows(self, leg: int, entered: JoinState, buckets: tuple[int, int]) -> LegBatch:
        """Return the rows of a leg that have entered by buckets in `[low, high)` of the side by
        which they find their first partner."""
        side = self.work.plan.bucket_side(leg)
        runs = (run.sides[side] for run in entered.runs(np.arange(*buckets)) if side in run.sides)
        rows = SideRows.joined([run.in_buckets(*buckets) for run in runs])
        order = np.argsort(rows.ids)
        ids, columns = self.key_columns(leg, rows.ids[order])
        assert len(ids) == len(order), "a step's rows are in the stem"
        return LegBatch(ids, rows.ts[order], rows.positions[order], columns)

    def stored_parts(
        self, files: Sequence[DataFile], leg: int, low: int, high: int
    ) -> list[Int64s]:
        """Return the row ids, by leg, of the stored combinations in these files whose row of a leg
        has an id in `[low, high)`."""
        names = [combination_part(number) for number in range(self.work.plan.legs)]
        root, tables = self._root / stem_name(self.work.id), list[pa.Table]()
        for file in files:
            source = reader(root, file)
            groups = row_groups(source.metadata, names[leg], low, high)
            if groups:
                tables.append(source.row_groups(groups, names))
        if not tables:
            return [np.empty(0, np.int64)] * len(names)
        parts = [pa.concat_tables(tables).column(name).to_numpy() for name in names]
        inside = (parts[leg] >= low) & (parts[leg] < high)
        return [part[inside] for part in parts]

    def runs(self, arrived: pa.Table | None) -> Runs:
        """Return the stored rows by join key, followed by those that arrived, if given."""
        more = [] if arrived is None or not arrived.num_rows else [KeyRun.of(arrived)]
        return lambda buckets: (*self._state.runs(buckets), *more)

    def entered(self, files: Sequence[DataFile]) -> JoinState:
        """Return the rows of files of `joins/<id>` that no epoch names yet."""
        root = self._root / joins_name(self.work.id)
        return JoinState(root, files, read_cache(self.work.budget))

    def runs_with(self, entered: JoinState) -> Runs:
        """Return the stored rows by join key, followed by those that have entered."""
        return lambda buckets: (*self._state.runs(buckets), *entered.runs(buckets))

    def runs_within(self, leg: int, low: int, high: int) -> Runs:
        """Return the stored rows by join key of which those of a leg have ids in `[low, high)`."""
        sides = self._sides(leg)
        return lambda buckets: (
            run.within(sides, low, high) for run in self._state.runs(buckets, least_id=low)
        )

    @property
    def ends(self) -> dict[int, Ends]:
        """The functions that return the ends of rows, by keyed leg."""
        root, cache = self._root / "closures", read_cache(self.work.budget)
        return {
            number: RowEnds(root, leg.closures, leg.closed_by, cache).ends
            for number, leg in enumerate(self.work.legs)
            if leg.closures
        }

    def key_columns(self, leg: int, ids: Int64s) -> tuple[Int64s, pa.RecordBatch]:
        """Return the columns of a leg's join keys for rows with ascending ids, and the ids that
        exist."""
        return self.columns(leg, ids, sorted(self._key_names[leg]))

    def columns(self, leg: int, ids: Int64s, names: Sequence[str]) -> tuple[Int64s, pa.RecordBatch]:
        """Return columns of a leg's rows, named as predicates over combinations name them, and the
        ids of the rows that exist."""
        existing_ids, rows = self._stems[leg].fetch(ids, [stem_column(name) for name in names])
        return existing_ids, pa.RecordBatch.from_arrays(rows.columns, names=list(names))

    def _sides(self, leg: int) -> frozenset[int]:
        """Return the numbers of a leg's sides."""
        return frozenset(side.number for side in sides_of(self.work.plan.edges, leg))

    @cached_property
    def _key_names(self) -> list[frozenset[str]]:
        edges = self.work.plan.edges
        return [leg_columns(edges, leg) for leg in range(self.work.plan.legs)]

    def view(
        self, combinations: CombinationRows, names: Collection[str]
    ) -> tuple[pa.RecordBatch, Int64s]:
        """Return the named columns of combinations side by side, and the places of the combinations
        whose parts all exist; the columns have only these."""
        # Per combination: whether all parts exist. Per leg: its rows, and the place of each part.
        complete, leg_rows = np.ones(len(combinations), np.bool_), []
        for leg, part in enumerate(combinations.parts):
            leg_names = sorted({name for name in names if item_of(name) == leg} | {_row_id(leg)})
            ids, places = np.unique(part, return_inverse=True)
            existing_ids, rows = self.columns(leg, ids, leg_names)
            exists = np.isin(ids, existing_ids)
            complete &= exists[places]
            leg_rows.append((rows, (np.cumsum(exists) - 1)[places]))
        chosen = np.flatnonzero(complete)
        parts = [rows.take(pa.array(places[chosen])) for rows, places in leg_rows]
        columns = [column for part in parts for column in part.columns]
        column_names = [name for part in parts for name in part.schema.names]
        return pa.RecordBatch.from_arrays(columns, names=column_names), chosen


def _row_id(leg: int) -> str:
    return item_column(leg, "row_id")


def stem_column(name: str) -> str:
    """Return the column of a stem that a column of combinations shows."""
    column = name.partition(".")[2] or name
    return _SYSTEM_COLUMNS.get(column, column)
