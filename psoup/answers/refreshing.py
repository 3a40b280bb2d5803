"""The refresh point that a plan is as of.

An answer with REFRESH is as of its last refresh point. Nothing is kept for refresh points: they are
found when somebody asks. A point is a NOW and a limit to the rows known then, given by an instant
(EVERY) or by a row (ON). Over several streams with event time the limit is the position of the
event that took the last of them to the instant.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from datastem.arrays import Int64s
from datastem.blocks import Part
from datastem.codec import are_rows
from datastem.instants import FOR_EVER, MIN_INSTANT, format_instant
from psoup.answers.crossings import Crossing, CrossingFinder, Crossings
from psoup.answers.matching import Matcher
from psoup.answers.plan import LegPlan, Limit, Plan, RowsKnown, Triggers, retention
from psoup.answers.present import is_apart, is_by_clock
from querystem.refresh import RefreshEvery

_NOT_YET = "nothing has refreshed this answer yet: it is the one over no rows"


@dataclass(frozen=True, slots=True)
class Point:
    """A refresh point, named by its `instant`: a multiple of the period, or the time of a row.

    `now` is None where there was no NOW then.
    """

    now: int | None
    limits: tuple[Limit, ...]
    instant: int


def refreshed(plan: Plan, point: Point | None) -> Plan:
    """The plan as of a refresh point; over no rows where there is none yet. Legs that are taken at
    their stream's own NOW stay at it."""
    if point is None:
        legs = tuple(replace(leg, now=None) for leg in plan.legs)
        return replace(plan, legs=legs, now=None, notes=(_NOT_YET,))
    clock = goes_by_clock(plan)
    legs = tuple(
        replace(
            leg,
            now=leg.now if is_apart(leg.schema, clock) and point.now is not None else point.now,
            limits=(*leg.limits, *point.limits),
        )
        for leg in plan.legs
    )
    return _retained(replace(plan, legs=legs, now=point.now, refreshed_at=point.instant))


def goes_by_clock(plan: Plan) -> bool:
    """Tells whether the clock is the NOW of a plan's query."""
    return is_by_clock(plan.query.moving, [leg.schema for leg in plan.legs])


def _retained(plan: Plan) -> Plan:
    """The plan with what each leg retains at its NOW, and with notes about that."""
    legs: list[LegPlan] = []
    notes: list[str] = []
    for leg in plan.legs:
        oldest, told = retention(leg.window, leg.schema, leg.now, leg.current)
        legs.append(replace(leg, oldest=oldest))
        notes += told if len(plan.legs) == 1 else [f"{leg.leg.stream}: {one}" for one in told]
    return replace(plan, legs=tuple(legs), notes=tuple(dict.fromkeys(notes)))


# ---- REFRESH EVERY


def awaited_legs(legs: Sequence[LegPlan]) -> list[LegPlan]:
    """The legs over event time whose streams a point waits for: a keyed stream, and rows that are
    looked up, hold nothing back beside others."""
    timed = [leg for leg in legs if leg.schema.ordered_by is not None]
    own = [leg for leg in timed if leg.leg.as_of is None]
    plain = [leg for leg in own if not leg.schema.key]
    return plain or own or timed


def last_instant(refresh: RefreshEvery, plan: Plan) -> int | None:
    """The instant of the last point of REFRESH EVERY; None before there is one."""
    reached = plan.now
    if plan.knowledge is RowsKnown.PRESENT and not goes_by_clock(plan):
        found = [leg.current for leg in awaited_legs(plan.legs)]
        reached = min((ts for ts in found if ts is not None), default=None)
        reached = None if None in found else reached
    if reached is None or refresh.point(reached) < MIN_INSTANT:
        return None
    return refresh.point(reached)


def point_by_instant(plan: Plan, instant: int) -> Point | None:
    """The point of REFRESH EVERY at an instant, where that tells which rows were known: today's,
    those stamped by then, or with one stream those that came before it was there; else None."""
    if plan.knowledge is RowsKnown.TODAY:
        return Point(instant, (), instant)
    if goes_by_clock(plan):
        return Point(instant, (("_stamp", instant),), instant)
    if len({leg.stream_id for leg in plan.legs}) == 1:
        return Point(instant, (("_before", instant - 1),), instant)
    return None


def known_at(plan: Plan, position: int) -> Plan:
    """The plan over the rows known at a packed position."""
    limit: Limit = ("_position", position)
    return replace(plan, legs=tuple(replace(leg, limits=(*leg.limits, limit)) for leg in plan.legs))


