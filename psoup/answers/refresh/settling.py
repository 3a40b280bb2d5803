"""The refresh points that the parts of a plan are as of.

A query with REFRESH is as of its last refresh point, and so is a query inside another, or a leg,
with a REFRESH of its own. Nothing is kept for refresh points: they are found when somebody asks,
those further out first. A point is a NOW and a limit to the rows known then, given by an instant
(EVERY) or by a row (ON). Over several streams with event time the limit is the position of the
event that took the last of them to the instant.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from datastem.instants import MIN_INSTANT, SINCE_EVER, format_instant
from psoup.answers.matching.shown_rows import MatchSource
from psoup.answers.planning.plan import (
    LegPlan,
    Limit,
    Plan,
    RowsKnown,
    SettledPart,
    Triggers,
    UnsettledPart,
    retention,
)
from psoup.answers.refresh.crossings import Crossing
from psoup.answers.refresh.triggers import TriggerRow, latest_row, newest_row
from querystem.clocks import is_apart, is_by_clock
from querystem.refresh import PartKind, RefreshedPart, RefreshEvery, common_points, periodic

_NOT_YET = "nothing has refreshed this answer yet: it is the one over no rows"
_NOT_YET_INSIDE = "nothing has refreshed a part of this query yet: it has no rows"
_OLDER = "a query inside is as of its own last refresh point, {}"


@dataclass(frozen=True, slots=True)
class Point:
    """A refresh point, named by its `instant`: a multiple of the period, or the time of a row.

    `now` is None where there was no NOW then.
    """

    now: int | None
    limits: tuple[Limit, ...]
    instant: int


class PointFinder(Protocol):
    """Whoever reads files to find points."""

    def position(self, instant: int, crossings: Iterable[Crossing]) -> int | None:
        """The position of the event that took the last of some streams to an instant; None where
        none of them tells."""

    def reached_at(self, stamp: int, crossing: Crossing, oldest: int) -> int | None:
        """Return what a stream had reached before the first heartbeat with a later stamp that took
        it to `oldest` or past it, SINCE_EVER for nothing; None if there is no such one."""

    def matcher(self, triggers: Triggers) -> MatchSource: ...


def settled(plan: Plan, finder: PointFinder | None = None) -> Plan:
    """The plan with each part as of its last refresh point; without a finder as far as no file has
    to be read."""
    while plan.unsettled and plan.now is not None:
        unsettled = plan.unsettled[0]
        made = _Scope(plan, unsettled.part, finder).settled(unsettled)
        if made is None:
            return plan
        plan = made
    return replace(plan, unsettled=())


@dataclass(frozen=True)
class _Scope:
    """The legs of a part of a plan, which are as of the points of the parts around it already."""

    plan: Plan
    part: RefreshedPart
    finder: PointFinder | None

    @property
    def legs(self) -> Sequence[LegPlan]:
        return [self.plan.legs[number] for number in self.part.legs]

    @property
    def by_clock(self) -> bool:
        return is_by_clock(self.part.moving, [leg.schema for leg in self.legs])

    @property
    def around(self) -> int | None:
        """NOW of what is around the part. Where that is on another clock, legs are taken at the NOW
        of their streams: the greatest of these."""
        if self.part.kind is PartKind.WHOLE:
            return self.plan.now
        own = [leg.now for leg in self.legs if not is_apart(leg.schema, self.by_clock)]
        return max((now for now in own if now is not None), default=None)

    @property
    def awaited(self) -> Sequence[LegPlan]:
        """The legs over event time whose streams a point waits for: a keyed stream, and rows that
        are looked up, hold nothing back beside others."""
        timed = [leg for leg in self.legs if leg.schema.ordered_by is not None]
        own = [leg for leg in timed if leg.leg.as_of is None]
        plain = [leg for leg in own if not leg.schema.key]
        return plain or own or timed

    # ---- the next step

    def settled(self, unsettled: UnsettledPart) -> Plan | None:
        """The plan one step further; None where that takes a finder."""
        if self.around is None:
            return self.at(None)
        if unsettled.instant is not None:
            return self._every(unsettled.instant, unsettled)
        row = None
        if self.finder is None and (unsettled.triggers or self._needs_heartbeats):
            return None
        if unsettled.triggers and self.finder is not None:
            row = self._last_row(unsettled.triggers, self.finder)
        found = [self._last_instant(one) for one in periodic(self.part.refresh)]
        instant = max((one for one in found if one is not None), default=None)
        if instant is None or (row is not None and _when(row) >= (instant, instant)):
            return self.at(row)
        return self._every(instant, unsettled)

    def _last_row(self, triggers: Sequence[Triggers], finder: PointFinder) -> Point | None:
        """The last point that a row makes, of any of some streams."""
        points = [self._by_rows(one, finder.matcher(one)) for one in triggers]
        found = [point for point in points if point is not None]
        return max(found, key=lambda point: (_when(point), point.limits), default=None)

    def at(self, point: Point | None) -> Plan:
        """The plan with the part as of a point, or over no rows where there is none yet."""
        legs = self._legs_at(point)
        instant, now = (None, None) if point is None else (point.instant, point.now)
        points = (*self.plan.points, SettledPart(self.part, instant, now))
        plan = replace(self.plan, legs=legs, points=points, unsettled=self.plan.unsettled[1:])
        if self.part.kind is PartKind.WHOLE:
            plan = replace(plan, now=now)
        return _finished(plan)

    def _legs_at(self, point: Point | None) -> tuple[LegPlan, ...]:
        """The legs of the plan. Those that are taken at their stream's own NOW stay at it."""
        legs, clock = list(self.plan.legs), self.by_clock
        for number in self.part.legs:
            leg = legs[number]
            now, limits = (None, ()) if point is None else (point.now, point.limits)
            now = leg.now if now is not None and is_apart(leg.schema, clock) else now
            legs[number] = replace(leg, now=now, limits=(*leg.limits, *limits))
        return tuple(legs)

    # ---- REFRESH EVERY

    def _every(self, instant: int, unsettled: UnsettledPart) -> Plan | None:
        """The plan at the point of an instant; where events tell which rows were known, first at
        its NOW alone."""
        limits = self._known_at(instant)
        if limits is not None:
            return self.at(Point(instant, limits, instant))
        if unsettled.instant is None:
            waiting = (replace(unsettled, instant=instant), *self.plan.unsettled[1:])
            return replace(self._only_now(instant), unsettled=waiting)
        if self.finder is None:
            return None
        streams = {leg.stream_id for leg in self.awaited}
        crossings = [self.plan.crossings[stream_id] for stream_id in sorted(streams)]
        position = self.finder.position(instant, crossings)
        if position is None and self._is_bounded:
            return self.at(Point(instant, (), instant))
        return self.at(Point(instant, (("_position", position or 0),), instant))

    @property
    def _is_bounded(self) -> bool:
        """Tells whether rows that come from now on are not known to the part, whatever its own
        point is: the answer is as of an instant, or what is around the part as of a point."""
        return self.plan.knowledge is not RowsKnown.PRESENT or bool(self.legs[0].limits)

    def _only_now(self, instant: int) -> Plan:
        plan = replace(self.plan, legs=self._legs_at(Point(instant, (), instant)))
        whole = self.part.kind is PartKind.WHOLE
        return replace(plan, now=instant) if whole else plan

    def _last_instant(self, refresh: RefreshEvery) -> int | None:
        """The instant of the last point of REFRESH EVERY; None before there is one."""
        reached = self.around
        if self.plan.knowledge is not RowsKnown.TODAY and not self.by_clock:
            # As of an instant too: a point that the streams had not come to was not known then.
            found = [_now_within(leg, self._reached_then(leg)) for leg in self.awaited]
            # Nothing is around the whole: it goes as far as the streams that it waits for.
            fresh = self.plan.knowledge is RowsKnown.PRESENT
            found += [] if self.part.kind is PartKind.WHOLE and fresh else [reached]
            reached = min((ts for ts in found if ts is not None), default=None)
            reached = None if None in found else reached
        if reached is None or refresh.point(reached) < MIN_INSTANT:
            return None
        return refresh.point(reached)

    def _known_at(self, instant: int) -> tuple[Limit, ...] | None:
        """The limits to the rows known at a point of REFRESH EVERY, where its instant tells them:
        today's, those stamped by then, or with one stream those that came before it was there. None
        where events do."""
        if self.plan.knowledge is RowsKnown.TODAY:
            return ()
        if self.by_clock:
            return (("_stamp", instant),)
        if len({leg.stream_id for leg in self.legs}) == 1 and not self._needs_position:
            return (("_before", instant - 1),)
        if any(leg.current is None or leg.current < instant for leg in self.awaited):
            # Only an answer as of an instant may be ahead of its streams.
            return ()
        return None

    @property
    def _needs_position(self) -> bool:
        """Tells whether rows of another stream, which refresh a part inside, must be known as of
        the point too."""
        others = self.plan.unsettled[1:]
        return any(one.triggers and one.part.legs[0] in self.part.legs for one in others)

    # ---- what streams had come to

    @property
    def _needs_heartbeats(self) -> bool:
        """Tells whether heartbeats may have come since the instant asked about, which were not
        known then."""
        return not self.by_clock and any(map(self._is_as_known_then, self.awaited))

    def _is_as_known_then(self, leg: LegPlan) -> bool:
        return self.plan.knowledge is RowsKnown.THEN and bool(leg.limits)

    def _reached_then(self, leg: LegPlan) -> int | None:
        """Return NOW of a leg's stream as the heartbeats up to the instant asked about tell it.
        Whatever its stream does not retain any more decides nothing."""
        asked, current = self.plan.asked, leg.current
        if not self._is_as_known_then(leg) or asked is None or current is None:
            return current
        assert self.finder is not None, "nobody asks before there is a finder"
        oldest = SINCE_EVER if leg.kept_from is None else leg.kept_from
        reached = self.finder.reached_at(asked, self.plan.crossings[leg.stream_id], oldest)
        if reached is None:
            return current
        return reached if reached >= MIN_INSTANT else None

    # ---- REFRESH ON

    def _by_rows(self, triggers: Triggers, matcher: MatchSource) -> Point | None:
        """The last point of REFRESH ON: the last row that matches. Reads files where rows are not
        in memory."""
        until = self.around if self.plan.knowledge is RowsKnown.TODAY else None
        if until is not None and not self.by_clock:
            last = latest_row(triggers, until, matcher)
            return None if last is None else Point(last.ts, (), last.ts)
        last = newest_row(triggers, self.legs[0].limits, until, matcher)
        if last is None:
            return None
        known: tuple[Limit, ...] = () if until is not None else (("_position", last.position),)
        if self.by_clock:
            return Point(last.stamp, known, last.stamp)
        return Point(self._now_at(last), known, last.ts)

    def _now_at(self, row: TriggerRow) -> int | None:
        """NOW of a point that a row makes: its ts or, if that is less, the least that the streams a
        point waits for had come to, or NOW around the part; None where a stream had no NOW."""
        least, asked = row.ts, self.plan.asked
        if self.part.kind is not PartKind.WHOLE and self.around is not None:
            least = min(least, self.around)
        for leg in self.awaited:
            then = replace(leg, limits=(*leg.limits, ("_position", row.position)))
            reached = _now_within(then, self._reached_then(leg))
            if reached is None:
                return None
            least = min(least, reached)
        if self.plan.knowledge is not RowsKnown.PRESENT and asked is not None:
            least = min(least, asked)
        return least


