"""The reach of windows: how far back from NOW, for each leg of a query, and how far apart the parts
of a combination may be at one NOW."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

from querystem.query import Query
from querystem.refresh import periodic
from results.window import Bound, CalendarBound, TimeWindow, Window


def leg_begins(query: Query) -> tuple[Bound | None, ...]:
    """Return the least ts that the window of each leg can hold: an instant, or a distance before
    the query's NOW; None if rows of any age count.

    SLIDE and REFRESH EVERY may set NOW back by their length. REFRESH ON may do so by any length.
    """
    return tuple(_leg_begin(query, number) for number in range(len(query.legs)))


def _leg_begin(query: Query, number: int) -> Bound | None:
    leg = query.legs[number]
    around = [part.refresh for part in query.refreshed_parts if number in part.legs]
    if leg.as_of is not None or not all(map(periodic, around)):
        return None
    begin = time_begin(leg.window)
    if begin is None or not begin.relative:
        return begin
    return Bound(begin.offset - (query.period_of(number) or 1) + 1, True)


def time_begin(window: Window) -> Bound | None:
    """Return the least ts that a window can hold, for a calendar window the farthest from NOW that
    it ever is; None if it is not bounded by time."""
    if not isinstance(window, TimeWindow) or window.begin is None:
        return None
    if window.begin.fixed is not None:
        return Bound(window.begin.fixed, False)
    return Bound(window.begin.farthest - (window.slide or 1) + 1, True)


@dataclass(frozen=True, slots=True)
class _Stretch:
    """The ts that a window may hold, both ends included: counted from NOW, or fixed instants."""

    first: int
    last: int
    relative: bool


def reach_of(windows: Sequence[Window]) -> int | None:
    """Return the greatest distance between the ts of two rows that two of these windows hold at any
    one NOW, at least 0; None if there is no limit to it."""
    if len(set(windows)) == 1 and (width := _units_width(windows[0])) is not None:
        return width - 1
    stretches = [_stretch(window) for window in windows]
    bounded = [stretch for stretch in stretches if stretch is not None]
    if len(bounded) < len(windows) or len({stretch.relative for stretch in bounded}) > 1:
        return None
    return max([0, *(later.last - earlier.first for later, earlier in permutations(bounded, 2))])


def _units_width(window: Window) -> int | None:
    """Return the longest time that a calendar window can span; None for other windows."""
    if not isinstance(window, TimeWindow) or not isinstance(window.begin, CalendarBound):
        return None
    # Without an end the present unit is in the window, and may be as good as over.
    return window.begin.width if window.end is not None else 1 - window.begin.farthest


def _stretch(window: Window) -> _Stretch | None:
    """Return the stretch of time that a window holds; None if it has no such ends."""
    if not isinstance(window, TimeWindow) or window.begin is None:
        return None
    begin, end = time_begin(window), window.end or Bound(1, True)
    assert begin is not None, "the window has a begin"
    if begin.relative:
        # No window holds rows past NOW, also not one with a fixed end.
        last = min(end.nearest - 1, 0) if end.relative else 0
        return _Stretch(begin.offset, last, True)
    return None if end.fixed is None else _Stretch(begin.offset, end.fixed - 1, False)
