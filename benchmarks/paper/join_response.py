"""Response time of joins of two tables, by window and by factors: figure 8, and table 1 for joins.

An answer is found (which pairs of rows) and then taken (the values of both, copied out). The upkeep
of what a strategy keeps is not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from benchmarks.paper.base import columns_of
from benchmarks.paper.complete import Rings
from benchmarks.paper.join_workload import JoinQuery, JoinWorkload, beside
from benchmarks.paper.nomat import ColumnIndex
from benchmarks.paper.partial import STREAM_ID, remembered
from benchmarks.paper.response import Response, milliseconds_each
from benchmarks.paper.workload import COLUMNS, Array, Factor
from datastem.blocks import BLOCK_BITS
from psoup.engine.steps import pieces
from querystem.index import QueryStem
from querystem.join import join
from querystem.sources import item_column

STRATEGIES = ("NoMat", "joined at invoke", "PSoup-P", "PSoup-C")
# More than the longest window: what is kept is kept for any.
STREAM_ROWS = 768

Pairs = tuple[Array, Array]
FindPairs = Callable[[int], Pairs]


def join_responses(workload: JoinWorkload, windows: Sequence[int], rounds: int) -> list[Response]:
    """Return the times for each window; raise AssertionError if the strategies' answers differ."""
    stored = StoredPairs(workload, all_pairs(workload))
    return [_response(workload, stored, window, rounds) for window in windows]


def selective_responses(
    workload: JoinWorkload, windows: Sequence[int], rounds: int
) -> tuple[list[Response], int]:
    """Return the same for queries with selective local predicates, of whose pairs only those that
    some query wants are stored; and how many pairs that are."""
    pairs = wanted_pairs(workload)
    stored = StoredPairs(workload, pairs)
    return [_response(workload, stored, window, rounds) for window in windows], len(pairs[0])


def _response(workload: JoinWorkload, stored: StoredPairs, window: int, rounds: int) -> Response:
    queries, low = workload.queries, workload.rows[0].num_rows - window
    nomat, invoked = NestedLoops(workload, low), JoinedAtInvoke(workload, low)
    complete = KeptPairs(stored, len(queries), low)
    finds: dict[str, FindPairs] = {
        "NoMat": lambda number: nomat.find(queries[number]),
        "joined at invoke": lambda number: invoked.find(queries[number]),
        "PSoup-P": lambda number: stored.find(number, low),
        "PSoup-C": complete.find,
    }
    pairs = _check(finds, len(queries))
    find_ms = dict.fromkeys(finds, float("inf"))
    take_ms = dict(find_ms)
    for _ in range(rounds):
        for name, find in finds.items():
            find_ms[name] = min(find_ms[name], milliseconds_each(find, len(queries)))
            take_ms[name] = min(
                take_ms[name], milliseconds_each(_taking(find, workload), len(queries))
            )
    return Response(window, pairs, find_ms, take_ms)


def _taking(find: FindPairs, workload: JoinWorkload) -> Callable[[int], object]:
    return lambda number: beside(workload.rows, find(number))


def _check(finds: dict[str, FindPairs], queries: int) -> float:
    """Asserts that all find the same pairs for every query; gives their number on average."""
    total = 0
    for number in range(queries):
        first, *answers = (np.sort(_packed(find(number))) for find in finds.values())
        assert all(np.array_equal(first, answer) for answer in answers), f"query {number}"
        total += len(first)
    return total / queries


def _packed(pairs: Pairs) -> Array:
    return np.asarray((pairs[0].astype(np.int64) << 32) | pairs[1])


# ---- the strategies


class NestedLoops:
    """NoMat: the rows of r that its factors leave look up their partners in an index of s.

    The rows of r do so all at once, by binary search in the sorted column of the window's rows,
    from which s's own factors have taken theirs.
    """

    def __init__(self, workload: JoinWorkload, low: int) -> None:
        self._low = low
        self._columns = [columns_of(rows.slice(low)) for rows in workload.rows]
        self._indexes = {name: ColumnIndex(values) for name, values in self._columns[1].items()}

    def find(self, query: JoinQuery) -> Pairs:
        """The numbers of the rows of each table, pair by pair."""
        outer, inner = (
            _mask(factors, columns)
            for factors, columns in zip(query.local, self._columns, strict=True)
        )
        rows = np.flatnonzero(outer)
        order = self._indexes[query.right].places
        order = order[inner[order]]
        values = self._columns[1][query.right][order]
        sought = self._columns[0][query.left][rows] - query.plus
        if query.above:
            last = np.searchsorted(values, sought, "left")
            first = np.zeros_like(last)
            if query.band is not None:
                first = np.searchsorted(values, sought - query.band, "left")
        else:
            first = np.searchsorted(values, sought, "right")
            last = np.full_like(first, len(values))
        counts = last - first
        offsets = np.repeat(first - (np.cumsum(counts) - counts), counts)
        partners = order[offsets + np.arange(len(offsets))]
        return np.repeat(rows, counts) + self._low, partners.astype(np.int64) + self._low


