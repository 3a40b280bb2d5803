"""Answers as of their last refresh point. Nothing is kept for it: a point is found when asked.

A point is a NOW and a limit to the rows known then, as of an instant (EVERY) or of a row (ON).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from datastem.arrays import Int64s
from datastem.blocks import Part
from datastem.instants import FOR_EVER, MIN_INSTANT
from datastem.schema import StreamSchema
from psoup.server.invoke import Limit, Plan, Triggers, retained
from psoup.server.matcher import Matcher
from querystem.query import RefreshEvery

_NOT_YET = "nothing has refreshed this answer yet: it is the one over no rows"


@dataclass(frozen=True, slots=True)
class Point:
    """`instant` names it: the multiple of the period, or the time of the row.

    `now` is None where the stream had no NOW then.
    """

    now: int | None
    limits: tuple[Limit, ...]
    instant: int


def point_of(refresh: RefreshEvery, schema: StreamSchema, now: int, today: bool) -> Point | None:
    """The last one at NOW. With `today` all rows that are known now are known then."""
    instant = refresh.point(now)
    if instant < MIN_INSTANT:
        return None
    known: Limit = ("_stamp", instant) if schema.ordered_by is None else ("_before", instant - 1)
    return Point(instant, () if today else (known,), instant)


def point_by_rows(plan: Plan, triggers: Triggers, now: int, matcher: Matcher) -> Point | None:
    """The last row that matches, as a point. Reads files where rows are not in memory."""
    arrival = plan.schema.ordered_by is None
    if triggers.until is not None and not arrival:
        last = _latest(triggers, triggers.until, matcher)
        return None if last is None else Point(last.ts, (), last.ts)
    last = _newest(triggers, plan.limits, matcher)
    if last is None:
        return None
    known: tuple[Limit, ...] = () if triggers.until is not None else (("_position", last.position),)
    if arrival:
        return Point(last.stamp, known, last.stamp)
    reached = _now_at(plan, last.position, now)
    return Point(None if reached is None else min(now, last.ts, reached), known, last.ts)


def refreshed(plan: Plan, point: Point | None) -> Plan:
    """The same as of a refresh point; over no rows where there is none yet."""
    if point is None:
        return replace(plan, now=None, notes=(_NOT_YET,))
    oldest, notes = retained(plan.window, plan.schema, point.now, plan.current)
    return replace(
        plan,
        now=point.now,
        oldest=oldest,
        limits=(*plan.limits, *point.limits),
        notes=notes,
        refreshed_at=point.instant,
    )


def _now_at(plan: Plan, position: int, now: int) -> int | None:
    """NOW of the stream before the first row that came after the position; NOW where none did.

    A heartbeat that comes after the position and before that row counts: it is not kept apart.
    """
    high, _ = plan.stem.high_at("_position", position)
    for mark, most in plan.limits:
        after = plan.stem.first_from(high, mark)
        if after is None or after > most:
            return now
    before = plan.stem.first_from(high, "_before")
    if before is None:
        return now
    return before if before >= MIN_INSTANT else None


@dataclass(frozen=True, slots=True)
class _Row:
    ts: int
    id: int
    position: int
    stamp: int


def _newest(triggers: Triggers, limits: tuple[Limit, ...], matcher: Matcher) -> _Row | None:
    """The last row that matches by row id."""
    stem, high = triggers.stem, triggers.stem.high
    instants = [most for mark, most in limits if mark == "_stamp"]
    instants += [] if triggers.until is None else [triggers.until]
    for instant in instants:
        high = min(high, stem.high_at("_stamp", instant)[0])
    for number in reversed(stem.numbers(triggers.oldest, FOR_EVER, high)):
        for part, places in _matching(triggers, matcher, number, high):
            return _row(part, int(places[-1]))
    return None


def _latest(triggers: Triggers, until: int, matcher: Matcher) -> _Row | None:
    """The last row that matches by (ts, row_id), of those with ts up to `until`."""
    stem, best = triggers.stem, None
    numbers = stem.numbers(triggers.oldest, until + 1, stem.high)
    for number in sorted(numbers, key=stem.latest, reverse=True):
        if best is not None and stem.latest(number) < best.ts:
            break
        for part, places in _matching(triggers, matcher, number, stem.high):
            places = places[part.ts[places] <= until]
            if len(places):
                ts = part.ts[places]
                found = _row(part, int(places[ts == ts.max()][-1]))
                best = found if best is None or (found.ts, found.id) > (best.ts, best.id) else best
    return best


def _matching(
    triggers: Triggers, matcher: Matcher, number: int, high: int
) -> Iterator[tuple[Part, Int64s]]:
    """The parts of a block, last first, with where in each the retained rows that match stand."""
    if matcher.lacks(number, high):
        return
    for part in reversed(triggers.stem.parts(number, high)):
        places = part.find(matcher.match(part, part.first, part.stop))
        if triggers.oldest is not None:
            places = places[part.ts[places] >= triggers.oldest]
        if len(places):
            yield part, places


def _row(part: Part, place: int) -> _Row:
    stamp = part.rows.column("_stamp").view(pa.int64())[place].as_py()
    position = part.rows.column("_position")[place].as_py()
    return _Row(int(part.ts[place]), int(part.ids[place]), position, stamp)
