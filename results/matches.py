"""Stored matches: rows of the matches table, found by predicate and block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s, UInt16s
from results.bitmap import decode


@dataclass(frozen=True)
class MatchPieces:
    """A run of the matches table, sorted by (predicate_id, block), of one stream and segment."""

    table: pa.RecordBatch

    @cached_property
    def predicates(self) -> Int64s:
        ids: Int64s = self.table.column("predicate_id").to_numpy()
        return ids

    @cached_property
    def blocks(self) -> Int64s:
        blocks: Int64s = self.table.column("block").to_numpy()
        return blocks

    @property
    def nbytes(self) -> int:
        return int(self.table.nbytes)

    def every(self, predicate: int) -> Iterator[tuple[int, bytes]]:
        """The block and the bitmap of each piece of a predicate."""
        low, high = np.searchsorted(self.predicates, [predicate, predicate + 1])
        bitmaps = self.table.column("bitmap")
        for row in range(int(low), int(high)):
            yield int(self.blocks[row]), bitmaps[row].as_py()

    def find(self, predicate: int, block: int) -> Iterator[UInt16s]:
        """The matches of a predicate in a block, piece by piece."""
        low, high = np.searchsorted(self.predicates, [predicate, predicate + 1])
        first, last = np.searchsorted(self.blocks[low:high], [block, block + 1])
        bitmaps = self.table.column("bitmap")
        for row in range(int(low + first), int(low + last)):
            yield decode(bitmaps[row].as_py())
