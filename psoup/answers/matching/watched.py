"""A matcher whose work is counted, for Explain and for traces."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from datastem.arrays import Int64s
from datastem.blocks import Part
from psoup.answers.matching.matcher import Work
from psoup.answers.matching.permitted_rows import MatchSource, PermittedRows
from psoup.answers.stages import Stages


@dataclass
class WatchedMatcher:
    """A matcher that counts the rows it is called for, and adds its time to the stage `match`."""

    inner: MatchSource
    stages: Stages
    considered: int = 0

    @property
    def work(self) -> Work:
        return self.inner.work

    @property
    def permitted(self) -> PermittedRows | None:
        return self.inner.permitted

    def match(self, part: Part, lo: int, hi: int) -> Int64s:
        started = time.perf_counter()
        row_ids = self.inner.match(part, lo, hi)
        self.stages.add("match", time.perf_counter() - started)
        # The ids of a part ascend; this counts those in the half-open interval from `lo` to `hi`.
        first, last = np.searchsorted(part.ids, [lo, hi])
        self.considered += int(last - first)
        return row_ids

    def cached(self, part: Part, lo: int, hi: int) -> Int64s | None:
        return self.inner.cached(part, lo, hi)

    def lacks(self, block: int, high: int) -> bool:
        return self.inner.lacks(block, high)
