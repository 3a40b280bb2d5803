"""Values by intervals: which of very many overlap a given one.

A tree (`intervaltree`) is fast if few of many intervals overlap. Each match, and each end within
the probed interval, costs it as much as scanning two hundred intervals. So small tables, and probes
that match most of a table, scan.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from intervaltree import Interval, IntervalTree

T = TypeVar("T")

# A table of this many different intervals gets a tree, and drops it below half as many.
MIN_TREE_INTERVALS = 512
SCANNED_PER_TREE_EDGE = 200


class IntervalTable(Generic[T]):
    """Values by half-open intervals `[begin, end)`; equal intervals are one in the tree."""

    def __init__(self) -> None:
        self._values_by_interval: dict[tuple[int, int], set[T]] = {}
        self._tree: IntervalTree | None = None

    def __len__(self) -> int:
        """Return the number of different intervals."""
        return len(self._values_by_interval)

    def insert(self, begin: int, end: int, value: T) -> None:
        """Add a value that is not stored with this interval. An empty interval never overlaps."""
        values = self._values_by_interval.setdefault((begin, end), set())
        # The tree refuses empty intervals. The dictionary has them, so that `remove` finds them.
        if not values and self._tree is not None and begin < end:
            self._tree.addi(begin, end)
        values.add(value)
        if self._tree is None and len(self._values_by_interval) >= MIN_TREE_INTERVALS:
            self._tree = IntervalTree(
                Interval(*interval)
                for interval in self._values_by_interval
                if interval[0] < interval[1]
            )

    def remove(self, begin: int, end: int, value: T) -> None:
        """Remove a value; raise KeyError if it is not stored with this interval."""
        values = self._values_by_interval[begin, end]
        values.remove(value)
        if values:
            return
        del self._values_by_interval[begin, end]
        if len(self._values_by_interval) < MIN_TREE_INTERVALS // 2:
            self._tree = None
        elif self._tree is not None and begin < end:
            self._tree.removei(begin, end)

    def probe(self, begin: int, end: int) -> Iterator[T]:
        """Yield the values whose intervals overlap `[begin, end)`, which is not empty. The table
        may not change until the iterator ends."""
        tree = self._tree
        if tree is not None and not self._is_wide(tree, begin, end):
            for interval in tree.overlap(begin, end):
                yield from self._values_by_interval[interval.begin, interval.end]
            return
        for (first, last), values in self._values_by_interval.items():
            if first < end and begin < last and first < last:
                yield from values

    def _is_wide(self, tree: IntervalTree, begin: int, end: int) -> bool:
        """Return True if so many intervals begin or end within this one that a scan is cheaper."""
        ends = tree.boundary_table
        inside = ends.bisect_left(end) - ends.bisect_left(begin)
        return bool(inside * SCANNED_PER_TREE_EDGE > len(self._values_by_interval))

    def _check(self) -> None:
        """Assert every invariant."""
        assert all(self._values_by_interval.values())
        if self._tree is None:
            assert len(self._values_by_interval) < MIN_TREE_INTERVALS
            return
        assert len(self._values_by_interval) >= MIN_TREE_INTERVALS // 2
        self._tree.verify()
        indexed = {(interval.begin, interval.end) for interval in self._tree}
        assert indexed == {
            interval for interval in self._values_by_interval if interval[0] < interval[1]
        }
