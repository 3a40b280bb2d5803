"""The rows a window holds at one instant, as a region of (ts, row_id)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from datastem.arrays import Int64s, Mask

# A point in the order of rows: (ts, row_id), compared in that order.
Moment = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Region:
    """Rows with `since <= (ts, row_id) < until` and `lo <= row_id < hi`.

    `since` None is the beginning of time.
    """

    since: Moment | None
    until: Moment
    lo: int
    hi: int

    @property
    def begin(self) -> int | None:
        """With `end`: no row has its ts outside of `[begin, end)`."""
        return None if self.since is None else self.since[0]

    @property
    def end(self) -> int:
        return self.until[0] + (self.until[1] > 0)

    @property
    def empty(self) -> bool:
        late = self.since is not None and self.since >= self.until
        return late or self.lo >= self.hi

    @property
    def instants_only(self) -> bool:
        """Whether all rows of one ts are on one side of each end."""
        return self.until[1] <= 0 and (self.since is None or self.since[1] <= 0)

    def contains(self, low: int, high: int, first: int, stop: int) -> bool:
        """Whether it is sure to hold every row with ts in `[low, high]` and id in `[first, stop)`.

        Said without looking at the rows, so it may be False where they are all inside.
        """
        after = self.since is None or (low, first) >= self.since
        return after and (high, stop - 1) < self.until and self.lo <= first and stop <= self.hi

    def holds(self, ts: Int64s, ids: Int64s) -> Mask:
        inside = (ids >= self.lo) & (ids < self.hi) & _before(ts, ids, self.until)
        return inside if self.since is None else inside & ~_before(ts, ids, self.since)

    def narrowed(self, since: Moment | None = None, until: Moment | None = None) -> Region:
        """The rows of it that are at or after `since`, and before `until`."""
        later = self.since if since is None else max(since, self.since or since)
        sooner = self.until if until is None else min(until, self.until)
        return Region(later, sooner, self.lo, self.hi)

    def minus(self, other: Region) -> list[Region]:
        """The rows of it that the other does not hold, as disjoint regions; none of them empty."""
        if self.empty or other.empty:
            return [] if self.empty else [self]
        level = self.narrowed(other.since, other.until)
        parts = [
            self.narrowed(until=other.since) if other.since is not None else None,
            self.narrowed(since=other.until),
            replace(level, hi=min(self.hi, other.lo)),
            replace(level, lo=max(self.lo, other.hi)),
        ]
        return [part for part in parts if part is not None and not part.empty]


def common(some: Int64s, others: Int64s) -> Int64s:
    """What is in both; each ascends."""
    if len(some) > len(others):
        some, others = others, some
    if not len(some):
        return some
    places = np.minimum(others.searchsorted(some), len(others) - 1)
    found: Int64s = some[others[places] == some]
    return found


def _before(ts: Int64s, ids: Int64s, moment: Moment) -> Mask:
    if moment[1] <= 0:
        return np.asarray(ts < moment[0])
    return np.asarray((ts < moment[0]) | ((ts == moment[0]) & (ids < moment[1])))
