"""Begins of calendar units by `zoneinfo`: the present unit is looked for day by day."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from datastem.calendar import Unit
from datastem.instants import HOUR, from_micros, to_micros


def naive_begin(unit: Unit, zone: str, instant: int, back: int = 0) -> int:
    """Return the begin of the unit that is `back` units before the present one."""
    info = ZoneInfo(zone)
    local = from_micros(instant).astimezone(info)
    if unit is Unit.HOUR:
        offset = local.utcoffset()
        assert offset is not None
        clock_time = instant + offset // timedelta(microseconds=1)
        return clock_time // HOUR * HOUR - (clock_time - instant) - back * HOUR
    # A clock that was set back across midnight shows the day before the present one.
    day = next(
        day
        for day in (local.date() + timedelta(days) for days in (1, 0, -1))
        if _midnight(day, info) <= instant
    )
    return _midnight(_shifted(unit, _first_day(unit, day), -back), info)


def _midnight(day: date, info: ZoneInfo) -> int:
    # At a gap fold=0 takes the offset before it, which gives the instant of the change if the gap
    # begins at midnight.
    return to_micros(datetime.combine(day, time(), info).astimezone(UTC))


def _first_day(unit: Unit, day: date) -> date:
    match unit:
        case Unit.WEEK:
            return day - timedelta(day.weekday())
        case Unit.WEEK_SUNDAY:
            return day - timedelta(day.isoweekday() % 7)
        case Unit.MONTH:
            return day.replace(day=1)
        case Unit.QUARTER:
            return day.replace(day=1, month=(day.month - 1) // 3 * 3 + 1)
        case Unit.YEAR:
            return day.replace(day=1, month=1)
    return day


def _shifted(unit: Unit, day: date, count: int) -> date:
    if unit is Unit.DAY:
        return day + timedelta(count)
    if unit in (Unit.WEEK, Unit.WEEK_SUNDAY):
        return day + timedelta(7 * count)
    months = {Unit.MONTH: 1, Unit.QUARTER: 3, Unit.YEAR: 12}[unit] * count
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    return day.replace(year=year, month=month + 1)
