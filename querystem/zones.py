"""The time zones of a query: which ones its windows name, and the rules that they move by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from datastem.zones import ZoneRules, Zones
from querystem.query import Leg, Query
from results.window import CalendarBound, TimeWindow, Window, with_rules


def zones_of(query: Query) -> frozenset[str]:
    """Return the names of the time zones that a query needs rules of."""
    return frozenset(
        zone
        for window in _windows(query)
        if isinstance(window, TimeWindow)
        for zone in window.zones
    )


def with_zones(query: Query, zones: Zones) -> Query:
    """Return the query with the rules of its time zones; raise KeyError if `zones` lacks one."""
    if not zones_of(query):
        return query

    def ruled(leg: Leg) -> Leg:
        return replace(leg, window=with_rules(leg.window, zones))

    changed = query.with_parts(ruled, lambda inner: with_zones(inner, zones))
    return replace(changed, over=None if query.over is None else with_rules(query.over, zones))


def rules_of(query: Query) -> tuple[ZoneRules, ...]:
    """Return the rules of the time zones that the windows of a query have got, each once."""
    rules = {
        bound.zone: bound.rules
        for window in _windows(query)
        if isinstance(window, TimeWindow)
        for bound in (window.begin, window.end)
        if isinstance(bound, CalendarBound) and bound.rules is not None
    }
    return tuple(rules[zone] for zone in sorted(rules))


def _windows(query: Query) -> Iterator[Window]:
    """Yield the windows of all legs, over the query itself and over the queries inside it."""
    yield from (leg.window for leg in query.legs)
    over = (part.over for part in (query, *query.inner_queries))
    yield from (window for window in over if window is not None)
