"""Windows as regions of (ts, row_id): the rows a window holds at one instant.

A region is computed from a window and NOW (`time_region`, `row_region`, `count_region`). For time
windows the inverse exists too: from a row's ts the interval of NOW in which the window holds the
row (`visible`). Windows choose rows before WHERE does.

In all functions `oldest` is the least ts that is retained (None: all rows are retained), and `high`
is the next row id at the answer's position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from datastem.arrays import Int64s, Mask
from datastem.instants import FOR_EVER, SINCE_EVER
from results.row_order import Moment, TimedRows, nth_newest
from results.window import CountWindow, RowWindow, TimeWindow


@dataclass(frozen=True, slots=True)
class Region:
    """Rows with `since <= (ts, row_id) < until` and `lo <= row_id < hi`.

    A `since` of None is the beginning of time.
    """

    since: Moment | None
    until: Moment
    lo: int
    hi: int

    @property
    def begin(self) -> int | None:
        """The least ts a row of the region may have; None if there is no least one."""
        return None if self.since is None else self.since[0]

    @property
    def end(self) -> int:
        """An instant that is later than the ts of every row of the region."""
        return self.until[0] + (self.until[1] > 0)

    @property
    def empty(self) -> bool:
        late = self.since is not None and self.since >= self.until
        return late or self.lo >= self.hi

    @property
    def instants_only(self) -> bool:
        """Whether all rows of one ts are on the same side of each end."""
        return self.until[1] <= 0 and (self.since is None or self.since[1] <= 0)

    def contains(self, low: int, high: int, first: int, stop: int) -> bool:
        """Return True if the region is sure to hold every row with ts in `[low, high]` and id in
                `[first, stop)`.

        The rows themselves are not read, so the answer may be False although the region holds all
        of them.
        """
        # No row is before (low, first) or after (high, stop - 1).
        after = self.since is None or (low, first) >= self.since
        return after and (high, stop - 1) < self.until and self.lo <= first and stop <= self.hi

    def holds(self, ts: Int64s, ids: Int64s) -> Mask:
        """Return a mask of the given rows: true for those in the region."""
        inside = (ids >= self.lo) & (ids < self.hi) & _before(ts, ids, self.until)
        return inside if self.since is None else inside & ~_before(ts, ids, self.since)

    def narrowed(self, since: Moment | None = None, until: Moment | None = None) -> Region:
        """Return the part of the region at or after `since`, and before `until`."""
        later = self.since if since is None else max(since, self.since or since)
        sooner = self.until if until is None else min(until, self.until)
        return Region(later, sooner, self.lo, self.hi)

    def common(self, region: Region) -> Region:
        """Return the rows of both regions."""
        level = self.narrowed(region.since, region.until)
        return replace(level, lo=max(self.lo, region.lo), hi=min(self.hi, region.hi))

    def minus(self, region: Region) -> list[Region]:
        """Return the rows of this region that `region` does not hold, as disjoint regions, none
        empty."""
        if self.empty or region.empty:
            return [] if self.empty else [self]
        level = self.narrowed(region.since, region.until)
        # Disjoint: what is before the other region, what is after it, and within its times the ids
        # below and above it.
        parts = [
            self.narrowed(until=region.since) if region.since is not None else None,
            self.narrowed(since=region.until),
            replace(level, hi=min(self.hi, region.lo)),
            replace(level, lo=max(self.lo, region.hi)),
        ]
        return [part for part in parts if part is not None and not part.empty]


def _before(ts: Int64s, ids: Int64s, moment: Moment) -> Mask:
    # Ids are 0 or more, so this moment does not divide rows of one ts.
    if moment[1] <= 0:
        return np.asarray(ts < moment[0])
    return np.asarray((ts < moment[0]) | ((ts == moment[0]) & (ids < moment[1])))


# ---- from a window to its region


def time_region(window: TimeWindow, now: int, oldest: int | None, high: int) -> Region:
    """Return the region of a time window at `now`."""
    begin, end = window.at(now)
    return Region(_since(begin, oldest), (end, 0), 0, high)


def row_region(window: RowWindow, now: int, oldest: int | None, high: int) -> Region:
    """Return the region of a window over row ids at `now`."""
    lo, hi = window.at(high - 1)
    return Region(_since(oldest), (now + 1, 0), lo, min(hi, high))


def count_region(
    window: CountWindow, past: Region, newest: Sequence[TimedRows], total: int
) -> Region:
    """Return the region of a window that counts rows.

    `past` holds all retained rows with ts up to NOW. `total` counts the stream's rows with ts up to
    NOW, retained or not. `newest` are rows of `past`: all of them, or at least its newest
    `deciding_rows(window, total)`. For a window with partitions the result is the region from
    which the newest rows of each partition are then chosen.
    """
    skip, past = _skipped(window, total), slid_region(window, past, newest, total)
    if window.partition_by:
        return past
    first = nth_newest(newest, skip + window.rows)
    return past if first is None else past.narrowed(since=first)


def slid_region(
    window: CountWindow, past: Region, newest: Sequence[TimedRows], total: int
) -> Region:
    """Return the part of `past` up to the last row at which SLIDE moves the window; all of it
    without SLIDE. The parameters are those of `count_region`."""
    skip = _skipped(window, total)
    if not skip:
        return past
    # The newest `skip` rows came after the last slide. If fewer are retained, nothing is left.
    last = nth_newest(newest, skip)
    return past.narrowed(until=past.since or (SINCE_EVER, 0) if last is None else last)


def deciding_rows(window: CountWindow, total: int) -> int:
    """Return how many of the newest rows `count_region` needs; `total` is the same as there."""
    return _skipped(window, total) + (0 if window.partition_by else window.rows)


def _skipped(window: CountWindow, total: int) -> int:
    return 0 if window.slide is None else total % window.slide


def _since(*begins: int | None) -> Moment | None:
    bounds = [begin for begin in begins if begin is not None]
    return (max(bounds), 0) if bounds else None


# ---- from a row's ts to the instants at which a time window holds it
#
# Both ends of the interval rise with ts, so the rows that are visible at some NOW of
# `[now, horizon]` are those of one interval of ts.


def visible(window: TimeWindow, ts: Int64s, retain: int | None) -> tuple[Int64s, Int64s]:
    """Return the interval `[visible_from, visible_until)` of NOW in which the window holds the row
    of each ts.

    An end is FOR_EVER if nothing ends it; the interval of a row that is never in the window is
    empty. `retain` is how long the stream keeps a row.
    """
    begin, end = window.begin, window.end
    first, until = ts.copy(), np.full_like(ts, FOR_EVER)
    never = np.zeros(len(ts), np.bool_)
    if end is not None and end.relative:
        # The window holds the row once its end is later than ts.
        np.maximum(first, end.past(ts), out=first)
    elif end is not None and end.fixed is not None:
        never |= ts >= end.fixed
    if begin is not None and begin.relative:
        # The window holds the row until its begin is later than ts.
        until = begin.past(ts)
    elif begin is not None and begin.fixed is not None:
        never |= ts < begin.fixed
    if window.slide is not None:
        # The window moves only at multiples of SLIDE, so both ends wait for the next one.
        first = _next_multiple(first, window.slide)
        if begin is not None and begin.relative:
            until = _next_multiple(until, window.slide)
    until = np.minimum(until, leaving(ts, retain))
    return np.where(never, FOR_EVER, first), until


def leaving(ts: Int64s, retain: int | None) -> Int64s:
    """Return the first NOW at which the row of each ts is no longer retained."""
    return np.full_like(ts, FOR_EVER) if retain is None else ts + retain


def horizon_region(
    window: TimeWindow, now: int, horizon: int | None, oldest: int | None, high: int
) -> Region:
    """Return the rows that are visible at `now`, or enter the window up to `horizon` (None:
    ever)."""
    begin, _ = window.at(now)
    return Region(_since(begin, oldest), (entered(window, horizon), 0), 0, high)


def entered(window: TimeWindow, horizon: int | None) -> int:
    """Return the ts below which rows, and no others, have entered the window by `horizon`."""
    if horizon is not None:
        return window.at(horizon)[1]
    fixed = None if window.end is None else window.end.fixed
    return FOR_EVER if fixed is None else fixed


def _next_multiple(instants: Int64s, step: int) -> Int64s:
    return -(-instants // step) * step
