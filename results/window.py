"""Windows: which rows of a stream belong to the answer at an instant NOW.

Intervals are half-open: `[begin, end)`, in microseconds of ts or in row ids. In the language both
ends belong to a window; the binder adds 1 to the end, once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Bound:
    """An end of a window: `offset` itself, or the present plus `offset` if it is relative."""

    offset: int
    relative: bool

    def at(self, present: int) -> int:
        return present + self.offset if self.relative else self.offset


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """Rows with a ts between two ends.

    Without `begin` the window starts at the first row retained, without `end` it reaches up to and
    including NOW. With `slide`, NOW is first set back to a multiple of it, counted from 1970-01-01
    UTC.
    """

    begin: Bound | None = None
    end: Bound | None = None
    slide: int | None = None

    def present(self, now: int) -> int:
        """Return the instant the window is of at `now`: `slide` sets it back."""
        return now if self.slide is None else now - now % self.slide

    def at(self, now: int) -> tuple[int | None, int]:
        """Return the interval `[begin, end)` of ts at `now`; empty if begin >= end.

        Rows with a ts after NOW enter when NOW reaches it.
        """
        present = self.present(now)
        # An end past NOW is cut off: later rows are not in the window yet. The interval is
        # half-open.
        limit = present + 1
        end = limit if self.end is None else min(self.end.at(present), limit)
        return (None if self.begin is None else self.begin.at(present)), end


@dataclass(frozen=True, slots=True)
class RowWindow:
    """Rows with an id in `[begin, end)` and a ts up to NOW.

    A relative bound counts from LAST, the greatest row id at the answer's position.
    """

    begin: Bound
    end: Bound

    def at(self, last: int) -> tuple[int, int]:
        """Return the interval `[begin, end)` of row ids; `last` is LAST, -1 for a stream without
        rows."""
        return max(self.begin.at(last), 0), min(self.end.at(last), last + 1)


@dataclass(frozen=True, slots=True)
class CountWindow:
    """The newest `rows` by (ts, row_id) with a ts up to NOW: of the stream, or of each partition.

    With `slide`, of the n rows of the stream with ts up to NOW, retained or not, only the first
    n - n % slide count.
    """

    rows: int
    slide: int | None = None
    partition_by: tuple[str, ...] = ()


Window = TimeWindow | RowWindow | CountWindow

UNBOUNDED = TimeWindow()


def depends_on_now(window: Window) -> bool:
    """Return True if a window over the same rows holds different ones at another NOW.

    Rows with a ts after NOW, which enter when NOW reaches it, do not count.
    """
    match window:
        case TimeWindow(begin, end, slide):
            relative = [bound for bound in (begin, end) if bound is not None and bound.relative]
            return bool(relative) or slide is not None
        case RowWindow():
            return False
        case CountWindow():
            return True


def window_to_json(window: Window) -> dict[str, Any]:
    match window:
        case TimeWindow(begin, end, slide):
            return {
                "kind": "time",
                "begin": _bound_json(begin),
                "end": _bound_json(end),
                "slide": slide,
            }
        case RowWindow(begin, end):
            return {"kind": "row", "begin": _bound_json(begin), "end": _bound_json(end)}
        case CountWindow(rows, slide, partition_by):
            return {
                "kind": "count",
                "rows": rows,
                "slide": slide,
                "partition_by": list(partition_by),
            }


def window_from_json(form: Mapping[str, Any]) -> Window:
    match form["kind"]:
        case "time":
            return TimeWindow(_bound(form["begin"]), _bound(form["end"]), form["slide"])
        case "row":
            return RowWindow(Bound(*form["begin"]), Bound(*form["end"]))
        case "count":
            return CountWindow(form["rows"], form["slide"], tuple(form["partition_by"]))
        case kind:
            raise ValueError(f"a window of an unknown kind: {kind}")


def _bound_json(bound: Bound | None) -> list[Any] | None:
    return None if bound is None else [bound.offset, bound.relative]


def _bound(form: list[Any] | None) -> Bound | None:
    return None if form is None else Bound(form[0], form[1])
