"""Matches as the tables hold them: pieces by predicate and block, and the rows they cover.

Inside a predicate's coverage a missing match means that the row does not match; outside it means
that the row was not evaluated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s, UInt16s
from results.bitmaps import decode
from results.id_sets import Range, union

# The row_hi of coverage that grows with every epoch.
_OPEN = -1


@dataclass(frozen=True)
class MatchPieces:
    """Rows of the matches table of one stream and segment, sorted by (predicate_id, block)."""

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
        """Yield the block and the bitmap of each piece of a predicate."""
        low, high = np.searchsorted(self.predicates, [predicate, predicate + 1])
        bitmaps = self.table.column("bitmap")
        for row in range(int(low), int(high)):
            yield int(self.blocks[row]), bitmaps[row].as_py()

    def find(self, predicate: int, block: int) -> Iterator[UInt16s]:
        """Yield the matches of a predicate in a block, piece by piece."""
        low, high = np.searchsorted(self.predicates, [predicate, predicate + 1])
        first, last = np.searchsorted(self.blocks[low:high], [block, block + 1])
        bitmaps = self.table.column("bitmap")
        for row in range(int(low + first), int(low + last)):
            yield decode(bitmaps[row].as_py())


@dataclass(frozen=True, slots=True)
class StreamCoverage:
    """The rows of one stream that predicates have been matched over, at an epoch whose next row
    id is `high`.

    Entry n says that the predicates `[predicate_lo, predicate_hi)` cover the rows
    `[row_lo, row_hi)`.
    """

    predicate_lo: Int64s
    predicate_hi: Int64s
    row_lo: Int64s
    row_hi: Int64s
    high: int

    @classmethod
    def of(cls, table: pa.Table, high: int) -> StreamCoverage:
        """Read a table with the four columns; a row_hi that is NULL follows the epoch."""
        row_hi = table.column("row_hi").fill_null(_OPEN).to_numpy()
        return cls(
            table.column("predicate_lo").to_numpy(),
            table.column("predicate_hi").to_numpy(),
            table.column("row_lo").to_numpy(),
            row_hi,
            high,
        )

    @classmethod
    def nothing(cls) -> StreamCoverage:
        none = np.empty(0, np.int64)
        return cls(none, none, none, none, 0)

    def at(self, high: int) -> StreamCoverage:
        """Return these entries at another epoch, whose next row id is `high`."""
        return replace(self, high=high)

    def ranges(self, predicate: int) -> list[Range]:
        """Return the row ids a predicate covers."""
        is_covered = (self.predicate_lo <= predicate) & (predicate < self.predicate_hi)
        row_lo, row_hi = self.row_lo[is_covered], self.row_hi[is_covered]
        row_hi = np.where(row_hi == _OPEN, self.high, row_hi)
        return union(zip(row_lo.tolist(), row_hi.tolist(), strict=True))

    def covered_rows(self, predicates: Int64s, first: Int64s, stop: Int64s) -> Int64s:
        """Return, for each of some ascending predicates, how many ids of `[first[n], stop[n])` it
        covers. The engine's entries of one predicate are disjoint."""
        counts = np.zeros(len(predicates), np.int64)
        row_hi = np.where(self.row_hi == _OPEN, self.high, self.row_hi)
        # Entry n is about `predicates[begins[n]:ends[n]]`.
        begins = np.searchsorted(predicates, self.predicate_lo).tolist()
        ends = np.searchsorted(predicates, self.predicate_hi).tolist()
        entries = zip(begins, ends, self.row_lo.tolist(), row_hi.tolist(), strict=True)
        for begin, end, lo, hi in entries:
            overlaps = np.minimum(stop[begin:end], hi) - np.maximum(first[begin:end], lo)
            counts[begin:end] += np.maximum(overlaps, 0)
        return counts
