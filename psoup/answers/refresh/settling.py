"""Settling a plan: finding the refresh points that its parts are as of.

A query with REFRESH is as of its last refresh point, and so is a query inside another, or a leg,
with a REFRESH of its own. Refresh points are not stored: they are found for each answer, those of
outer parts first. A point is a NOW and a limit to the rows known then, given by an instant (EVERY)
or by a row (ON). With several event-time streams the limit is the position of the event that took
the last of them to the instant.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from datastem.instants import MIN_INSTANT, SINCE_EVER, format_instant
from psoup.answers.matching.permitted_rows import MatchSource
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

    `now` is None if there was no NOW then.
    """

    now: int | None
    limits: tuple[Limit, ...]
    instant: int


class PointFinder(Protocol):
    """A finder of refresh points, which may read files."""

    def position(self, instant: int, crossings: Iterable[Crossing]) -> int | None:
        """Return the position of the event that took the last of some streams to an instant; None
        if it is not known for any of them."""

    def reached_at(self, stamp: int, crossing: Crossing, oldest: int) -> int | None:
        """Return what a stream had reached before the first heartbeat with a later stamp that took
        it to `oldest` or past it, SINCE_EVER for nothing; None if there is no such heartbeat."""

    def matcher(self, triggers: Triggers) -> MatchSource: ...


def settled(plan: Plan, finder: PointFinder | None = None) -> Plan:
    """Return the plan with each part as of its last refresh point; without a finder, as far as no
    file must be read."""
    while plan.unsettled and plan.now is not None:
        unsettled = plan.unsettled[0]
        advanced = RefreshScope(plan, unsettled.part, finder).settled(unsettled)
        if advanced is None:
            return plan
        plan = advanced
    return replace(plan, unsettled=())


