"""When a row is in a window: from its ts to an interval of NOW, and from an interval of NOW to ts.

Both ends of the interval rise with ts, so the rows that are visible at some NOW of `[now, horizon]`
are those of one interval of ts.
"""

from __future__ import annotations

import numpy as np

from datastem.arrays import Int64s
from results.region import Region
from results.window import TimeWindow

SINCE_EVER: int = np.iinfo(np.int64).min
FOR_EVER: int = np.iinfo(np.int64).max

_LAST_TS = 1 << 62


def visible(window: TimeWindow, ts: Int64s, retain: int | None) -> tuple[Int64s, Int64s]:
    """`[visible_from, visible_until)` of NOW for rows with these ts; empty for rows never in it.

    FOR_EVER where nothing ends it. Of rows with the same ts both are the same.
    """
    begin, end = window.begin, window.end
    first, until = ts.copy(), np.full_like(ts, FOR_EVER)
    never = np.zeros(len(ts), np.bool_)
    if end is not None and end.relative:
        np.maximum(first, ts - end.offset + 1, out=first)
    elif end is not None:
        never |= ts >= end.offset
    if begin is not None and begin.relative:
        until = ts - begin.offset + 1
    elif begin is not None:
        never |= ts < begin.offset
    if window.slide is not None:
        first = _next_multiple(first, window.slide)
        if begin is not None and begin.relative:
            until = _next_multiple(until, window.slide)
    until = np.minimum(until, leaving(ts, retain))
    return np.where(never, FOR_EVER, first), until


def leaving(ts: Int64s, retain: int | None) -> Int64s:
    """The first NOW at which rows are no longer retained."""
    return np.full_like(ts, FOR_EVER) if retain is None else ts + retain


def held(
    window: TimeWindow, now: int, horizon: int | None, oldest: int | None, high: int
) -> Region:
    """The rows below `high` that are visible at NOW or enter up to `horizon`; None: at any time.

    `oldest` is the least ts that is retained at NOW.
    """
    begin, _ = window.at(now)
    begins = [one for one in (begin, oldest) if one is not None]
    since = (max(begins), 0) if begins else None
    return Region(since, (entered(window, horizon), 0), 0, high)


def entered(window: TimeWindow, horizon: int | None) -> int:
    """Rows with a ts below this, and no others, have entered the window by the horizon."""
    if horizon is not None:
        return window.at(horizon)[1]
    fixed = window.end is not None and not window.end.relative
    return window.end.offset if fixed and window.end is not None else _LAST_TS


def _next_multiple(instants: Int64s, step: int) -> Int64s:
    return -(-instants // step) * step
