"""A `Window` as the text that binds to it."""

from __future__ import annotations

from datastem.instants import format_instant
from querystem.language.durations import UNITS, write_duration
from querystem.language.words import write_name
from results.window import UNBOUNDED, Bound, CountWindow, RowWindow, TimeWindow, Window

_LARGER = 2 * max(UNITS.values())


def window_text(window: Window) -> str:
    """The clause in normal form; binding it again gives the same window."""
    match window:
        case TimeWindow():
            return _time_text(window)
        case RowWindow(begin, end):
            last = Bound(end.offset - 1, end.relative)
            return f"BEGIN {_row_text(begin)} END {_row_text(last)}"
        case CountWindow():
            return _count_text(window)


def _time_text(window: TimeWindow) -> str:
    if window == UNBOUNDED:
        return "UNBOUNDED"
    begin, end = window.begin, window.end
    if window.slide is not None:
        assert begin and begin.relative and end is None, "only RANGE slides"
        return f"{_range_text(begin)} SLIDE {write_duration(window.slide)}"
    if begin and begin.relative and end is None and _reads_as_range(begin.offset):
        return _range_text(begin)
    last = Bound(0, True) if end is None else Bound(end.offset - 1, end.relative)
    first = "'0001-01-01 00:00:00'" if begin is None else _instant_text(begin)
    return f"BEGIN {first} END {_instant_text(last)}"


def _range_text(begin: Bound) -> str:
    return f"RANGE {write_duration(1 - begin.offset)}"


def _reads_as_range(offset: int) -> bool:
    return offset <= 0 and _unit_size(1 - offset) > _unit_size(-offset)


def _unit_size(micros: int) -> int:
    return max(size for size in UNITS.values() if micros % size == 0) if micros else _LARGER


def _instant_text(bound: Bound) -> str:
    if not bound.relative:
        return f"'{format_instant(bound.offset)}'"
    return f"NOW - {write_duration(-bound.offset)}" if bound.offset else "NOW"


def _row_text(bound: Bound) -> str:
    if not bound.relative:
        return f"ROW {bound.offset}"
    return f"ROW LAST - {-bound.offset}" if bound.offset else "ROW LAST"


def _count_text(window: CountWindow) -> str:
    text = f"ROWS {window.rows}"
    if window.slide is not None:
        text += f" SLIDE {window.slide}"
    if window.partition_by:
        text += f" PARTITION BY {', '.join(map(write_name, window.partition_by))}"
    return text
