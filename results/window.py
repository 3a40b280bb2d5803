"""Windows: which rows of a stream belong to the answer at an instant NOW.

Intervals are half-open: `[begin, end)`, in microseconds of ts or in row ids. In the language both
ends belong to a window; the binder adds 1 to the end, once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from datastem.arrays import Int64s
from datastem.calendar import Unit, instants_past, present_begin
from datastem.zones import MAX_SETBACK, UTC_RULES, ZoneRules, Zones


@dataclass(frozen=True, slots=True)
class Bound:
    """An end of a window: `offset` itself, or the present plus `offset` if it is relative."""

    offset: int
    relative: bool

    def at(self, present: int) -> int:
        return present + self.offset if self.relative else self.offset

    @property
    def fixed(self) -> int | None:
        """The point itself, if it does not move."""
        return None if self.relative else self.offset

    @property
    def farthest(self) -> int:
        """The least offset from the present that a relative bound can have."""
        return self.offset

    @property
    def nearest(self) -> int:
        """The greatest offset from the present that a relative bound can have."""
        return self.offset

    def past(self, ts: Int64s) -> Int64s:
        """Return the first present at which a relative bound is later than each ts."""
        return ts - self.offset + 1


@dataclass(frozen=True, slots=True)
class CalendarBound:
    """An end of a window that moves with the calendar: the begin of the unit that is `back` units
    before the present one.

    `zone` names a time zone, `""` is UTC. A bound that was read from a text has no `rules` yet, and
    has no place in time; `with_rules` gives them to its window.
    """

    unit: Unit
    back: int
    zone: str = ""
    rules: ZoneRules | None = None

    relative = True
    fixed = None

    def at(self, present: int) -> int:
        return present_begin(self.unit, self._known_rules, present, self.back)

    @property
    def width(self) -> int:
        """The longest time from this bound to the begin of the present unit."""
        return self.back * self.unit.longest + self._setback

    @property
    def farthest(self) -> int:
        # The present unit may be as good as over.
        return 1 - (self.back + 1) * self.unit.longest - self._setback

    @property
    def nearest(self) -> int:
        # Units may be empty.
        return 0

    def past(self, ts: Int64s) -> Int64s:
        """Return the first present at which the bound is later than each ts."""
        return instants_past(self.unit, self._known_rules, ts, self.back)

    @property
    def _setback(self) -> int:
        return MAX_SETBACK if self.zone else 0

    @property
    def _known_rules(self) -> ZoneRules:
        rules = self.rules if self.zone else UTC_RULES
        if rules is None:
            raise LookupError(f"the window has no rules of the time zone {self.zone} yet")
        return rules


TimeBound = Bound | CalendarBound


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """Rows with a ts between two ends.

    Without `begin` the window starts at the first row retained, without `end` it reaches up to and
    including NOW. With `slide`, NOW is first set back to a multiple of it, counted from 1970-01-01
    UTC.
    """

    begin: TimeBound | None = None
    end: TimeBound | None = None
    slide: int | None = None

    @property
    def enters_in_steps(self) -> bool:
        """Whether rows of different ts enter the window at one instant."""
        return self.slide is not None or isinstance(self.end, CalendarBound)

    @property
    def by_calendar(self) -> bool:
        """Whether the window moves with calendar units."""
        return isinstance(self.begin, CalendarBound)

    @property
    def zones(self) -> set[str]:
        """The names of the time zones that the window needs rules of."""
        bounds = self.begin, self.end
        return {b.zone for b in bounds if isinstance(b, CalendarBound) and b.zone}

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
class MovingEnd:
    """An end of a window as an instant that follows from NOW, which `slide` first sets back as that
    of the window does."""

    bound: TimeBound
    slide: int | None = None

    def at(self, now: int) -> int:
        return self.bound.at(now if self.slide is None else now - now % self.slide)

    def past(self, ts: Int64s) -> Int64s:
        """Return the first NOW at which the end is later than each ts."""
        instants = self.bound.past(ts)
        return instants if self.slide is None else -(-instants // self.slide) * self.slide


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


def with_rules(window: Window, zones: Zones) -> Window:
    """Return the window with the rules of its time zones; raise KeyError if `zones` lacks one."""
    if not isinstance(window, TimeWindow) or not window.zones:
        return window
    return replace(window, begin=_ruled(window.begin, zones), end=_ruled(window.end, zones))


def _ruled(bound: TimeBound | None, zones: Zones) -> TimeBound | None:
    if not isinstance(bound, CalendarBound) or not bound.zone:
        return bound
    return replace(bound, rules=zones[bound.zone])


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


def _bound_json(bound: TimeBound | None) -> list[Any] | None:
    match bound:
        case None:
            return None
        case Bound(offset, relative):
            return [offset, relative]
        case CalendarBound(unit, back, zone):
            return [unit.value, back, zone]


def _bound(form: list[Any] | None) -> TimeBound | None:
    match form:
        case None:
            return None
        case [str() as unit, back, zone]:
            return CalendarBound(Unit(unit), back, zone)
        case _:
            return Bound(*form)