# ---- REFRESH inside WINDOW(), and of views


def with_legs_refreshed(plan: Plan, finder: CrossingFinder | None = None) -> Plan:
    """The plan, which is as of its own point if it has any, with each leg as of the last point that
    the leg itself has, or those that have their points together.

    Which those are may have to be found in files: without `finder` such a plan stays as it is.
    """
    parts = _refreshed_parts(plan)
    if not parts or (finder is None and plan.beats is not None):
        return plan
    legs, instants = list(plan.legs), dict[int, int | None]()
    for part in parts:
        instant = part.instant(plan)
        known = part.known_at(instant, plan, finder) if instant is not None else ()
        for place in part.places:
            legs[place], instants[place] = part.at(legs[place], instant, known), instant
    known_instants = [one for one in instants.values() if one is not None]
    last = max(known_instants, default=None) if plan.refreshed_at is None else plan.refreshed_at
    made = _retained(replace(plan, legs=tuple(legs), refreshed_at=last, beats=None))
    notes = (*made.notes, *_older_notes(plan, known_instants))
    return replace(made, notes=notes, full_at=_full_at(made, known_instants))


def _refreshed_parts(plan: Plan) -> list[_RefreshedPart]:
    """The legs with points of their own, those that have them together in one part."""
    found: dict[object, list[int]] = {}
    for place, leg in enumerate(plan.legs):
        if leg.leg.refresh is not None:
            alone = leg.leg.together is None
            found.setdefault((alone, place if alone else leg.leg.together), []).append(place)
    return [_RefreshedPart.of(plan, places) for places in found.values()]


def _older_notes(plan: Plan, instants: Sequence[int]) -> tuple[str, ...]:
    """A note where the query has a point that some of its legs have not."""
    oldest = min(instants, default=None)
    if plan.refreshed_at is None or oldest is None or oldest == plan.refreshed_at:
        return ()
    return (f"a part of it has points of its own: it is as of {format_instant(oldest)}",)


@dataclass(frozen=True, slots=True)
class _RefreshedPart:
    """Legs of a plan, by their `places`, that have their points together: one with REFRESH inside
    WINDOW(), or those of a view with REFRESH. `clock` tells whether the clock is their NOW."""

    places: tuple[int, ...]
    legs: tuple[LegPlan, ...]
    refresh: RefreshEvery
    clock: bool

    @classmethod
    def of(cls, plan: Plan, places: Sequence[int]) -> _RefreshedPart:
        legs = tuple(plan.legs[place] for place in places)
        refresh = legs[0].leg.refresh
        assert refresh is not None
        moves = [plan.query.moving[place] for place in places]
        return cls(tuple(places), legs, refresh, is_by_clock(moves, [one.schema for one in legs]))

    def instant(self, plan: Plan) -> int | None:
        """The instant of the last point: at NOW, as far as the streams of the legs had come."""
        reached = [leg.now for leg in self.legs if not is_apart(leg.schema, self.clock)]
        if plan.knowledge is RowsKnown.PRESENT and not self.clock:
            reached += [
                leg.current if not leg.limits else _now_within(leg, leg.current)
                for leg in awaited_legs(self.legs)
            ]
        least = min((ts for ts in reached if ts is not None), default=None)
        if least is None or None in reached or self.refresh.point(least) < MIN_INSTANT:
            return None
        return self.refresh.point(least)

    def known_at(
        self, instant: int, plan: Plan, finder: CrossingFinder | None
    ) -> tuple[Limit, ...]:
        """The limit to the rows known at the point of an instant."""
        if plan.knowledge is RowsKnown.TODAY:
            return ()
        if self.clock:
            return (("_stamp", instant),)
        if len({leg.stream_id for leg in self.legs}) == 1:
            return (("_before", instant - 1),)
        awaited = awaited_legs(self.legs)
        if finder is None or any(leg.current is None or leg.current < instant for leg in awaited):
            return ()
        streams = {leg.stream_id: _crossing(leg, plan, instant) for leg in awaited}
        return (("_position", finder.position(Crossings(instant, tuple(streams.values())))),)

    def at(self, leg: LegPlan, instant: int | None, known: tuple[Limit, ...]) -> LegPlan:
        """A leg at the point of an instant, where so much was known."""
        if instant is None:
            return replace(leg, now=None)
        now = leg.now if is_apart(leg.schema, self.clock) else instant
        return replace(leg, now=now, limits=(*leg.limits, *known))