@dataclass(frozen=True)
class RefreshScope:
    """A part of a plan whose legs are as of the points of the parts around it already."""

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
        """NOW of what is around the part. If that has another kind of time, legs are taken at the
        NOW of their streams: then the greatest of these."""
        if self.part.kind is PartKind.WHOLE:
            return self.plan.now
        nows = [leg.now for leg in self.legs if not is_apart(leg.schema, self.by_clock)]
        return max((now for now in nows if now is not None), default=None)

    @property
    def waited_for(self) -> Sequence[LegPlan]:
        """The event-time legs whose streams a point waits for. Keyed streams and rows that are
        looked up (AS OF) are waited for only if there are no others."""
        timed = [leg for leg in self.legs if not leg.schema.now_is_clock]
        read = [leg for leg in timed if leg.leg.as_of is None]
        plain = [leg for leg in read if not leg.schema.key]
        return plain or read or timed

    # ---- the next step

    def settled(self, unsettled: UnsettledPart) -> Plan | None:
        """Return the plan one step further; None if that needs a finder."""
        if self.around is None:
            return self.at(None)
        if unsettled.instant is not None:
            return self._every(unsettled.instant, unsettled)
        if self.finder is None and (unsettled.triggers or self._needs_heartbeats):
            return None
        return self.settled_at(self.last(unsettled.triggers), unsettled)

    def last(self, triggers: Sequence[Triggers]) -> Point | int | None:
        """Return the last point: that of a row, or the instant of one of REFRESH EVERY; None before
        there is one. Needs a finder if there are triggers."""
        row = self._last_row(triggers, self.finder) if triggers and self.finder else None
        instants = [self.last_instant(every) for every in periodic(self.part.refresh)]
        instant = max((last for last in instants if last is not None), default=None)
        # The later of the two is the point; a row at the instant wins if its NOW is there too.
        if instant is None or (row is not None and when(row) >= (instant, instant)):
            return row
        return instant

    def settled_at(self, point: Point | int | None, unsettled: UnsettledPart) -> Plan | None:
        """Return the plan with the part as of a point; None if that needs a finder."""
        if point is None or isinstance(point, Point):
            return self.at(point)
        return self._every(point, unsettled)

    def _last_row(self, triggers: Sequence[Triggers], finder: PointFinder) -> Point | None:
        """Return the last point that a row of any trigger makes."""
        candidates = [self._by_rows(trigger, finder.matcher(trigger)) for trigger in triggers]
        points = [point for point in candidates if point is not None]
        return max(points, key=order, default=None)

    def at(self, point: Point | None) -> Plan:
        """Return the plan with the part as of a point, or over no rows before there is one."""
        legs = self._legs_at(point)
        instant, now = (None, None) if point is None else (point.instant, point.now)
        points = (*self.plan.points, SettledPart(self.part, instant, now))
        plan = replace(self.plan, legs=legs, points=points, unsettled=self.plan.unsettled[1:])
        if self.part.kind is PartKind.WHOLE:
            plan = replace(plan, now=now)
        return _finished(plan)

    def _legs_at(self, point: Point | None) -> tuple[LegPlan, ...]:
        """Return the legs of the plan, with those of the part as of a point. Legs that are taken at
        their stream's own NOW stay at it."""
        legs, clock = list(self.plan.legs), self.by_clock
        for number in self.part.legs:
            leg = legs[number]
            now, limits = (None, ()) if point is None else (point.now, point.limits)
            now = leg.now if now is not None and is_apart(leg.schema, clock) else now
            legs[number] = replace(leg, now=now, limits=(*leg.limits, *limits))
        return tuple(legs)

    # ---- REFRESH EVERY

    def _every(self, instant: int, unsettled: UnsettledPart) -> Plan | None:
        """Return the plan at the point of an instant. If events must be found to know which rows
        were known then, return it first with the point's NOW alone; None if that needs a finder."""
        limits = self._known_at(instant)
        if limits is not None:
            return self.at(Point(instant, limits, instant))
        if unsettled.instant is None:
            waiting = (replace(unsettled, instant=instant), *self.plan.unsettled[1:])
            return replace(self._only_now(instant), unsettled=waiting)
        if self.finder is None:
            return None
        streams = {leg.stream_id for leg in self.waited_for}
        crossings = [self.plan.crossings[stream_id] for stream_id in sorted(streams)]
        position = self.finder.position(instant, crossings)
        if position is None and self._is_bounded:
            return self.at(Point(instant, (), instant))
        # Position 0 is before all events: no row is known.
        return self.at(Point(instant, (("_position", position or 0),), instant))

    @property
    def _is_bounded(self) -> bool:
        """Whether later rows are not known to the part in any case: the answer is as of an instant,
        or what is around the part is as of a point."""
        return self.plan.knowledge is not RowsKnown.PRESENT or bool(self.legs[0].limits)

    def _only_now(self, instant: int) -> Plan:
        plan = replace(self.plan, legs=self._legs_at(Point(instant, (), instant)))
        whole = self.part.kind is PartKind.WHOLE
        return replace(plan, now=instant) if whole else plan

    def last_instant(self, refresh: RefreshEvery) -> int | None:
        """Return the instant of the last point of REFRESH EVERY; None before there is one."""
        reached = self.around
        if self.plan.knowledge is not RowsKnown.TODAY and not self.by_clock:
            # As of an instant too: a point that the streams had not reached was not known then.
            instants = [_now_within(leg, self._reached_then(leg)) for leg in self.waited_for]
            # Nothing is around the whole: only the streams that it waits for limit it.
            fresh = self.plan.knowledge is RowsKnown.PRESENT
            instants += [] if self.part.kind is PartKind.WHOLE and fresh else [reached]
            reached = min((ts for ts in instants if ts is not None), default=None)
            reached = None if None in instants else reached
        if reached is None or refresh.point(reached) < MIN_INSTANT:
            return None
        return refresh.point(reached)

    def _known_at(self, instant: int) -> tuple[Limit, ...] | None:
        """Return the limits to the rows known at a point of REFRESH EVERY: none for today's rows,
        else by stamp, or with one stream by what it had reached. None if events must be found."""
        if self.plan.knowledge is RowsKnown.TODAY:
            return ()
        if self.by_clock:
            return (("_stamp", instant),)
        if len({leg.stream_id for leg in self.legs}) == 1 and not self._needs_position:
            # `_before` is what the stream had reached before a row came, so these rows came before
            # the stream had reached the instant.
            return (("_before", instant - 1),)
        if any(leg.current is None or leg.current < instant for leg in self.waited_for):
            # Only an answer as of an instant may be ahead of its streams.
            return ()
        return None

    @property
    def _needs_position(self) -> bool:
        """Whether rows of another stream, which refresh a part inside, must be known as of the
        point too."""
        inner = self.plan.unsettled[1:]
        return any(
            unsettled.triggers and unsettled.part.legs[0] in self.part.legs for unsettled in inner
        )

    # ---- what streams had reached

    @property
    def _needs_heartbeats(self) -> bool:
        """Whether heartbeats may have come since the requested instant, which were not known
        then."""
        return not self.by_clock and any(map(self._is_as_known_then, self.waited_for))

    def _is_as_known_then(self, leg: LegPlan) -> bool:
        return self.plan.knowledge is RowsKnown.THEN and bool(leg.limits)

    def _reached_then(self, leg: LegPlan) -> int | None:
        """Return NOW of a leg's stream by the heartbeats up to the requested instant. Heartbeats
        below what the stream retains don't count."""
        requested, current = self.plan.requested_now, leg.current
        if not self._is_as_known_then(leg) or requested is None or current is None:
            return current
        assert self.finder is not None, "heartbeats are read with a finder"
        oldest = SINCE_EVER if leg.oldest_kept is None else leg.oldest_kept
        reached = self.finder.reached_at(requested, self.plan.crossings[leg.stream_id], oldest)
        if reached is None:
            return current
        return reached if reached >= MIN_INSTANT else None

    # ---- REFRESH ON

    def _by_rows(self, triggers: Triggers, matcher: MatchSource) -> Point | None:
        """Return the last point of REFRESH ON: the last row that matches. Reads files if rows are
        not in memory."""
        until = self.around if self.plan.knowledge is RowsKnown.TODAY else None
        # With today's rows and event time, the last row by ts counts, whenever it came.
        if until is not None and not self.by_clock:
            last = latest_row(triggers, until, matcher)
            return None if last is None else Point(last.ts, (), last.ts)
        last = newest_row(triggers, self.legs[0].limits, until, matcher)
        if last is None:
            return None
        return self.point_of(last, () if until is not None else (("_position", last.position),))

    def point_of(self, row: TriggerRow, known: tuple[Limit, ...]) -> Point:
        """Return the point that a row makes, with the limits to the rows known then."""
        if self.by_clock:
            return Point(row.stamp, known, row.stamp)
        return Point(self._now_at(row), known, row.ts)

    def _now_at(self, row: TriggerRow) -> int | None:
        """Return NOW of a point that a row makes: the least of its ts, of what the streams that a
        point waits for had reached, and of NOW around the part; None if a stream had no NOW."""
        least, requested = row.ts, self.plan.requested_now
        if self.part.kind is not PartKind.WHOLE and self.around is not None:
            least = min(least, self.around)
        for leg in self.waited_for:
            then = replace(leg, limits=(*leg.limits, ("_position", row.position)))
            reached = _now_within(then, self._reached_then(leg))
            if reached is None:
                return None
            least = min(least, reached)
        if self.plan.knowledge is not RowsKnown.PRESENT and requested is not None:
            least = min(least, requested)
        return least


