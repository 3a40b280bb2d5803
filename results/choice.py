"""Windows to regions. Windows choose rows before WHERE does.

Everywhere `oldest` is the least ts that is retained (None: all are), and `high` the next row id at
the answer's position.
"""

from __future__ import annotations

from collections.abc import Sequence

from results.newest import Run, nth_newest
from results.region import Region
from results.window import CountWindow, RowWindow, TimeWindow


def by_time(window: TimeWindow, now: int, oldest: int | None, high: int) -> Region:
    begin, end = window.at(now)
    begins = [one for one in (begin, oldest) if one is not None]
    return Region((max(begins), 0) if begins else None, (end, 0), 0, high)


def by_row(window: RowWindow, now: int, oldest: int | None, high: int) -> Region:
    lo, hi = window.at(high - 1)
    return Region(None if oldest is None else (oldest, 0), (now + 1, 0), lo, min(hi, high))


def by_count(window: CountWindow, past: Region, runs: Sequence[Run], total: int) -> Region:
    """`past` has all rows retained with ts up to NOW; `total` counts those not retained too.

    `runs` are rows of `past`: at least its newest `reach(window, total)`, or all. Of a window
    with partitions this is the region they are chosen from.
    """
    skip = _skipped(window, total)
    if skip and (last := nth_newest(runs, skip)):
        past = past.narrowed(until=last)
    elif skip:
        past = past.narrowed(until=past.since or (-(1 << 63), 0))
    if window.partition_by:
        return past
    first = nth_newest(runs, skip + window.rows)
    return past if first is None else past.narrowed(since=first)


def reach(window: CountWindow, total: int) -> int:
    """How many of the newest rows decide the region."""
    return _skipped(window, total) + (0 if window.partition_by else window.rows)


def _skipped(window: CountWindow, total: int) -> int:
    return 0 if window.slide is None else total % window.slide
