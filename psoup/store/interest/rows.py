"""Row ids by time: the first row of a stream that a window may hold."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from datastem.arrays import Int64s


@dataclass(frozen=True, slots=True)
class RowFloors:
    """Runs of a stream's rows by their first id, and for each the greatest ts of it and all earlier
    runs.

    The running maximum makes `latest` ascend although rows may come late, so that it can be
    searched.
    """

    firsts: Int64s
    latest: Int64s
    high: int

    @classmethod
    def of(cls, runs: Iterable[tuple[int, int]], high: int) -> RowFloors:
        """Return the floors of runs, given as (first id, greatest ts); `high` is the next row
        id."""
        pairs = np.array(sorted(runs), np.int64).reshape(-1, 2)
        return cls(pairs[:, 0], np.maximum.accumulate(pairs[:, 1]), high)

    @property
    def least(self) -> int:
        """The first row id; `high` if there are no rows."""
        return int(self.firsts[0]) if len(self.firsts) else self.high

    def floor(self, begin: int) -> int:
        """Return a row id below which no row has a ts of `begin` or later; `high` if no row has."""
        place = int(np.searchsorted(self.latest, begin))
        return int(self.firsts[place]) if place < len(self.firsts) else self.high

    def latest_below(self, row: int) -> int | None:
        """Return the greatest ts of the runs that begin below `row`; None if there are none."""
        place = int(np.searchsorted(self.firsts, row))
        return int(self.latest[place - 1]) if place else None
