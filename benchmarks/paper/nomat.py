"""NoMat: nothing is kept but the data, its indexes and the queries; an invoke runs its query.

No straw man. Each column has an index of exactly the rows in the window, ordered by value and then
by row, whose upkeep is not counted. The most selective factor goes first, by exact counts; where
even that one leaves much of the window, a scan of the columns is faster, and is what is done.
"""

from __future__ import annotations

import numpy as np

from benchmarks.paper.base import Base, columns_of
from benchmarks.paper.workload import Array, Factor, Query
from datastem.arrays import Int64s
from results.window import RowWindow

# Of the window: with more rows than this an index costs more than a scan. Over intervals 1/16 and
# 1/8 are the fastest of 1/128 to 1, twice as fast as 1/2; over equalities it does not matter.
SCAN_SHARE = 1 / 8


class NoMat:
    """For windows of up to 65,536 rows."""

    def __init__(self, base: Base, window: RowWindow) -> None:
        self._lo, hi = base.bounds(window)
        self._size = hi - self._lo
        self.columns = columns_of(base.rows.slice(self._lo, self._size))
        self._indexes = {name: ColumnIndex(values) for name, values in self.columns.items()}

    @property
    def index_bytes(self) -> int:
        return sum(index.nbytes for index in self._indexes.values())

    def find(self, query: Query) -> Int64s:
        """The ids of the answer's rows, ascending."""
        spans = [(self._indexes[f.column].span(f), f) for f in query.factors]
        spans.sort(key=lambda entry: entry[0][1] - entry[0][0])
        (first, last), best = spans[0]
        remaining = [factor for _, factor in spans[1:]]
        if last - first > self._size * SCAN_SHARE:
            places = np.flatnonzero(self._scan([best, *remaining]))
        else:
            places = self._narrow(self._indexes[best.column].places[first:last], remaining)
        return places.astype(np.int64) + self._lo

    def _scan(self, factors: list[Factor]) -> Array:
        mask = factors[0].holds(self.columns[factors[0].column])
        for factor in factors[1:]:
            mask &= factor.holds(self.columns[factor.column])
        return mask

    def _narrow(self, places: Array, factors: list[Factor]) -> Array:
        for factor in factors:
            if not len(places):
                return places
            places = places[factor.holds(self.columns[factor.column][places])]
        return np.sort(places)


class ColumnIndex:
    """The rows of one column by value."""

    def __init__(self, values: Array) -> None:
        order = np.argsort(values, kind="stable")
        self._values = values[order]
        # 16 bits sort several times faster than 64.
        self.places = order.astype(np.uint16)

    @property
    def nbytes(self) -> int:
        return int(self._values.nbytes + self.places.nbytes)

    def span(self, factor: Factor) -> tuple[int, int]:
        """Which of `places` satisfy the factor."""
        first, last = self._values.searchsorted((factor.begin, factor.end)).tolist()
        return first, last
