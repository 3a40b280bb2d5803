"""Blocks by time: which of a stem's blocks may hold rows of an interval of ts.

Blocks whose times never fall are found by binary search. Blocks overlap if rows came late or are
combinations. Those are scanned from the nearer end: by their greatest ts for a window that ends at
NOW, by their least ts for one long ago. Far from both ends of very many blocks, an interval tree is
faster; it is kept from epoch to epoch.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from datastem.arrays import Int64s
from datastem.instants import SINCE_EVER
from datastem.interval_table import IntervalTable

# All blocks are scanned if they are fewer than this, or if more than 1 / SCAN_SHARE_DIVISOR of them
# overlap.
SCAN_BELOW_BLOCKS, SCAN_SHARE_DIVISOR = 4096, 4
# Fewer blocks have no tree: scanning them all takes less time than a probe of the tree.
MIN_TREE_BLOCKS = 1 << 15
# What a probe of the tree costs, in scanned blocks: in any case, for each block that matches, and
# for each end of a block that lies within the interval.
TREE_PROBE_COST, TREE_MATCH_COST, TREE_EDGE_COST = 16_000, 1_400, 26_000
# Blocks that one call of `follow` changes in the tree, so that it does not delay a starting server.
MAX_CHANGED_BLOCKS = 4096


@dataclass(frozen=True)
class BlockTimes:
    """Blocks by ascending number, with the least and the greatest ts of each. Immutable but for the
    `tree`, which checks by itself whether it has these blocks."""

    numbers: Int64s
    low: Int64s
    high: Int64s
    tree: BlockTree = field(default_factory=lambda: BlockTree())

    @classmethod
    def nothing(cls) -> BlockTimes:
        """Return no blocks, with a new tree."""
        return cls(*np.empty((3, 0), np.int64))

    def changed(self, bounds: Mapping[int, tuple[int, int] | None]) -> BlockTimes:
        """Return these blocks with changed bounds. A number may be new; bounds of None remove a
        block."""
        if not bounds:
            return self
        # By ascending number, as `np.insert` needs them to keep the whole sorted.
        additions = [(number, *ends) for number, ends in sorted(bounds.items()) if ends]
        numbers, low, high = np.array(additions, np.int64).reshape(-1, 3).T
        stays = np.isin(self.numbers, np.array([*bounds], np.int64), invert=True)
        unchanged = self.numbers[stays]
        places = unchanged.searchsorted(numbers)
        return BlockTimes(
            np.insert(unchanged, places, numbers),
            np.insert(self.low[stays], places, low),
            np.insert(self.high[stays], places, high),
            self.tree,
        )

    @cached_property
    def in_order(self) -> bool:
        """Whether neither bound ever falls from one block to the next."""
        low, high = self.low, self.high
        return bool((low[1:] >= low[:-1]).all() and (high[1:] >= high[:-1]).all())

    def overlapping(self, begin: int | None, end: int) -> list[int]:
        """Return the numbers of the blocks that may hold rows with ts in `[begin, end)`,
        ascending."""
        begin = SINCE_EVER if begin is None else begin
        if begin >= end:
            return []
        if self.in_order:
            # Both bounds ascend, so the blocks that overlap are one slice.
            first, last = int(self.high.searchsorted(begin)), int(self.low.searchsorted(end))
            overlaps: list[int] = self.numbers[first:last].tolist()
            return overlaps
        if len(self.numbers) < SCAN_BELOW_BLOCKS:
            return self._among_all(begin, end)
        # Blocks that end before the interval, and those that do not begin after it: no block is
        # both before and after, so their difference is how many overlap.
        before = int(self._by_high.bounds.searchsorted(begin))
        begun = int(self._by_low.bounds.searchsorted(end))
        # A scan by least ts looks at the first `begun` blocks, one by greatest ts at those from
        # `before` on.
        count, looked_at = begun - before, min(begun, len(self.numbers) - before)
        if count * SCAN_SHARE_DIVISOR > len(self.numbers):
            return self._among_all(begin, end)
        if TREE_PROBE_COST + count * TREE_MATCH_COST < looked_at:
            # Bounds of blocks that lie within the interval: the greatest cost of the tree, and so
            # counted before it is chosen.
            begins = begun - int(self._by_low.bounds.searchsorted(begin))
            ends = int(self._by_high.bounds.searchsorted(end)) - before
            worth = (
                TREE_PROBE_COST + count * TREE_MATCH_COST + (begins + ends) * TREE_EDGE_COST
                < looked_at
            )
            numbers = self.tree.probe(self, begin, end) if worth else None
            if numbers is not None:
                return numbers
        if looked_at == begun:
            chosen = self._by_low.places[:begun][self._by_low.opposite[:begun] >= begin]
        else:
            chosen = self._by_high.places[before:][self._by_high.opposite[before:] < end]
        near: list[int] = np.sort(self.numbers[chosen]).tolist()
        return near

    def _among_all(self, begin: int, end: int) -> list[int]:
        overlaps: list[int] = self.numbers[(self.low < end) & (self.high >= begin)].tolist()
        return overlaps

    def follow(self) -> None:
        """Bring the tree up to date with these blocks, if they need one. Do not call it on the
        event loop."""
        if not self.in_order and len(self.numbers) >= MIN_TREE_BLOCKS:
            self.tree.follow(self)

    @cached_property
    def _by_low(self) -> _Order:
        return _Order.of(self.low, self.high)

    @cached_property
    def _by_high(self) -> _Order:
        return _Order.of(self.high, self.low)

    def _check(self) -> None:
        """Assert every invariant."""
        assert len(self.numbers) == len(self.low) == len(self.high)
        assert (self.numbers[1:] > self.numbers[:-1]).all() and (self.low <= self.high).all()
        self.tree._check()


@dataclass(frozen=True, slots=True)
class _Order:
    """Blocks sorted by one of their bounds: their places, that bound, and the opposite bound of
    each."""

    places: Int64s
    bounds: Int64s
    opposite: Int64s

    @classmethod
    def of(cls, bounds: Int64s, opposite: Int64s) -> _Order:
        places = np.argsort(bounds, kind="stable")
        return cls(places, bounds[places], opposite[places])


class BlockTree:
    """The tree of the blocks of a stem, which follows them from one epoch to the next.

    It answers for the BlockTimes that it followed last, and for none while it is behind: a reader
    with older ones scans all blocks. Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._table: IntervalTable[int] = IntervalTable()
        self._indexed: dict[int, tuple[int, int]] = {}
        self._followed: BlockTimes | None = None
        # The blocks in `_indexed`, by ascending number, as arrays to compare with.
        self._numbers = self._low = self._high = np.empty(0, np.int64)

    def follow(self, times: BlockTimes) -> None:
        """Add and remove what has changed, MAX_CHANGED_BLOCKS blocks at most; the next call
        continues."""
        with self._lock:
            # It stays None if this call does not finish: a tree with blocks of two epochs must not
            # be probed.
            self._followed = None
            removed, added = self._changed(times)
            for place in removed[:MAX_CHANGED_BLOCKS].tolist():
                self._leave(int(self._numbers[place]))
            for place in added[: MAX_CHANGED_BLOCKS - len(removed[:MAX_CHANGED_BLOCKS])].tolist():
                self._take(
                    *(int(column[place]) for column in (times.numbers, times.low, times.high))
                )
            if len(removed) + len(added) <= MAX_CHANGED_BLOCKS:
                self._followed = times
                self._numbers, self._low, self._high = times.numbers, times.low, times.high
            else:
                self._note()

    def probe(self, times: BlockTimes, begin: int, end: int) -> list[int] | None:
        """Return the numbers of the blocks that overlap `[begin, end)`, which is not empty; None if
        the tree has other blocks."""
        with self._lock:
            if self._followed is not times:
                return None
            return sorted(self._table.probe(begin, end))

    def _changed(self, times: BlockTimes) -> tuple[Int64s, Int64s]:
        """Return the places of the indexed blocks to remove, and of the blocks in `times` to
        add."""
        old, new = self._numbers, times.numbers
        # `places[n]` is the one indexed block that may equal new block n. A search may end past the
        # last block, hence the minimum.
        places = np.minimum(np.searchsorted(old, new), max(0, len(old) - 1))
        same = np.zeros(len(new), np.bool_)
        if len(old):
            same = old[places] == new
            same &= (self._low[places] == times.low) & (self._high[places] == times.high)
        stays = np.zeros(len(old), np.bool_)
        stays[places[same]] = True
        return np.flatnonzero(~stays), np.flatnonzero(~same)

    def _take(self, number: int, low: int, high: int) -> None:
        self._table.insert(low, high + 1, number)
        self._indexed[number] = low, high

    def _leave(self, number: int) -> None:
        low, high = self._indexed.pop(number)
        self._table.remove(low, high + 1, number)

    def _note(self) -> None:
        """Record which blocks are indexed, while the tree is not up to date."""
        numbers = sorted(self._indexed)
        bounds = np.array([self._indexed[number] for number in numbers], np.int64).reshape(-1, 2)
        self._numbers, self._low = np.array(numbers, np.int64), bounds[:, 0]
        self._high = bounds[:, 1]

    def _check(self) -> None:
        """Assert every invariant."""
        with self._lock:
            self._table._check()
            assert self._numbers.tolist() == sorted(self._indexed)
            bounds = list(zip(self._low.tolist(), self._high.tolist(), strict=True))
            assert bounds == [self._indexed[number] for number in sorted(self._indexed)]
            assert self._followed is None or self._followed.numbers is self._numbers
