"""Runs: rows of legs sorted by the hash of their join key, as the table `joins/<id>` stores them.

A row occurs once for each side of its leg. In a run the rows of a side are sorted by hash, then by
ts. So rows with one join key and within a span of time are neighbours.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s, Mask
from datastem.codec import INSTANT
from psoup.engine.composites.keys import KeyEdge, buckets, sides_of
from psoup.engine.pieces import runs as equal_runs
from psoup.store.layout import JOINS

_COLUMNS = ("key_hash", "row_id", "ts", "position")


@dataclass(frozen=True, slots=True)
class LegBatch:
    """Rows of one leg: their ids, ts, positions, and `columns` with the names that edges use."""

    ids: Int64s
    ts: Int64s
    positions: Int64s
    columns: pa.RecordBatch

    def take(self, places: Int64s) -> LegBatch:
        columns = self.columns.take(pa.array(places))
        return LegBatch(self.ids[places], self.ts[places], self.positions[places], columns)


@dataclass(frozen=True, slots=True)
class SideMatches:
    """The matches of probes in one side of a run: probe n matches the rows `[starts[n], starts[n] +
    counts[n])` of it."""

    rows: SideRows
    starts: Int64s
    counts: Int64s

    def pairs(self, begin: int, end: int) -> tuple[Int64s, Int64s]:
        """Return the pairs of the probes `[begin, end)`: the number of the probe and the place of
        the row, for each pair."""
        counts = self.counts[begin:end]
        ends = np.cumsum(counts)
        # Pair k of a probe is the row at its start + k: shift the running pair number to that.
        shifts = np.repeat(self.starts[begin:end] - (ends - counts), counts)
        return np.repeat(np.arange(begin, end), counts), np.arange(len(shifts)) + shifts


@dataclass(frozen=True, slots=True)
class SideRows:
    """The rows of one side in a run, sorted by (hash, ts)."""

    hashes: Int64s
    ids: Int64s
    ts: Int64s
    positions: Int64s

    def within(self, low: int, high: int) -> SideRows:
        """Return the rows with an id in `[low, high)`."""
        inside = (self.ids >= low) & (self.ids < high)
        arrays = (self.hashes, self.ids, self.ts, self.positions)
        return SideRows(*(values[inside] for values in arrays))

    def find(self, hashes: Int64s, lows: Int64s, highs: Int64s, span: int | None) -> SideMatches:
        """Return the rows with each hash. Probe n has parts whose ts are in `[lows[n], highs[n]]`;
        rows that are further than `span` from one of them are left out."""
        starts = np.searchsorted(self.hashes, hashes)
        ends = np.searchsorted(self.hashes, hashes, "right")
        if span is not None:
            # A row is near enough to all parts if its ts is in [high - span, low + span].
            starts = _first_from(self.ts, starts, ends, highs - span)
            ends = _first_from(self.ts, starts, ends, lows + span + 1)
        return SideMatches(self, starts, ends - starts)


def _first_from(values: Int64s, begins: Int64s, ends: Int64s, limits: Int64s) -> Int64s:
    """Return the first place in each `[begin, end)` whose value is not below its limit, or `end`.
    Values must ascend within each range."""
    # A binary search in all ranges at once.
    low, high = begins.copy(), ends.copy()
    searching = np.flatnonzero(low < high)
    while len(searching):
        middle = (low[searching] + high[searching]) >> 1
        below = values[middle] < limits[searching]
        low[searching] = np.where(below, middle + 1, low[searching])
        high[searching] = np.where(below, high[searching], middle)
        searching = searching[low[searching] < high[searching]]
    return low


@dataclass(frozen=True, slots=True)
class KeyRun:
    """A run in memory: its rows by side."""

    sides: dict[int, SideRows]
    nbytes: int

    @classmethod
    def of(cls, table: pa.Table) -> KeyRun:
        """Return the run of rows of `joins/<id>`, which must be sorted as by `sorted_rows`."""
        side = table.column("side").to_numpy()
        arrays = [table.column(name).cast(pa.int64()).to_numpy() for name in _COLUMNS]
        # Rows are sorted by bucket first, so the rows of a side are spread over the table.
        places = {int(number): np.flatnonzero(side == number) for number in np.unique(side)}
        sides = {number: SideRows(*(a[rows] for a in arrays)) for number, rows in places.items()}
        return cls(sides, 8 * len(_COLUMNS) * table.num_rows)

    def within(self, sides: Collection[int], low: int, high: int) -> KeyRun:
        """Return the run with only the rows of these sides that have ids in `[low, high)`."""
        chosen = {side: self.sides[side].within(low, high) for side in sides if side in self.sides}
        rows = sum(len(side_rows.ids) for side_rows in chosen.values())
        return KeyRun(chosen, 8 * len(_COLUMNS) * rows)


def key_rows(edges: Sequence[KeyEdge], leg: int, rows: LegBatch) -> pa.Table:
    """Return rows of a leg as rows of `joins/<id>`, one for each of its sides. A row with a join
    key that can't equal another is in no combination, and left out."""
    if not len(rows.ids):
        return JOINS.empty_table()
    sides = sides_of(edges, leg)
    hashed = [edges[side >> 1].hashes(side & 1, rows.columns) for side in sides]
    valid = np.logical_and.reduce([mask for _, mask in hashed])
    parts = [
        _table(side, hashes, rows, valid) for side, (hashes, _) in zip(sides, hashed, strict=True)
    ]
    return sorted_rows(pa.concat_tables(parts))


def _table(side: int, hashes: Int64s, rows: LegBatch, chosen: Mask) -> pa.Table:
    hashes = hashes[chosen]
    columns = {
        "bucket": pa.array(buckets(hashes).astype(np.int32)),
        "side": pa.array(np.full(len(hashes), side, np.int32)),
        "key_hash": pa.array(hashes),
        "row_id": pa.array(rows.ids[chosen]),
        "ts": pa.array(rows.ts[chosen]).view(INSTANT),
        "position": pa.array(rows.positions[chosen]),
    }
    return pa.table(columns)


def sorted_rows(table: pa.Table) -> pa.Table:
    """Return rows of `joins/<id>` sorted by (bucket, side, hash, ts, row id)."""
    # The last key of `np.lexsort` is the primary one.
    names = ("row_id", "ts", "key_hash", "side", "bucket")
    keys = [table.column(name).cast(pa.int64()).to_numpy() for name in names]
    return table.take(pa.array(np.lexsort(keys)))


def rows_from(table: pa.Table, floors: Sequence[int]) -> pa.Table:
    """Return rows of `joins/<id>` without those below the floor of their side, if floors are
    given."""
    if not floors:
        return table
    # One floor per side, looked up by the side of each row.
    least = np.array(floors, np.int64)[table.column("side").to_numpy()]
    return table.filter(pa.array(table.column("row_id").to_numpy() >= least))


def bucket_edges(table: pa.Table, least: int) -> list[int]:
    """Return the places of sorted rows at which row groups end: at edges of buckets, at least
    `least` rows apart, so that a reader of a bucket reads few others."""
    edges, last = [], 0
    for first, _ in equal_runs(table.column("bucket").to_numpy()):
        if first - last >= least:
            edges.append(first)
            last = first
    return edges


def pieces_of(counts: Int64s, limit: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of probes with at most `limit` pairs each, or a single probe with more."""
    ends = np.cumsum(counts)
    begin = 0
    while begin < len(counts):
        done = ends[begin - 1] if begin else 0
        end = max(begin + 1, int(ends.searchsorted(done + limit, "right")))
        yield begin, end
        begin = end