def when(point: Point) -> tuple[int, int]:
    """Return the instant of a point and its NOW, which order points in time."""
    return point.instant, MIN_INSTANT if point.now is None else point.now


def order(point: Point) -> tuple[tuple[int, int], tuple[Limit, ...]]:
    """Return the key of points that rows make: of several last ones the greatest counts."""
    return when(point), point.limits


def _now_within(leg: LegPlan, present: int | None) -> int | None:
    """Return NOW of a leg's stream before the first retained row that the leg does not know; its
    `present` NOW if that is less, or if there is no such row.

    A heartbeat after the known rows and before that row counts, unless it is later than the
    present.
    """
    if not leg.limits or present is None:
        return present
    before = leg.stem.first_from(leg.limit()[0], "_before", leg.oldest_kept)
    if before is None:
        return present
    return min(before, present) if before >= MIN_INSTANT else None


# ---- notes about points


def _finished(plan: Plan) -> Plan:
    """Return the plan, with notes about its points and retention once the last point is known."""
    if plan.unsettled and plan.now is not None:
        return plan
    whole = [settled for settled in plan.points if settled.part.kind is PartKind.WHOLE]
    inside = [settled for settled in plan.points if settled.part.kind is not PartKind.WHOLE]
    instants = [settled.instant for settled in whole or inside if settled.instant is not None]
    plan = replace(
        plan,
        refreshed_at=max(instants, default=None),
        full_at=_full_at(plan) if inside else None,
        nows=tuple(settled.now for settled in inside if settled.part.kind is PartKind.QUERY),
    )
    if whole and whole[0].instant is None:
        return replace(plan, notes=(_NOT_YET,))
    return _retained(plan, [*_notes(whole, inside)])


