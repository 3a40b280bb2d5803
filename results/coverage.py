"""Which rows of a stream a predicate has been matched over.

Inside its coverage a missing match means no match; outside it means unknown.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from results.ranges import Range, union

_OPEN = -1


@dataclass(frozen=True, slots=True)
class Coverage:
    """The coverage rows of one stream, at an epoch whose next row id is `high`."""

    predicate_lo: Int64s
    predicate_hi: Int64s
    row_lo: Int64s
    row_hi: Int64s
    high: int

    @classmethod
    def of(cls, table: pa.Table, high: int) -> Coverage:
        """`table` has the columns above; a row_hi that is NULL follows the epoch."""
        row_hi = table.column("row_hi").fill_null(_OPEN).to_numpy()
        return cls(
            table.column("predicate_lo").to_numpy(),
            table.column("predicate_hi").to_numpy(),
            table.column("row_lo").to_numpy(),
            row_hi,
            high,
        )

    @classmethod
    def nothing(cls) -> Coverage:
        none = np.empty(0, np.int64)
        return cls(none, none, none, none, 0)

    def at(self, high: int) -> Coverage:
        """The same rows of the table at another epoch."""
        return replace(self, high=high)

    def ranges(self, predicate: int) -> list[Range]:
        mine = (self.predicate_lo <= predicate) & (predicate < self.predicate_hi)
        row_hi = self.row_hi[mine]
        row_hi = np.where(row_hi == _OPEN, self.high, row_hi)
        return union(zip(self.row_lo[mine].tolist(), row_hi.tolist(), strict=True))

    def pairs(self, predicates: Int64s) -> int:
        """How many (predicate, row) have been matched, of the given ascending predicates.

        The table's ranges of one predicate are disjoint.
        """
        row_hi = np.where(self.row_hi == _OPEN, self.high, self.row_hi)
        first = np.searchsorted(predicates, self.predicate_lo)
        last = np.searchsorted(predicates, self.predicate_hi)
        return int(((last - first) * np.maximum(row_hi - self.row_lo, 0)).sum())
