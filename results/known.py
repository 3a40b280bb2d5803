"""What is known of predicates, from the files or computed on the spot: which rows match.

Rows and predicates never change, so what is known once stays true; it may be forgotten to save
memory, and is then found out again. Thread-safe.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np

from datastem.arrays import Int64s, UInt16s
from results.bitmap import BLOCK_BITS, BLOCK_MASK
from results.ranges import Range, subtract, union

_OVERHEAD = 400


@dataclass(frozen=True, slots=True)
class Piece:
    """Over the row ids in `ranges` of one block exactly those of `lows` match. Both ascend."""

    block: int
    ranges: tuple[Range, ...]
    lows: UInt16s

    @property
    def nbytes(self) -> int:
        return self.lows.nbytes + _OVERHEAD

    def missing(self, lo: int, hi: int) -> list[Range]:
        return subtract(lo, hi, self.ranges)

    def between(self, lo: int, hi: int) -> Int64s:
        """The matching ids in `[lo, hi)`, which may reach over the block."""
        base = self.block << BLOCK_BITS
        return self.lows[self._place(lo - base) : self._place(hi - base)].astype(np.int64) + base

    def _place(self, low: int) -> int:
        if low <= 0:
            return 0
        if low > BLOCK_MASK:
            return len(self.lows)
        # numpy would make all of `lows` wider to compare them with a wider number.
        return int(self.lows.searchsorted(np.uint16(low)))

    def add(self, ranges: list[Range], lows: UInt16s) -> Piece:
        """`lows` are all the matches in the ranges; ids known already may be among them."""
        both = np.concatenate([self.lows, lows])
        if len(self.lows) and len(lows) and lows[0] <= self.lows[-1]:
            both = np.unique(both)
        return Piece(self.block, tuple(union([*self.ranges, *ranges])), both)


class Known:
    """Pieces by (predicate, block), at most `limit` bytes of them."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lock = threading.Lock()
        self._pieces: OrderedDict[tuple[int, int], Piece] = OrderedDict()
        self._used = 0

    @property
    def used(self) -> int:
        return self._used

    def probe(self, predicate: int, block: int) -> Piece:
        key = predicate, block
        with self._lock:
            piece = self._pieces.get(key)
            if piece is None:
                return _nothing(block)
            self._pieces.move_to_end(key)
            return piece

    def insert(self, predicate: int, block: int, ranges: list[Range], lows: UInt16s) -> Piece:
        """Adds ranges and their matches to what is known now; what others added meanwhile stays."""
        key = predicate, block
        with self._lock:
            old = self._pieces.get(key)
            new = (old or _nothing(block)).add(ranges, lows)
            self._pieces[key] = new
            self._pieces.move_to_end(key)
            self._used += new.nbytes - (old.nbytes if old else 0)
            while self._used > self.limit and len(self._pieces) > 1:
                _, gone = self._pieces.popitem(last=False)
                self._used -= gone.nbytes
            return new


def _nothing(block: int) -> Piece:
    return Piece(block, (), np.empty(0, np.uint16))
