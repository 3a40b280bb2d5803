"""What is known of predicates, from the files or computed on the spot: which rows match.

Rows and predicates never change, so what is known once stays true; it may be forgotten to save
memory, and is then found out again. Thread-safe.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np

from results.bitmap import BLOCK_BITS, BLOCK_MASK
from results.ranges import Range, subtract, union

Int64s = np.ndarray[Any, np.dtype[np.int64]]

_OVERHEAD = 400


@dataclass(frozen=True, slots=True)
class Piece:
    """Over the row ids in `ranges` of one block, exactly `ids` match. Both ascend."""

    ranges: tuple[Range, ...]
    ids: Int64s

    @property
    def nbytes(self) -> int:
        return self.ids.nbytes + _OVERHEAD

    def missing(self, lo: int, hi: int) -> list[Range]:
        return subtract(lo, hi, self.ranges)

    def between(self, lo: int, hi: int) -> Int64s:
        first, last = np.searchsorted(self.ids, [lo, hi])
        return self.ids[first:last]

    def add(self, ranges: list[Range], ids: Int64s) -> Piece:
        """The ranges are new ones; `ids` are the matches in them."""
        both = np.concatenate([self.ids, ids])
        if len(self.ids) and len(ids) and ids[0] <= self.ids[-1]:
            both = np.unique(both)
        return Piece(tuple(union([*self.ranges, *ranges])), both)


NOTHING = Piece((), np.empty(0, np.int64))


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
                return NOTHING
            self._pieces.move_to_end(key)
            return piece

    def insert(self, predicate: int, block: int, ranges: list[Range], ids: Int64s) -> Piece:
        """Adds ranges and their matches to what is known now; what others added meanwhile stays."""
        key = predicate, block
        with self._lock:
            old = self._pieces.get(key, NOTHING)
            new = old.add(ranges, ids)
            self._pieces[key] = new
            self._pieces.move_to_end(key)
            self._used += new.nbytes - (old.nbytes if old is not NOTHING else 0)
            while self._used > self.limit and len(self._pieces) > 1:
                _, gone = self._pieces.popitem(last=False)
                self._used -= gone.nbytes
            return new


def block_ranges(lo: int, hi: int) -> list[tuple[int, int, int]]:
    """`[lo, hi)` cut at the edges of blocks: (block, lo, hi), ascending."""
    cut = []
    while lo < hi:
        stop = min(hi, (lo | BLOCK_MASK) + 1)
        cut.append((lo >> BLOCK_BITS, lo, stop))
        lo = stop
    return cut