def _mask(factors: Sequence[Factor], columns: dict[str, Array]) -> Array:
    mask = np.ones(len(next(iter(columns.values()))), np.bool_)
    for factor in factors:
        mask &= factor.holds(columns[factor.column])
    return mask


class JoinedAtInvoke:
    """NoMat once more, by the join that the product has for what the engine does not find."""

    def __init__(self, workload: JoinWorkload, low: int) -> None:
        self._low = low
        self._items = [
            rows.slice(low).rename_columns([item_column(number, name) for name in COLUMNS])
            for number, rows in enumerate(workload.rows)
        ]

    def find(self, query: JoinQuery) -> Pairs:
        first, second = join(self._items, query.where, 1 << 40).places
        return first + self._low, second + self._low


def all_pairs(workload: JoinWorkload) -> Pairs:
    """Return every pair of the stored rows."""
    count = workload.rows[0].num_rows
    numbers = np.arange(count * count)
    return numbers // count, numbers % count


def wanted_pairs(workload: JoinWorkload) -> Pairs:
    """Return the distinct pairs of stored rows that some query wants."""
    joined = JoinedAtInvoke(workload, 0)
    packed = [_packed(joined.find(query)) for query in workload.queries]
    distinct = np.unique(np.concatenate(packed))
    return distinct >> 32, distinct & 0xFFFFFFFF


class StoredPairs:
    """PSoup-P: pairs are numbered as they come, a query has bitmaps of its own among them, and
    the window is applied to those: as servers do with the combinations of a composite."""

    def __init__(self, workload: JoinWorkload, pairs: Pairs) -> None:
        first, second = pairs
        order = np.argsort(np.maximum(first, second), kind="stable")
        self.parts = first[order], second[order]
        self._earliest = np.minimum(*self.parts)
        self._latest = np.maximum(*self.parts)
        stem = QueryStem()
        for number, query in enumerate(workload.queries):
            stem.insert(number, query.where)
        matches = pieces.in_order(self._matches(workload, stem))
        self._known = remembered(matches, len(workload.queries), len(first))

    def _matches(self, workload: JoinWorkload, stem: QueryStem) -> list[pa.Table]:
        tables = list[pa.Table]()
        for start in range(0, len(self._earliest), 1 << BLOCK_BITS):
            stop = min(start + (1 << BLOCK_BITS), len(self._earliest))
            places = self.parts[0][start:stop], self.parts[1][start:stop]
            view = beside(workload.rows, places).to_batches()[0]
            tables += pieces.probe_block(stem, STREAM_ID, np.arange(start, stop), view)
        return tables

    def find(self, number: int, low: int) -> Pairs:
        """The pairs of rows that are in the window from `low` on, both of them."""
        chosen = self.matching(number, low)
        return self.parts[0][chosen], self.parts[1][chosen]

    def matching(self, number: int, low: int) -> Array:
        """The numbers of these pairs, ascending."""
        high = len(self._earliest)
        first = int(np.searchsorted(self._latest, low)) >> BLOCK_BITS
        blocks = range(first, ((high - 1) >> BLOCK_BITS) + 1)
        ids = np.concatenate([self._known.probe(number, b).between(0, high) for b in blocks])
        return np.asarray(ids[self._earliest[ids] >= low])


class KeptPairs:
    """PSoup-C: the pairs of every answer are there, row number by row number."""

    def __init__(self, stored: StoredPairs, queries: int, low: int) -> None:
        self._rings = Rings(queries)
        for number in range(queries):
            pairs = _packed(stored.find(number, low))
            self._rings.append(np.array([number]), np.array([len(pairs)]), pairs)

    def find(self, number: int) -> Pairs:
        packed = self._rings.get(number)
        return packed >> 32, packed & 0xFFFFFFFF
