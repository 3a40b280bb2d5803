"""A cache of matches: which rows of a block a predicate matches, over the rows evaluated so far.

Rows and predicates never change, so an entry stays true for ever. It may be dropped to save memory;
its matches are then read or computed again. Thread-safe.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from datastem.arrays import Int64s, UInt16s
from datastem.blocks import BLOCK_BITS, BLOCK_MASK
from datastem.caches import LruCache
from results.id_sets import Range, subtract, union

# Bytes that an entry takes beside its array.
_OVERHEAD = 400


@dataclass(frozen=True, slots=True)
class BlockMatches:
    """The matches of one predicate in one block.

    Over the row ids in `ranges` exactly the rows match whose low 16 bits are in `lows`; nothing is
    known of the other rows. Both ascend.
    """

    block: int
    ranges: tuple[Range, ...]
    lows: UInt16s

    @property
    def nbytes(self) -> int:
        return self.lows.nbytes + _OVERHEAD

    def missing(self, lo: int, hi: int) -> list[Range]:
        """Return the row ids of `[lo, hi)` of which nothing is known."""
        return subtract(lo, hi, self.ranges)

    def find(self, lo: int, hi: int) -> Int64s | None:
        """Return the matching row ids in `[lo, hi)`; None if some of the range is not known."""
        # Ranges are disjoint and not adjacent, so one of them has all of `[lo, hi)` or none has.
        for begin, end in self.ranges:
            if begin <= lo and hi <= end:
                return self.between(lo, hi)
        return self.between(lo, hi) if lo >= hi else None

    def between(self, lo: int, hi: int) -> Int64s:
        """Return the matching row ids in `[lo, hi)`, which may reach beyond the block."""
        base = self.block << BLOCK_BITS
        return self.lows[self._place(lo - base) : self._place(hi - base)].astype(np.int64) + base

    def _place(self, low: int) -> int:
        if low <= 0:
            return 0
        if low > BLOCK_MASK:
            return len(self.lows)
        # numpy would make all of `lows` wider to compare them with a wider number.
        return int(self.lows.searchsorted(np.uint16(low)))

    def add(self, ranges: list[Range], lows: UInt16s) -> BlockMatches:
        """Return these matches and those of further ranges.

        `lows` are all the matches in `ranges`; ids known already may be among them.
        """
        both = np.concatenate([self.lows, lows])
        # Matches that all follow the known ones are sorted and distinct as they are.
        if len(self.lows) and len(lows) and lows[0] <= self.lows[-1]:
            both = np.unique(both)
        return BlockMatches(self.block, tuple(union([*self.ranges, *ranges])), both)


class MatchCache:
    """Matches by (predicate, block), at most `limit` bytes of them; the least recently used leave
    first."""

    def __init__(self, limit: int) -> None:
        self._cache: LruCache[tuple[int, int], BlockMatches] = LruCache(limit)

    @property
    def used(self) -> int:
        return self._cache.used

    def probe(self, predicate: int, block: int) -> BlockMatches:
        """Return the cached matches of a predicate in a block; without ranges if nothing is
        cached."""
        return self._cache.get((predicate, block)) or _nothing(block)

    def insert(
        self, predicate: int, block: int, ranges: list[Range], lows: UInt16s
    ) -> BlockMatches:
        """Add the matches `lows` of further `ranges`, and return the new entry.

        What other threads have added at the same time stays.
        """

        def add(old: BlockMatches | None) -> BlockMatches:
            return (old or _nothing(block)).add(ranges, lows)

        return self._cache.change((predicate, block), add, lambda matches: matches.nbytes)


def _nothing(block: int) -> BlockMatches:
    return BlockMatches(block, (), np.empty(0, np.uint16))
