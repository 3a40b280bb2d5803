"""EXTRACT and DATE_TRUNC, for any day the language has; EXTRACT of durations; time zones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from datastem.arrays import Array
from datastem.calendar import Unit, unit_begin
from datastem.instants import DAY, HOUR, MAX_INSTANT, MIN_INSTANT, MINUTE, SECOND
from datastem.types import TIMESTAMP, Kind, Type
from datastem.zones import ZoneRules
from querystem.kernel.arithmetic import quotients
from querystem.kernel.vector import Vector, both

# Weeks begin on Monday; 1970-01-01 was a Thursday.
_MONDAY = 3

_SPANS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": SECOND,
    "minute": MINUTE,
    "hour": HOUR,
    "day": DAY,
}
# The units whose length depends on the zone, or that begin with its hours.
_ZONE_UNITS = {unit.value.lower(): unit for unit in Unit if unit is not Unit.WEEK_SUNDAY}
# The units of durations, in microseconds.
DURATION_UNITS = {**_SPANS, "week": 7 * DAY}


def micros_of(operand: Vector) -> Array:
    """Return a TIMESTAMP's microseconds, or those of a DATE's midnight."""
    micros: Array = operand.values * DAY if operand.type.kind is Kind.DATE else operand.values
    return micros


def days_of(operand: Vector) -> Array:
    # Floor division also rounds instants before 1970 down, to the day they are in.
    days: Array = operand.values if operand.type.kind is Kind.DATE else operand.values // DAY
    return days


def date_trunc(unit: str, operand: Vector) -> Vector:
    """Return the beginning of the unit that each moment is in; raise ValueError for an unknown
    unit."""
    if unit in _SPANS:
        micros = micros_of(operand)
        # The remainder is never negative, also before 1970.
        return Vector(TIMESTAMP, micros - micros % _SPANS[unit], operand.valid)
    if unit not in _DAY_TRUNCS:
        raise ValueError(f"date_trunc has no unit {unit!r}")
    return Vector(TIMESTAMP, _DAY_TRUNCS[unit](days_of(operand)) * DAY, operand.valid)


def date_trunc_in(unit: str, rules: ZoneRules, operand: Vector) -> Vector:
    """Return the beginning of the unit of a time zone that each instant is in, NULL if no TIMESTAMP
    is so early; raise ValueError for an unknown unit."""
    if unit in _ZONE_UNITS:
        return _instants(unit_begin(_ZONE_UNITS[unit], rules, operand.values), operand)
    if unit not in _SPANS:
        raise ValueError(f"date_trunc has no unit {unit!r}")
    return _instants(operand.values - rules.to_local(operand.values) % _SPANS[unit], operand)


def at_time_zone(rules: ZoneRules, operand: Vector) -> Vector:
    """Return what the zone's clock shows at each instant as if it were UTC, NULL if no TIMESTAMP is
    so early or late."""
    return _instants(rules.to_local(operand.values), operand)


def _instants(micros: Array, operand: Vector) -> Vector:
    inside = (micros >= MIN_INSTANT) & (micros <= MAX_INSTANT)
    return Vector(TIMESTAMP, micros, operand.valid if inside.all() else both(operand.valid, inside))


def extract(unit: str, type_: Type, operand: Vector) -> Vector:
    """Return a field of each moment, such as its hour, or all of each duration in a unit; raise
    ValueError for an unknown unit."""
    if operand.type.kind is Kind.DURATION:
        return _in_unit(unit, type_, operand)
    if unit in _DAY_FIELDS:
        values = _DAY_FIELDS[unit](days_of(operand))
    elif unit in _TIME_FIELDS:
        values = _TIME_FIELDS[unit](micros_of(operand))
    else:
        raise ValueError(f"extract has no unit {unit!r}")
    dtype = np.float64 if type_.kind is Kind.DOUBLE else np.int64
    return Vector(type_, values.astype(dtype), operand.valid)


def _in_unit(unit: str, type_: Type, durations: Vector) -> Vector:
    if unit not in DURATION_UNITS:
        raise ValueError(f"extract has no unit {unit!r} of a duration")
    if type_.kind is not Kind.DOUBLE:
        return Vector(type_, durations.values // DURATION_UNITS[unit], durations.valid)
    return Vector(type_, quotients(durations.values, DURATION_UNITS[unit]), durations.valid)


def _months(days: Array) -> Array:
    """Return the months since January 1970."""
    return days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)


def _first_day(months: Array) -> Array:
    return months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)


def _week(days: Array) -> Array:
    """Return the Monday of the week."""
    monday: Array = days - (days + _MONDAY) % 7
    return monday


def _year(days: Array) -> Array:
    return _months(days) // 12 + 1970


def _day_of_year(days: Array) -> Array:
    before: Array = days - _first_day(_months(days) // 12 * 12)
    return before + 1


def _iso_week(days: Array) -> Array:
    """Return the number of the week: a week belongs to the year of its Thursday."""
    return (_day_of_year(_week(days) + 3) - 1) // 7 + 1


_DAY_TRUNCS: dict[str, Callable[[Array], Array]] = {
    "week": _week,
    "month": lambda days: _first_day(_months(days)),
    "quarter": lambda days: _first_day(_months(days) // 3 * 3),
    "year": lambda days: _first_day(_months(days) // 12 * 12),
}
_DAY_FIELDS: dict[str, Callable[[Array], Array]] = {
    "year": _year,
    "quarter": lambda days: _months(days) % 12 // 3 + 1,
    "month": lambda days: _months(days) % 12 + 1,
    "week": _iso_week,
    "day": lambda days: days - _first_day(_months(days)) + 1,
    "doy": _day_of_year,
    "dow": lambda days: (days + _MONDAY + 1) % 7,
}
_TIME_FIELDS: dict[str, Callable[[Array], Array]] = {
    "hour": lambda micros: micros // HOUR % 24,
    "minute": lambda micros: micros // MINUTE % 60,
    "second": lambda micros: micros % MINUTE / SECOND,
}