def _notes(whole: Sequence[SettledPart], inside: Sequence[SettledPart]) -> Iterable[str]:
    """Yield notes about points inside a query that differ from those of the whole."""
    if any(settled.instant is None for settled in inside):
        yield _NOT_YET_INSIDE
    last = whole[0].instant if whole else None
    for settled in inside:
        instant = settled.instant if settled.part.kind is PartKind.QUERY else None
        if last is not None and instant is not None and instant < last:
            yield _OLDER.format(format_instant(instant))


def _retained(plan: Plan, notes: list[str]) -> Plan:
    """Return the plan with what each leg retains at its NOW, and with notes about that."""
    legs: list[LegPlan] = []
    several = len(plan.legs) > 1
    for number, leg in enumerate(plan.legs):
        oldest, leg_notes = retention(leg.window, leg.schema, leg.now, leg.current, leg.leg.valid)
        legs.append(replace(leg, oldest=oldest))
        waits = leg.now is None and plan.query.stays_inside(number)
        if not waits:
            notes += [f"{leg.leg.stream}: {note}" if several else note for note in leg_notes]
    return replace(plan, legs=tuple(legs), notes=tuple(dict.fromkeys(notes)))


def _full_at(plan: Plan) -> int | None:
    """Return the last instant that was a point of every part with points; None if there was none
    since the streams of the parts inside the query began."""
    instants = [settled.instant for settled in plan.points if settled.instant is not None]
    if len(instants) < len(plan.points):
        return None
    refreshes = [settled.part.refresh for settled in plan.points]
    every = [refresh for refresh in refreshes if isinstance(refresh, RefreshEvery)]
    # Past points of rows are not known, so only a common last point counts.
    if len(every) < len(refreshes):
        return instants[0] if len(set(instants)) == 1 else None
    common = common_points(every)
    if common is None:
        return None
    full = common.point(min(instants))
    inside = {
        number
        for settled in plan.points
        for number in settled.part.legs
        if settled.part.kind is not PartKind.WHOLE
    }
    return full if any(_has_begun(plan.legs[number], full) for number in inside) else None


def _has_begun(leg: LegPlan, instant: int) -> bool:
    """Return True if a leg's stream had a row by an instant. An instant that is no longer retained
    counts as later than the first row, which may be deleted."""
    if leg.oldest_kept is not None and instant < leg.oldest_kept:
        return True
    earliest = leg.stem.earliest()
    return (earliest is not None and earliest <= instant) or not leg.stem.is_whole(0)
