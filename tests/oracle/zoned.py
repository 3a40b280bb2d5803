"""Instants in time zones, one at a time, by `zoneinfo`.

As the rules of a store do, it takes the offset of 1970 for all that was before, and that of 2100
for all that comes after.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

from datastem.calendar import Unit
from datastem.instants import DAY, MAX_INSTANT, MIN_INSTANT, from_micros, to_micros
from datastem.zones import FIRST_YEAR, LAST_YEAR, ZoneRules, machine_rules
from tests.oracle import times
from tests.oracle.calendar import naive_begin

# With offsets of half and quarter hours, changes by half an hour, a day that does not exist, and
# the usual changes in spring and autumn.
ZONES = (
    "Europe/Madrid",
    "America/New_York",
    "Asia/Kolkata",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "Pacific/Apia",
)
rules_of = cache(machine_rules)

_FIRST, _LAST = (to_micros(datetime(year, 1, 1, tzinfo=UTC)) for year in (FIRST_YEAR, LAST_YEAR))
# The calendar repeats itself, weekdays included.
_CYCLE = 146_097 * DAY
_SUB_HOURS = ("microsecond", "millisecond", "second", "minute")


def machine_zones_of(names: tuple[str, ...] = ZONES) -> dict[str, ZoneRules]:
    """Return the rules of zones as this machine has them."""
    return {name: rules_of(name) for name in names}


def at_time_zone(value: datetime, zone: str) -> datetime | None:
    """Return what the zone's clock shows at an instant as if it were UTC; None if no TIMESTAMP is
    so early or late."""
    return _instant(to_micros(value) + _offset(to_micros(value), zone))


def date_trunc(unit: str, value: datetime | date, zone: str) -> datetime | None:
    """Return the begin of the unit of a zone that an instant is in; None if no TIMESTAMP is so
    early."""
    assert isinstance(value, datetime)
    instant = to_micros(value)
    near_change = _FIRST + 2 * DAY < instant < _LAST - 2 * DAY
    if near_change and unit not in _SUB_HOURS:
        begin = naive_begin(Unit(unit.upper()), zone, instant)
        # A unit that began before 1970 began at the offset of 1970.
        if begin > _FIRST + DAY:
            return _instant(begin)
    offset = _offset(instant, zone)
    cycles, local = divmod(instant + offset, _CYCLE)
    begin = to_micros(times.date_trunc(unit, from_micros(local)))
    return _instant(begin + cycles * _CYCLE - _offset(begin + cycles * _CYCLE - offset, zone))


def _offset(instant: int, zone: str) -> int:
    moment = from_micros(min(max(instant, _FIRST), _LAST)).astimezone(ZoneInfo(zone))
    offset = moment.utcoffset()
    assert offset is not None
    return offset // timedelta(microseconds=1)


def _instant(micros: int) -> datetime | None:
    return from_micros(micros) if MIN_INSTANT <= micros <= MAX_INSTANT else None
