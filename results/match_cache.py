"""A cache of matches: which rows of a block a predicate matches, as far as that was found out.

Rows and predicates never change, so an entry stays true for ever; it may be dropped to save memory,
and its matches are then read or computed again. Thread-safe.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from datastem.arrays import Int64s, UInt16s
from datastem.blocks import BLOCK_BITS, BLOCK_MASK
from datastem.caches import LruCache
from results.id_sets import Range, subtract, union

# What an entry takes beside its array.
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
        """The row ids of `[lo, hi)` of which nothing is known."""
        return subtract(lo, hi, self.ranges)

    def between(self, lo: int, hi: int) -> Int64s:
        """The matching row ids in `[lo, hi)`, which may reach beyond the block."""
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
        """These matches and those of further ranges.

        `lows` are all the matches in `ranges`; ids known already may be among them.
        """
        both = np.concatenate([self.lows, lows])
        if len(self.lows) and len(lows) and lows[0] <= self.lows[-1]:
            both = np.unique(both)
        return BlockMatches(self.block, tuple(union([*self.ranges, *ranges])), both)


class MatchCache:
    """Matches by (predicate, block), at most `limit` bytes of them; the least recently used leave
    first."""

    def __init__(self, limit: int) -> None:
        self._held: LruCache[tuple[int, int], BlockMatches] = LruCache(limit)

    @property
    def used(self) -> int:
        return self._held.used

    def probe(self, predicate: int, block: int) -> BlockMatches:
        """The known matches of a predicate in a block; none over no rows where nothing is known."""
        return self._held.get((predicate, block)) or _nothing(block)

    def insert(
        self, predicate: int, block: int, ranges: list[Range], lows: UInt16s
    ) -> BlockMatches:
        """Adds the matches `lows` of further `ranges`, and returns all that is known then.

        Whatever other threads have added meanwhile stays.
        """

        def add(old: BlockMatches | None) -> BlockMatches:
            return (old or _nothing(block)).add(ranges, lows)

        return self._held.change((predicate, block), add, lambda found: found.nbytes)


def _nothing(block: int) -> BlockMatches:
    return BlockMatches(block, (), np.empty(0, np.uint16))