def _crossing(leg: LegPlan, plan: Plan, instant: int) -> Crossing:
    mark = plan.epoch.epoch.streams.get(leg.stream_id)
    stored = mark is None or mark.reached is None or mark.reached >= instant
    beat = None if plan.beats is None else plan.beats.first_to(leg.stream_id, instant)
    return Crossing(leg.stream_id, leg.stem, beat, stored)


def _full_at(plan: Plan, instants: Sequence[int]) -> int | None:
    """The last instant that was a point of every leg with points of its own, and of the query; None
    where none was since the streams began."""
    refreshing = [(leg, one) for leg in plan.legs if (one := leg.leg.refresh) is not None]
    if len(instants) < len(refreshing):
        return None
    last, periods = min(instants), [one.period for _, one in refreshing]
    match plan.query.refresh:
        case None:
            pass
        case RefreshEvery(period):
            periods.append(period)
        case _:
            return last if set(instants) == {plan.refreshed_at} else None
    full = last - last % math.lcm(*periods)
    begun = [leg.stem.earliest() for leg, _ in refreshing]
    return full if any(ts is not None and ts <= full for ts in begun) else None


# ---- REFRESH ON


def point_by_rows(plan: Plan, triggers: Triggers, matcher: Matcher) -> Point | None:
    """The last point of REFRESH ON: the last row that matches. Reads files where rows are not in
    memory."""
    clock = goes_by_clock(plan)
    if triggers.until is not None and not clock:
        last = _latest(triggers, triggers.until, matcher)
        return None if last is None else Point(last.ts, (), last.ts)
    last = _newest(triggers, plan.legs[0].limits, matcher)
    if last is None:
        return None
    known: tuple[Limit, ...] = () if triggers.until is not None else (("_position", last.position),)
    if clock:
        return Point(last.stamp, known, last.stamp)
    return Point(_now_at(plan, last), known, last.ts)


def _now_at(plan: Plan, row: _Row) -> int | None:
    """NOW of a point that a row makes: its ts or, if that is less, the least that the streams a
    point waits for had come to; None where one had no NOW."""
    least = row.ts
    for leg in awaited_legs(plan.legs):
        then = replace(leg, limits=(*leg.limits, ("_position", row.position)))
        present, reached = leg.current, _now_within(then, leg.current)
        if plan.knowledge is not RowsKnown.PRESENT:
            present = plan.now
            reached = present if _is_last(then, present) else _now_within(then, present)
        if reached is None or present is None:
            return None
        least = min(least, present, reached)
    return least


def _is_last(leg: LegPlan, instant: int | None) -> bool:
    """Tells whether no row was stamped by an instant after those that a leg knows."""
    stamp = leg.stem.first_from(leg.known()[0], "_stamp")
    return stamp is None or instant is None or stamp > instant


def _now_within(leg: LegPlan, present: int | None) -> int | None:
    """NOW of a leg's stream before the first row that came after those the leg knows; `present`
    where none did.

    A heartbeat that comes after the known rows and before that row counts: it is not kept apart.
    """
    before = leg.stem.first_from(leg.known()[0], "_before")
    if before is None:
        return present
    return before if before >= MIN_INSTANT else None


@dataclass(frozen=True, slots=True)
class _Row:
    ts: int
    id: int
    position: int
    stamp: int


def _newest(triggers: Triggers, limits: tuple[Limit, ...], matcher: Matcher) -> _Row | None:
    """The matching row with the greatest row id."""
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
    """The matching row with the greatest (ts, row_id), of the rows with ts up to `until`."""
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
    """The parts of a block, last first, with the places in each of the retained rows that match."""
    if matcher.lacks(number, high):
        return
    for part in reversed(triggers.stem.parts(number, high)):
        places = part.find(matcher.match(part, part.first, part.stop))
        # Without a condition all ids match, also those of deletes.
        places = places[are_rows(part.rows)[places]]
        if triggers.oldest is not None:
            places = places[part.ts[places] >= triggers.oldest]
        if len(places):
            yield part, places


def _row(part: Part, place: int) -> _Row:
    stamp = part.rows.column("_stamp").view(pa.int64())[place].as_py()
    position = part.rows.column("_position")[place].as_py()
    return _Row(int(part.ts[place]), int(part.ids[place]), position, stamp)
