"""Calendar units of time zones, compared with `zoneinfo`."""

from __future__ import annotations

import zoneinfo
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastem.calendar import Unit, instants_past, present_begin, unit_begin
from datastem.instants import DAY, HOUR, MINUTE, to_micros
from datastem.zones import UnknownZone, ZoneRules, machine_rules
from querystem.language.tokens.literals import read_timestamp
from tests.oracle.calendar import naive_begin

# With offsets of half hours, changes by half an hour, a day that does not exist, changes at a
# minute past midnight, at midnight, and twice a year around a month.
ZONES = (
    "Europe/Madrid",
    "Asia/Kolkata",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "America/St_Johns",
    "America/Sao_Paulo",
    "Africa/Casablanca",
    "Asia/Kathmandu",
)
rules_of = cache(machine_rules)
units = st.sampled_from(Unit)
zones = st.sampled_from(ZONES)
FIRST, LAST = (to_micros(read_timestamp(text)) for text in ("1972-01-01", "2090-01-01"))


@st.composite
def instants(draw: Callable[[st.SearchStrategy[Any]], Any], zone: str) -> int:
    """An instant, often near a change of the zone's clock."""
    changes = [change for change in rules_of(zone).starts.tolist() if FIRST < change < LAST]
    if changes and draw(st.booleans()):
        near = st.integers(-2 * DAY, 2 * DAY) | st.integers(-2, 2)
        half_hours = st.integers(-4, 4).map(lambda count: count * 30 * MINUTE)
        change = draw(st.sampled_from(changes))
        return int(change + draw(near | half_hours))
    return int(draw(st.integers(FIRST, LAST)))


@given(st.data(), zones, units, st.integers(0, 40))
def test_units_begin_where_zoneinfo_says(
    data: st.DataObject, zone: str, unit: Unit, back: int
) -> None:
    instant = data.draw(instants(zone))
    rules, at = rules_of(zone), np.array([instant])
    begin = int(unit_begin(unit, rules, at, back)[0])
    # Before 1970 the rules have the offset of 1970.
    if begin > 0:
        assert begin == naive_begin(unit, zone, instant, back)
    assert begin == present_begin(unit, rules, instant, back)
    assert begin <= instant
    assert int(unit_begin(unit, rules, at)[0]) - begin <= back * unit.longest + 3 * HOUR
    assert instant - begin < (back + 1) * unit.longest + 3 * HOUR


@given(st.data(), zones, units, st.integers(0, 3))
def test_an_instant_is_past_at_the_first_one_that_says_so(
    data: st.DataObject, zone: str, unit: Unit, back: int
) -> None:
    instant, rules = data.draw(instants(zone)), rules_of(zone)
    past = int(instants_past(unit, rules, np.array([instant]), back)[0])
    before, after = unit_begin(unit, rules, np.array([past - 1, past]), back).tolist()
    assert before <= instant < after


@given(st.data(), zones, units)
def test_units_never_go_back(data: st.DataObject, zone: str, unit: Unit) -> None:
    times = sorted(data.draw(st.lists(instants(zone), min_size=2, max_size=20)))
    begins = unit_begin(unit, rules_of(zone), np.array(times))
    assert (np.diff(begins) >= 0).all()


def _lengths(zone: str, first: str, days: int) -> list[int]:
    """Return the hours of consecutive days, from the one that has noon of `first` in UTC on."""
    noon = to_micros(read_timestamp(f"{first} 12:00"))
    begins = [
        int(unit_begin(Unit.DAY, rules_of(zone), np.array([noon + 60 * DAY]), 60 - number)[0])
        for number in range(days + 1)
    ]
    return [(later - earlier) // HOUR for earlier, later in pairwise(begins)]


def test_days_of_a_clock_change_have_other_lengths() -> None:
    assert _lengths("Europe/Madrid", "2026-03-28", 3) == [24, 23, 24]
    assert _lengths("Europe/Madrid", "2026-10-24", 3) == [24, 25, 24]
    # Apia had no 30 December in 2011. Before it, noon in UTC was the same day there.
    assert _lengths("Pacific/Apia", "2011-12-28", 3) == [24, 0, 24]


def test_an_hour_has_60_minutes_and_a_repeated_one_is_two() -> None:
    # At 01:00 UTC the clock is set back from 03:00 to 02:00.
    change = to_micros(read_timestamp("2026-10-25 01:00"))
    times = change + np.array([-HOUR, -1, 0, HOUR - 1, HOUR])
    begins = unit_begin(Unit.HOUR, rules_of("Europe/Madrid"), times) - change
    assert begins.tolist() == [-HOUR, -HOUR, 0, 0, HOUR]


@given(zones)
def test_rules_are_read_again_as_they_were(zone: str) -> None:
    rules = rules_of(zone)
    again = ZoneRules.from_json(rules.to_json())
    assert again == rules and again.has_rules_of(rules)
    assert again.of_version(2) != rules and again.of_version(2).has_rules_of(rules)


@pytest.mark.parametrize("name", ["Europe/Nowhere", "localtime", "../etc/passwd", "", "/a"])
def test_unknown_zones_are_refused(name: str) -> None:
    with pytest.raises(UnknownZone):
        machine_rules(name)


def test_a_zone_that_was_set_back_by_many_hours_is_refused() -> None:
    assert "Antarctica/Vostok" in zoneinfo.available_timezones()
    with pytest.raises(UnknownZone):
        machine_rules("Antarctica/Vostok")
