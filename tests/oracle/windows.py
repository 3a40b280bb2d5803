"""Which rows a window holds: sort them all, leave out those that are not shown, then count."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from results.window import (
    Bound,
    CalendarBound,
    CountWindow,
    RowWindow,
    TimeBound,
    TimeWindow,
    Window,
)
from tests.oracle.calendar import naive_begin
from tests.oracle.grouping import identity

Row = Mapping[str, Any]
# Tells whether the policies of a stream show a row.
Shown: TypeAlias = Callable[[Row], bool]


def everything(row: Row) -> bool:
    """Return True: without a policy every row is visible."""
    return True


def naive_window(
    window: Window,
    rows: Iterable[Row],
    now: int,
    retain: int | None,
    is_visible: Shown = everything,
) -> list[Row]:
    """By (ts, row_id). `rows` are all that were ever accepted, or those that are current: SLIDE and
    ROW LAST count all of them, ROWS n those that are shown."""
    sorted_rows = sorted(rows, key=lambda row: (row["ts"], row["row_id"]))
    past = [row for row in sorted_rows if row["ts"] <= now]
    match window:
        case TimeWindow():
            chosen = [row for row in past if _in_time(window, row["ts"], now)]
        case RowWindow(begin, end):
            last = max((row["row_id"] for row in sorted_rows), default=-1)
            chosen = [
                row for row in past if _point(begin, last) <= row["row_id"] < _point(end, last)
            ]
        case CountWindow(_, slide, _):
            counted = past if slide is None else past[: len(past) // slide * slide]
            remaining = [row for row in counted if _retained(row, now, retain) and is_visible(row)]
            return _newest(window, remaining)
    return [row for row in chosen if _retained(row, now, retain) and is_visible(row)]


def _retained(row: Row, now: int, retain: int | None) -> bool:
    return retain is None or row["ts"] > now - retain


def _point(bound: Bound, present: int) -> int:
    return bound.offset + present if bound.relative else bound.offset


def _end_of_window(bound: TimeBound, present: int) -> int:
    if isinstance(bound, CalendarBound):
        return naive_begin(bound.unit, bound.zone or "UTC", present, bound.back)
    return _point(bound, present)


def _in_time(window: TimeWindow, ts: int, now: int) -> bool:
    present = now if window.slide is None else now // window.slide * window.slide
    begins = window.begin is None or _end_of_window(window.begin, present) <= ts
    ends = window.end is None or ts < _end_of_window(window.end, present)
    return begins and ends and ts <= present


def _newest(window: CountWindow, rows: list[Row]) -> list[Row]:
    counts: dict[Any, int] = {}
    chosen = []
    for row in reversed(rows):
        partition = tuple(identity(row[name]) for name in window.partition_by)
        counts[partition] = counts.get(partition, 0) + 1
        if counts[partition] <= window.rows:
            chosen.append(row)
    return chosen[::-1]
