"""Runs: rows of legs sorted by their join key, as the table `joins/<id>` stores them.

A row occurs once for each side of its leg. In a run the rows of a side are sorted by bucket, then
by key, then by ts. So rows with one join key and within a span of time are neighbours.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s, Mask
from datastem.codec import INSTANT
from psoup.engine.composites.lookup.edges import KeyEdge, LinkSide, sides_of
from psoup.engine.composites.lookup.probes import SideRows
from psoup.engine.steps.pieces import runs as equal_runs
from psoup.store.layout import JOINS

_COLUMNS = ("bucket", "key", "row_id", "ts", "position")


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
    """Return rows of a leg as rows of `joins/<id>`, one for each of its sides by which they can
    have a partner. A row that can have none by some edge is in no combination, and left out."""
    if not len(rows.ids):
        return JOINS.empty_table()
    sides = sides_of(edges, leg)
    keyed = [side.key.keys(side.end, rows.columns) for side in sides]
    # Every edge needs a partner, by any of its links.
    by_edge: dict[int, Mask] = {}
    for side, (_, valid) in zip(sides, keyed, strict=True):
        number = side.edge.first_side
        by_edge[number] = by_edge[number] | valid if number in by_edge else valid
    complete = np.logical_and.reduce(list(by_edge.values()))
    parts = [
        _table(side, keys, rows, complete & valid)
        for side, (keys, valid) in zip(sides, keyed, strict=True)
    ]
    return sorted_rows(pa.concat_tables(parts))


def _table(side: LinkSide, keys: Int64s, rows: LegBatch, chosen: Mask) -> pa.Table:
    keys, ts = keys[chosen], rows.ts[chosen]
    columns = {
        "bucket": pa.array(side.key.buckets(keys, ts)),
        "side": pa.array(np.full(len(keys), side.number, np.int32)),
        "key": pa.array(keys),
        "row_id": pa.array(rows.ids[chosen]),
        "ts": pa.array(ts).view(INSTANT),
        "position": pa.array(rows.positions[chosen]),
    }
    return pa.table(columns)


def sorted_rows(table: pa.Table) -> pa.Table:
    """Return rows of `joins/<id>` sorted by (bucket, side, key, ts, row id)."""
    # The last key of `np.lexsort` is the primary one.
    names = ("row_id", "ts", "key", "side", "bucket")
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
