"""Values by intervals: which of very many overlap a given one.

A tree (`intervaltree`) finds few among many. Each interval that it finds, and each end that lies
within the one that is asked for, costs it about as much as looking at two hundred intervals in a
row; so few intervals, and most of them, are looked at one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from intervaltree import Interval, IntervalTree

T = TypeVar("T")

# From so many different intervals on there is a tree; it is given up at half as many.
TREE_FROM = 512
_SCANNED_PER_FOUND = 200


class IntervalTable(Generic[T]):
    """Values by half-open intervals `[begin, end)`; equal intervals are one in the tree."""

    def __init__(self) -> None:
        self._held: dict[tuple[int, int], set[T]] = {}
        self._tree: IntervalTree | None = None

    def __len__(self) -> int:
        """The number of different intervals."""
        return len(self._held)

    def insert(self, begin: int, end: int, value: T) -> None:
        """Takes a value that is not here with this interval. An empty interval is never found."""
        found = self._held.setdefault((begin, end), set())
        if not found and self._tree is not None and begin < end:
            self._tree.addi(begin, end)
        found.add(value)
        if self._tree is None and len(self._held) >= TREE_FROM:
            self._tree = IntervalTree(Interval(*one) for one in self._held if one[0] < one[1])

    def remove(self, begin: int, end: int, value: T) -> None:
        """Raises KeyError where the value is not here with this interval."""
        found = self._held[begin, end]
        found.remove(value)
        if found:
            return
        del self._held[begin, end]
        if len(self._held) < TREE_FROM // 2:
            self._tree = None
        elif self._tree is not None and begin < end:
            self._tree.removei(begin, end)

    def probe(self, begin: int, end: int) -> Iterator[T]:
        """The values whose intervals overlap `[begin, end)`, which is not empty. Nothing may change
        meanwhile."""
        tree = self._tree
        if tree is not None and not self._is_wide(tree, begin, end):
            for one in tree.overlap(begin, end):
                yield from self._held[one.begin, one.end]
            return
        for (first, last), values in self._held.items():
            if first < end and begin < last and first < last:
                yield from values

    def _is_wide(self, tree: IntervalTree, begin: int, end: int) -> bool:
        """Tells whether so many intervals begin or end within this one that to look at all is less
        work."""
        ends = tree.boundary_table
        inside = ends.bisect_left(end) - ends.bisect_left(begin)
        return bool(inside * _SCANNED_PER_FOUND > len(self._held))

    def _check(self) -> None:
        """Asserts every invariant."""
        assert all(self._held.values())
        if self._tree is None:
            assert len(self._held) < TREE_FROM
            return
        assert len(self._held) >= TREE_FROM // 2
        self._tree.verify()
        found = {(one.begin, one.end) for one in self._tree}
        assert found == {one for one in self._held if one[0] < one[1]}
