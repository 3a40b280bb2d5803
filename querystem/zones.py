"""The time zones of a query: which ones it names, and the rules that it is computed by.

Windows and expressions are bound with names alone. What is stored of expressions has the rules as
well, so that it means the same in every process, and is another text if the rules change.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from datastem.zones import ZoneRules, Zones, unpacked
from querystem.expressions import Zone, to_json
from querystem.legs import Leg
from querystem.query import Query
from querystem.query_json import query_form, read_form
from results.window import CalendarBound, TimeWindow, Window, with_rules

# How a zone stands in the text of an expression. Inside another text its quotes would be escaped.
ZONE_MARK = '["zone","'
_ZONE = re.compile(r'\["zone","([^"]*)","([^"]*)"\]')


def zones_of(query: Query) -> frozenset[str]:
    """Return the names of the time zones that a query needs rules of."""
    names = zones_in(texts_of(query))
    return names.union(
        *(window.zones for window in _windows(query) if isinstance(window, TimeWindow))
    )


def with_zones(query: Query, zones: Zones) -> Query:
    """Return the query with these rules of its time zones; raise KeyError if `zones` lacks one."""
    if not zones_of(query):
        return query
    form, *keys = written = texts_of(query)
    renewed_form, *renewed_keys = (renewed(text, zones) for text in written)
    if [form, *keys] != [renewed_form, *renewed_keys]:
        query = read_form(renewed_form, renewed_keys)
    return _windowed(query, zones)


def rules_of(query: Query) -> tuple[ZoneRules, ...]:
    """Return the rules of the time zones that a query has got, each once."""
    rules = {
        bound.zone: bound.rules
        for window in _windows(query)
        if isinstance(window, TimeWindow)
        for bound in (window.begin, window.end)
        if isinstance(bound, CalendarBound) and bound.rules is not None
    }
    for text in texts_of(query):
        if ZONE_MARK in text:
            found = _ZONE.findall(text)
            rules |= {name: unpacked(name, packed) for name, packed in found if packed}
    return tuple(rules[zone] for zone in sorted(rules))


# ---- texts of expressions


def zones_in(texts: Iterable[str]) -> frozenset[str]:
    """Return the names of the zones in texts of expressions."""
    return frozenset(name for text in texts if ZONE_MARK in text for name, _ in _ZONE.findall(text))


def renewed(text: str, zones: Zones) -> str:
    """Return the text of expressions with these rules of the zones in it; raise KeyError if `zones`
    lacks one."""
    if ZONE_MARK not in text:
        return text
    return _ZONE.sub(lambda zone: _written(zones[zone[1]]), text)


def is_outdated(text: str, zones: Zones) -> bool:
    """Return whether a text of expressions has other rules of a zone than these."""
    if ZONE_MARK not in text:
        return False
    return any(zones[name].packed != rules for name, rules in _ZONE.findall(text))


def renewed_all(texts: Sequence[str], zones: Zones) -> Sequence[str]:
    """Return each text as `renewed`; all at once, because there may be many."""
    # There are no line breaks in JSON that is written without blanks.
    joined = "\n".join(texts)
    return texts if ZONE_MARK not in joined else renewed(joined, zones).split("\n")


def _written(rules: ZoneRules) -> str:
    return json.dumps(to_json(Zone(rules.name, rules.packed)), separators=(",", ":"))


def texts_of(query: Query) -> Sequence[str]:
    """Return the texts that all expressions of a query are in."""
    return query_form(query), *query.predicate_keys


# ---- windows


def _windowed(query: Query, zones: Zones) -> Query:
    def ruled(leg: Leg) -> Leg:
        return leg.with_window(with_rules(leg.written_window, zones))

    changed = query.with_parts(ruled, lambda inner: _windowed(inner, zones))
    return replace(changed, over=None if query.over is None else with_rules(query.over, zones))


def _windows(query: Query) -> Iterator[Window]:
    """Yield the windows of all legs, over the query itself and over the queries inside it."""
    yield from (leg.written_window for leg in query.legs)
    over = (part.over for part in (query, *query.inner_queries))
    yield from (window for window in over if window is not None)