def _when(point: Point) -> tuple[int, int]:
    """The instant of a point and its NOW, by which the later of two is found."""
    return point.instant, MIN_INSTANT if point.now is None else point.now


def _now_within(leg: LegPlan, present: int | None) -> int | None:
    """Return NOW of a leg's stream before the first row, of those it retains, that came after those
    the leg knows; its `present` NOW if that is less, or if none came.

    A heartbeat after the known rows and before that row counts, as long as it is of the present.
    """
    if not leg.limits or present is None:
        return present
    before = leg.stem.first_from(leg.known()[0], "_before", leg.kept_from)
    if before is None:
        return present
    return min(before, present) if before >= MIN_INSTANT else None


# ---- what is told of the points


def _finished(plan: Plan) -> Plan:
    """The plan, with what is told of its points once the last one is known."""
    if plan.unsettled and plan.now is not None:
        return plan
    whole = [one for one in plan.points if one.part.kind is PartKind.WHOLE]
    inside = [one for one in plan.points if one.part.kind is not PartKind.WHOLE]
    instants = [one.instant for one in whole or inside if one.instant is not None]
    plan = replace(
        plan,
        refreshed_at=max(instants, default=None),
        full_at=_full_at(plan) if inside else None,
        nows=tuple(one.now for one in inside if one.part.kind is PartKind.QUERY),
    )
    if whole and whole[0].instant is None:
        return replace(plan, notes=(_NOT_YET,))
    return _retained(plan, [*_told(whole, inside)])


