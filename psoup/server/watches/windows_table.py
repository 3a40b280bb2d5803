"""The windows of sleepers as intervals of ts: PSoup's WindowsTable, for one predicate.

A tree finds the few intervals among very many that hold an instant. Each that it finds costs about
as much as looking at two hundred in a row, so few windows, and most windows, are looked at one by
one.
"""

from __future__ import annotations

from collections.abc import Iterator

from intervaltree import Interval, IntervalTree

from psoup.server.watches.sleeper import Sleeper

# From so many different windows on there is a tree; it is given up at half as many.
TREE_FROM = 512
_SCANNED_PER_FOUND = 200


class WindowsTable:
    """Sleepers by their windows `[begin, end)`. Equal windows are one interval."""

    def __init__(self) -> None:
        self._held: dict[tuple[int, int], set[Sleeper]] = {}
        self._tree: IntervalTree | None = None

    def __bool__(self) -> bool:
        return bool(self._held)

    def insert(self, begin: int, end: int, sleeper: Sleeper) -> None:
        """Takes a window. One that can hold nothing is here too, and never found."""
        found = self._held.setdefault((begin, end), set())
        if not found and self._tree is not None and begin < end:
            self._tree.addi(begin, end)
        found.add(sleeper)
        if self._tree is None and len(self._held) >= TREE_FROM:
            self._tree = IntervalTree(Interval(*one) for one in self._held if one[0] < one[1])

    def remove(self, begin: int, end: int, sleeper: Sleeper) -> None:
        found = self._held[begin, end]
        found.remove(sleeper)
        if found:
            return
        del self._held[begin, end]
        if self._tree is not None and begin < end:
            self._tree.removei(begin, end)
        if len(self._held) < TREE_FROM // 2:
            self._tree = None

    def probe(self, least: int, most: int) -> Iterator[Sleeper]:
        """The sleepers whose windows hold some ts in `[least, most]`."""
        tree = self._tree
        if tree is not None and not self._is_wide(tree, least, most):
            for one in tree.overlap(least, most + 1):
                yield from self._held[one.begin, one.end]
            return
        for (begin, end), sleepers in self._held.items():
            if max(begin, least) < min(end, most + 1):
                yield from sleepers

    def _is_wide(self, tree: IntervalTree, least: int, most: int) -> bool:
        """Tells whether so many windows begin or end between two instants that to look at all is
        less work."""
        edges = tree.boundary_table
        inside = edges.bisect_left(most + 1) - edges.bisect_left(least)
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
