"""Calendar units as instants: hours, days, weeks, months, quarters and years of a time zone.

A unit begins when the zone's clock first shows its first instant. So a day that a zone skips is
empty, and a day with a clock change has another length. Hours have 60 minutes always: they are
counted back from the zone's last whole hour. All functions take and return microseconds.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

import numpy as np

from datastem.arrays import Int64s
from datastem.instants import DAY, HOUR
from datastem.zones import ZoneRules


class Unit(enum.StrEnum):
    """A calendar unit, as it is written. A week begins on Monday unless it is WEEK SUNDAY."""

    HOUR = "HOUR"
    DAY = "DAY"
    WEEK = "WEEK"
    WEEK_SUNDAY = "WEEK SUNDAY"
    MONTH = "MONTH"
    QUARTER = "QUARTER"
    YEAR = "YEAR"

    @property
    def longest(self) -> int:
        """The longest that the unit can be without a clock change."""
        return _LONGEST[self]


# Calendar windows of one zone whose begins are cached.
_MAX_SPANS = 1000
_LONGEST = {
    Unit.HOUR: HOUR,
    Unit.DAY: DAY,
    Unit.WEEK: 7 * DAY,
    Unit.WEEK_SUNDAY: 7 * DAY,
    Unit.MONTH: 31 * DAY,
    Unit.QUARTER: 92 * DAY,
    Unit.YEAR: 366 * DAY,
}


def unit_begin(unit: Unit, rules: ZoneRules, instants: Int64s, back: int = 0) -> Int64s:
    """Return the begin of the unit that is `back` units before the one of each instant."""
    if unit is Unit.HOUR:
        return _hours(rules, instants) - back * HOUR
    return _first_at(rules, _midnight(unit, _number(unit, rules, instants) - back))


def present_begin(unit: Unit, rules: ZoneRules, present: int, back: int = 0) -> int:
    """Return `unit_begin` of one instant; it is cached for as long as the unit lasts."""
    spans: dict[tuple[Unit, int], tuple[int, int, int]] = rules.__dict__.setdefault("_spans", {})
    first, until, begin = spans.get((unit, back), (0, 0, 0))
    if first <= present < until:
        return begin
    begin = int(unit_begin(unit, rules, np.array([present]), back)[0])
    until = int(instants_past(unit, rules, np.array([begin]), back)[0])
    if len(spans) >= _MAX_SPANS:
        spans.clear()
    # Begins never go back, so the present instant and all up to the next begin have this one.
    spans[unit, back] = present, until, begin
    return begin


def instants_past(unit: Unit, rules: ZoneRules, instants: Int64s, back: int = 0) -> Int64s:
    """Return for each of `instants` the first instant whose `unit_begin` is later than it."""
    if unit is Unit.HOUR:
        return _hour_past(rules, instants + back * HOUR)
    return _first_at(rules, _midnight(unit, _number(unit, rules, instants) + 1 + back))


# ---- days and longer


def _number(unit: Unit, rules: ZoneRules, instants: Int64s) -> Int64s:
    """Return the number of the last unit that has begun at each instant, counted from 1970.

    If the clock was set back across midnight, the day that had begun goes on.
    """
    places = rules.places(instants)
    local = np.maximum(instants + rules.offsets[places], _latest_local(rules)[places])
    days: Int64s = local // DAY
    match unit:
        case Unit.WEEK | Unit.WEEK_SUNDAY:
            days = (days + _WEEK_SHIFT[unit]) // 7
        case Unit.MONTH | Unit.QUARTER | Unit.YEAR:
            months: Int64s = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
            days = months // _MONTHS[unit]
    return np.asarray(days)


def _midnight(unit: Unit, numbers: Int64s) -> Int64s:
    """Return what the clock shows at the begin of each unit."""
    match unit:
        case Unit.WEEK | Unit.WEEK_SUNDAY:
            days = numbers * 7 - _WEEK_SHIFT[unit]
        case Unit.MONTH | Unit.QUARTER | Unit.YEAR:
            first_days = (numbers * _MONTHS[unit]).astype("datetime64[M]").astype("datetime64[D]")
            days = first_days.astype(np.int64)
        case _:
            days = numbers
    return np.asarray(days * DAY)


# 1970-01-01 was a Thursday: days since the Monday and the Sunday before it.
_WEEK_SHIFT = {Unit.WEEK: 3, Unit.WEEK_SUNDAY: 4}
_MONTHS = {Unit.MONTH: 1, Unit.QUARTER: 3, Unit.YEAR: 12}


def _first_at(rules: ZoneRules, local: Int64s) -> Int64s:
    """Return the first instant at which the zone's clock shows `local` or later."""
    # The first stretch of one offset by whose end the clock has passed `local`.
    places = _latest_local(rules)[1:].searchsorted(local)
    first: Int64s = np.maximum(rules.starts[places], local - rules.offsets[places])
    return first


def _latest_local(rules: ZoneRules) -> Int64s:
    """Return for each offset of the rules the latest that the clock showed before it began."""

    def compute() -> Int64s:
        # The stretch of offset n ends where that of offset n + 1 starts.
        local = rules.starts[1:] - 1 + rules.offsets[:-1]
        return np.append(rules.starts[0], np.maximum.accumulate(local))

    return _cached(rules, "_latest_local", compute)


# ---- hours


def _hours(rules: ZoneRules, instants: Int64s) -> Int64s:
    """Return the last whole hour of the zone's clock at each instant."""
    places = rules.places(instants)
    hours = instants - (instants + rules.offsets[places]) % HOUR
    return np.maximum(hours, _hour_before(rules)[places])


def _hour_past(rules: ZoneRules, instants: Int64s) -> Int64s:
    """Return for each of `instants` the first instant whose hour begins later than it."""
    places = rules.places(instants)
    following = np.minimum(places + 1, len(rules.starts) - 1)
    hours = instants - (instants + rules.offsets[places]) % HOUR + HOUR
    change = rules.starts[following]
    # If the offset changes first, its new hour may have begun in the past.
    new_hour = change - (change + rules.offsets[following]) % HOUR
    moved = np.where(new_hour > instants, change, new_hour + HOUR)
    return np.where((hours < change) | (following == places), hours, moved)


def _hour_before(rules: ZoneRules) -> Int64s:
    """Return for each offset of the rules the last hour that had begun before it: an hour that has
    begun is not taken back."""

    def compute() -> Int64s:
        ends = rules.starts[1:] - 1
        hours = ends - (ends + rules.offsets[:-1]) % HOUR
        return np.append(rules.starts[0], np.maximum.accumulate(hours))

    return _cached(rules, "_hour_before", compute)


def _cached(rules: ZoneRules, name: str, compute: Callable[[], Int64s]) -> Int64s:
    """Return an array that follows from rules, which is computed once for each of them."""
    array: Int64s | None = rules.__dict__.get(name)
    if array is None:
        array = rules.__dict__[name] = compute()
    return array