def _told(whole: Sequence[SettledPart], inside: Sequence[SettledPart]) -> Iterable[str]:
    """Notes about points inside a query that are not those of the whole."""
    if any(one.instant is None for one in inside):
        yield _NOT_YET_INSIDE
    last = whole[0].instant if whole else None
    for one in inside:
        instant = one.instant if one.part.kind is PartKind.QUERY else None
        if last is not None and instant is not None and instant < last:
            yield _OLDER.format(format_instant(instant))


def _retained(plan: Plan, notes: list[str]) -> Plan:
    """The plan with what each leg retains at its NOW, and with notes about that."""
    legs: list[LegPlan] = []
    for number, leg in enumerate(plan.legs):
        oldest, told = retention(leg.window, leg.schema, leg.now, leg.current)
        legs.append(replace(leg, oldest=oldest))
        waits = leg.now is None and plan.query.stays_inside(number)
        if not waits:
            notes += told if len(plan.legs) == 1 else [f"{leg.leg.stream}: {one}" for one in told]
    return replace(plan, legs=tuple(legs), notes=tuple(dict.fromkeys(notes)))


def _full_at(plan: Plan) -> int | None:
    """The last instant that was a point of every part that has points; None where none was since
    the streams of those inside the query began."""
    instants = [one.instant for one in plan.points if one.instant is not None]
    if len(instants) < len(plan.points):
        return None
    refreshes = [one.part.refresh for one in plan.points]
    every = [one for one in refreshes if isinstance(one, RefreshEvery)]
    if len(every) < len(refreshes):
        return instants[0] if len(set(instants)) == 1 else None
    common = common_points(every)
    if common is None:
        return None
    full = common.point(min(instants))
    inside = {
        number
        for one in plan.points
        for number in one.part.legs
        if one.part.kind is not PartKind.WHOLE
    }
    return full if any(_has_begun(plan.legs[number], full) for number in inside) else None


def _has_begun(leg: LegPlan, instant: int) -> bool:
    """Tells whether a leg's stream had a row by an instant. One that the stream does not retain any
    more counts as later than its first row, which may be gone."""
    if leg.kept_from is not None and instant < leg.kept_from:
        return True
    earliest = leg.stem.earliest()
    return (earliest is not None and earliest <= instant) or not leg.stem.is_whole(0)
