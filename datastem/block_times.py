"""Blocks by time: which of a stem's blocks may hold rows of an interval of ts.

Blocks that never fall in time are found by binary search. Those that overlap, because rows came
late or are combinations, are looked at from the nearer end: by their greatest ts for a window that
ends at NOW, by their least for one long ago. Far from both ends of very many blocks a tree finds
the few that hold an instant sooner; it is kept from epoch to epoch.
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

# So few blocks, or a share so large of them, are looked at in their order.
_FEW, _SHARE = 4096, 4
# Fewer blocks have no tree: looking at all takes less time than it takes to find one.
TREE_FROM = 1 << 15
# How long a tree takes, in blocks that are looked at meanwhile: in any case, for each block that it
# finds, and for each end of a block that lies within the interval.
_TREE, _TREE_FOUND, _TREE_END = 16_000, 1_400, 26_000
# Blocks that a tree takes or leaves at a time, so that a server that starts is not held up.
MOST_CHANGES = 4096


@dataclass(frozen=True)
class BlockTimes:
    """Blocks by ascending number, with the least and the greatest ts of each. Immutable but for the
    `tree`, which knows by itself whether it has these blocks."""

    numbers: Int64s
    low: Int64s
    high: Int64s
    tree: BlockTree = field(default_factory=lambda: BlockTree())

    @classmethod
    def nothing(cls) -> BlockTimes:
        """No blocks, and a tree of their own."""
        return cls(*np.empty((3, 0), np.int64))

    def changed(self, bounds: Mapping[int, tuple[int, int] | None]) -> BlockTimes:
        """These blocks with other bounds for some, old or new; None takes a block away."""
        if not bounds:
            return self
        put = [(number, *found) for number, found in sorted(bounds.items()) if found]
        numbers, low, high = np.array(put, np.int64).reshape(-1, 3).T
        stays = np.isin(self.numbers, np.array([*bounds], np.int64), invert=True)
        kept = self.numbers[stays]
        places = kept.searchsorted(numbers)
        return BlockTimes(
            np.insert(kept, places, numbers),
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
        """The numbers of the blocks that may hold rows with ts in `[begin, end)`, ascending."""
        begin = SINCE_EVER if begin is None else begin
        if begin >= end:
            return []
        if self.in_order:
            first, last = int(self.high.searchsorted(begin)), int(self.low.searchsorted(end))
            found: list[int] = self.numbers[first:last].tolist()
            return found
        if len(self.numbers) < _FEW:
            return self._among_all(begin, end)
        # Blocks that end before the interval, and those that do not begin after it: no block is
        # both before and after, so their difference is how many overlap.
        before = int(self._by_high.bounds.searchsorted(begin))
        begun = int(self._by_low.bounds.searchsorted(end))
        count, looked_at = begun - before, min(begun, len(self.numbers) - before)
        if count * _SHARE > len(self.numbers):
            return self._among_all(begin, end)
        if _TREE + count * _TREE_FOUND < looked_at:
            begins = begun - int(self._by_low.bounds.searchsorted(begin))
            ends = int(self._by_high.bounds.searchsorted(end)) - before
            worth = _TREE + count * _TREE_FOUND + (begins + ends) * _TREE_END < looked_at
            numbers = self.tree.probe(self, begin, end) if worth else None
            if numbers is not None:
                return numbers
        if looked_at == begun:
            chosen = self._by_low.places[:begun][self._by_low.others[:begun] >= begin]
        else:
            chosen = self._by_high.places[before:][self._by_high.others[before:] < end]
        near: list[int] = np.sort(self.numbers[chosen]).tolist()
        return near

    def _among_all(self, begin: int, end: int) -> list[int]:
        found: list[int] = self.numbers[(self.low < end) & (self.high >= begin)].tolist()
        return found

    def follow(self) -> None:
        """Has the tree take these blocks, where it is worth having one. Not for the event loop."""
        if not self.in_order and len(self.numbers) >= TREE_FROM:
            self.tree.follow(self)

    @cached_property
    def _by_low(self) -> _Order:
        return _Order.of(self.low, self.high)

    @cached_property
    def _by_high(self) -> _Order:
        return _Order.of(self.high, self.low)

    def _check(self) -> None:
        """Asserts every invariant."""
        assert len(self.numbers) == len(self.low) == len(self.high)
        assert (self.numbers[1:] > self.numbers[:-1]).all() and (self.low <= self.high).all()
        self.tree._check()


@dataclass(frozen=True, slots=True)
class _Order:
    """The places of blocks by one of their bounds, that bound, and the other one of each."""

    places: Int64s
    bounds: Int64s
    others: Int64s

    @classmethod
    def of(cls, bounds: Int64s, others: Int64s) -> _Order:
        places = np.argsort(bounds, kind="stable")
        return cls(places, bounds[places], others[places])


class BlockTree:
    """The tree of the blocks of a stem, which follows them from one epoch to the next.

    It answers for the BlockTimes that it followed last, and for none while it is behind: whoever
    still has older ones looks at all blocks. Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._table: IntervalTable[int] = IntervalTable()
        self._held: dict[int, tuple[int, int]] = {}
        self._of: BlockTimes | None = None
        # The blocks that are held, as arrays to compare with.
        self._numbers = self._low = self._high = np.empty(0, np.int64)

    def follow(self, times: BlockTimes) -> None:
        """Takes and leaves what has changed, MOST_CHANGES blocks at most; the next call goes on."""
        with self._lock:
            self._of = None
            gone, come = self._changed(times)
            for place in gone[:MOST_CHANGES].tolist():
                self._leave(int(self._numbers[place]))
            for place in come[: MOST_CHANGES - len(gone[:MOST_CHANGES])].tolist():
                self._take(*(int(one[place]) for one in (times.numbers, times.low, times.high)))
            if len(gone) + len(come) <= MOST_CHANGES:
                self._of = times
                self._numbers, self._low, self._high = times.numbers, times.low, times.high
            else:
                self._note()

    def probe(self, times: BlockTimes, begin: int, end: int) -> list[int] | None:
        """The numbers of the blocks that overlap `[begin, end)`, which is not empty; None where the
        tree has other blocks."""
        with self._lock:
            if self._of is not times:
                return None
            return sorted(self._table.probe(begin, end))

    def _changed(self, times: BlockTimes) -> tuple[Int64s, Int64s]:
        """The places of the held blocks that are gone or different, and of those to be taken."""
        old, new = self._numbers, times.numbers
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
        self._held[number] = low, high

    def _leave(self, number: int) -> None:
        low, high = self._held.pop(number)
        self._table.remove(low, high + 1, number)

    def _note(self) -> None:
        """Notes which blocks are held, where that is not yet all."""
        numbers = sorted(self._held)
        bounds = np.array([self._held[one] for one in numbers], np.int64).reshape(-1, 2)
        self._numbers, self._low = np.array(numbers, np.int64), bounds[:, 0]
        self._high = bounds[:, 1]

    def _check(self) -> None:
        """Asserts every invariant."""
        with self._lock:
            self._table._check()
            assert self._numbers.tolist() == sorted(self._held)
            bounds = list(zip(self._low.tolist(), self._high.tolist(), strict=True))
            assert bounds == [self._held[number] for number in sorted(self._held)]
            assert self._of is None or self._of.numbers is self._numbers
