"""How far apart the parts of a combination may be: the distance that windows allow at one NOW."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

from results.window import Bound, TimeWindow, Window


@dataclass(frozen=True, slots=True)
class _Stretch:
    """The ts that a window may hold, both ends included: counted from NOW, or fixed instants."""

    first: int
    last: int
    relative: bool


def reach_of(windows: Sequence[Window]) -> int | None:
    """The greatest distance between the ts of two rows that two of these windows hold at any one
    NOW, at least 0; None where there is no limit to it."""
    stretches = [_stretch(window) for window in windows]
    known = [one for one in stretches if one is not None]
    if len(known) < len(windows) or len({one.relative for one in known}) > 1:
        return None
    return max([0, *(one.last - other.first for one, other in permutations(known, 2))])


def _stretch(window: Window) -> _Stretch | None:
    """The stretch of time that a window holds; None where it has no such ends."""
    if not isinstance(window, TimeWindow) or window.begin is None:
        return None
    begin, end = window.begin, window.end or Bound(1, True)
    if begin.relative:
        behind = 0 if window.slide is None else window.slide - 1
        # No window holds rows past NOW, also not one with a fixed end.
        last = min(end.offset - 1, 0) if end.relative else 0
        return _Stretch(begin.offset - behind, last, True)
    return None if end.relative else _Stretch(begin.offset, end.offset - 1, False)
