"""The refresh points that a client has missed, one after the other.

The points of a query are those that its answer went through as the log grew: each multiple of a
period of REFRESH EVERY, and for REFRESH ON the last row of each batch. Nothing is stored of them. A
mark says which one a copy is of, and its `trigger_highs` up to which row each trigger has been
looked at; the next point follows from that.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeAlias

from datastem.instants import FOR_EVER, MIN_INSTANT
from datastem.stem_view import SystemColumn
from psoup.answers.difference.job import Mark, Skipped
from psoup.answers.planning.plan import LegPlan, Plan, Triggers, UnsettledPart, oldest_retained
from psoup.answers.refresh.settling import Point, PointFinder, RefreshScope, order, settled, when
from psoup.answers.refresh.triggers import (
    TriggerRow,
    has_lost,
    low_of_newest,
    newest_row,
    rows_after,
)
from querystem.refresh import periodic
from results.window import TimeWindow

# The most points that are caught up with: a week of minutes, three hours of seconds.
MAX_MISSED = 10_000

# A point that a row makes, or the instant of one of REFRESH EVERY.
AnyPoint: TypeAlias = Point | int


@dataclass(frozen=True, slots=True)
class NextPoint:
    """The plan as of the next point. `highs` are the ids that the rows that were looked at are
    below, for each trigger. `more` says that later points follow; if not, the plan is the one that
    was given, since its last point is the next."""

    plan: Plan
    highs: tuple[int, ...]
    more: bool
    skipped: Skipped


def trigger_highs(plan: Plan) -> tuple[int, ...]:
    """Return those of a mark that is of the last point of a plan that is not settled."""
    triggers = plan.unsettled[0].triggers if plan.unsettled else ()
    return tuple(trigger.stem.high for trigger in triggers)


def next_point(
    plan: Plan,
    copy: Mark,
    finder: PointFinder,
    calm_until: Callable[[], int],
    *,
    resumed: bool = False,
) -> NextPoint | None:
    """Return the first point after the one of a copy; None if that is the last one, or if nothing
    has refreshed the answer yet.

    The plan must not be settled. Points whose rows are no longer all retained are skipped, and the
    oldest of more than MAX_MISSED; not if the search was `resumed`, since that was looked at when
    it began. `calm_until` returns the NOW before which time alone does not change the copy. The
    last point is returned in any case.
    """
    scope, part = RefreshScope(plan, plan.unsettled[0].part, finder), plan.unsettled[0]
    last = None if scope.around is None else scope.last(part.triggers)
    begin = _Begin(_instant_of(copy, scope, last), _lows(copy, part))
    skipped = Skipped.NONE if resumed else _lost(part, begin.lows, finder)
    if last is not None:
        search = _Search(scope, part, copy, finder, last, calm_until)
        limited = begin if resumed else search.limited(begin)
        skipped = skipped if limited == begin else Skipped.TOO_MANY
        following = search.next(limited, skipped)
        if following is not None:
            return following
    return None if skipped is Skipped.NONE else NextPoint(plan, trigger_highs(plan), False, skipped)


@dataclass(frozen=True, slots=True)
class _Begin:
    """Where a search begins: multiples of periods count after the `instant`, rows from the ids
    `lows` on. Points of rows with a NOW up to the instant are passed over, if `rows_too`."""

    instant: int
    lows: tuple[int, ...]
    rows_too: bool = False


class _Candidate(NamedTuple):
    """An instant of REFRESH EVERY, or a row of the trigger with a number; and its place in the
    order of the log."""

    key: tuple[int, int, int]
    instant: int
    trigger: int
    row: TriggerRow | None


@dataclass(frozen=True)
class _Search:
    """A search for the points after that of a copy, up to the `last` one."""

    scope: RefreshScope
    part: UnsettledPart
    copy: Mark
    finder: PointFinder
    last: AnyPoint
    calm_until: Callable[[], int]

    def next(self, begin: _Begin, skipped: Skipped) -> NextPoint | None:
        """Return the first point from a begin on that is whole, or the last one; None without
        one."""
        points = self.points(begin)
        for point, highs in points:
            if point == self.last and next(points, None) is None:
                break
            moved = self.scope.settled_at(point, self.part)
            assert moved is not None, "with a finder a point is found"
            moved = settled(moved, self.finder)
            if all(map(is_whole, moved.legs)):
                return NextPoint(moved, highs, True, skipped)
            skipped, floor = Skipped.RETENTION, self.first_whole(moved)
            if moved.now is not None and floor > moved.now:
                return self.next(replace(begin, instant=floor, rows_too=True), skipped)
        else:
            return None
        plan = self.scope.plan
        return NextPoint(plan, trigger_highs(plan), False, skipped)

    # ---- where it begins

    def limited(self, begin: _Begin) -> _Begin:
        """Return the begin of the newest MAX_MISSED points, if there are more."""
        lows = tuple(
            low_of_newest(trigger, low, MAX_MISSED, self.finder.matcher(trigger))
            for trigger, low in zip(self.part.triggers, begin.lows, strict=True)
        )
        instant = begin.instant
        for every in periodic(self.part.part.refresh):
            instant = max(instant, every.point(self._last_now) - MAX_MISSED * every.period)
        if self._is_calm and self._most_changes(begin.instant) <= MAX_MISSED:
            instant = begin.instant
        return replace(begin, instant=instant, lows=lows)

    @property
    def _last_now(self) -> int:
        return _now_of(self.last)

    def first_whole(self, plan: Plan) -> int:
        """Return an instant: after it, the windows of the query hold what is retained only, as far
        as the part itself decides. `plan` is as of a point that does not."""
        assert plan.now is not None, "without a NOW nothing is missing"
        low, high = plan.now, self._last_now
        outer = [leg for number, leg in enumerate(plan.legs) if not plan.query.stays_inside(number)]
        # Windows begin no earlier at a later NOW.
        while high - low > 1:
            middle = (low + high) // 2
            whole = all(is_whole(replace(leg, now=middle)) for leg in outer)
            low, high = (low, middle) if whole else (middle, high)
        return low

    # ---- the points

    def points(self, begin: _Begin) -> Iterator[tuple[AnyPoint, tuple[int, ...]]]:
        """Yield the points in order, each with the ids that the rows before the next one are
        below."""
        highs, rows, passed = [*begin.lows], self._newest_before(begin.lows), begin.instant
        for _, instant, index, row in self._candidates(begin):
            best = max(rows.values(), key=order, default=None)
            if row is None:
                passed = instant
                # A row at the instant wins if its NOW is there too.
                if best is None or when(best) < (instant, instant):
                    yield instant, tuple(highs)
                continue
            highs[index] = row.id + 1
            rows[index] = point = self.scope.point_of(row, (("_position", row.position),))
            newest = max(rows.values(), key=order)
            before = self._multiple(passed)
            counts = before is None or when(newest) >= (before, before)
            late = begin.rows_too and (newest.now is None or newest.now <= begin.instant)
            if counts and not late and (newest is point or newest != best):
                yield newest, tuple(highs)

    def _multiple(self, instant: int) -> int | None:
        """Return the last instant of REFRESH EVERY up to one; None without REFRESH EVERY."""
        instants = (every.point(instant) for every in periodic(self.part.part.refresh))
        return max(instants, default=None)

    def _newest_before(self, lows: Sequence[int]) -> dict[int, Point]:
        """Return the last point that each trigger made with rows below an id. One kind of point
        alone needs none."""
        triggers = self.part.triggers
        if len(triggers) + len(periodic(self.part.part.refresh)) < 2:
            return {}
        points = {}
        for index, (trigger, low) in enumerate(zip(triggers, lows, strict=True)):
            earlier = replace(trigger, stem=replace(trigger.stem, high=min(low, trigger.stem.high)))
            row = newest_row(earlier, (), None, self.finder.matcher(trigger))
            if row is not None:
                points[index] = self.scope.point_of(row, (("_position", row.position),))
        return points

    def _candidates(self, begin: _Begin) -> Iterator[_Candidate]:
        """Yield instants of REFRESH EVERY and rows in the order in which they came."""
        instants = (
            _Candidate(self._key(instant), instant, -1, None) for instant in self._instants(begin)
        )
        rows = [self._rows(index, low) for index, low in enumerate(begin.lows)]
        return heapq.merge(instants, *rows, key=lambda candidate: candidate.key)

    def _rows(self, index: int, low: int) -> Iterator[_Candidate]:
        trigger, by_clock = self.part.triggers[index], self.scope.by_clock
        for row in rows_after(trigger, low, self.finder.matcher(trigger)):
            # By the clock a row comes before a point at its stamp. Over event time a batch passes a
            # point before its own rows are points.
            key = (row.stamp, 0, row.position) if by_clock else (row.position, 1, 0)
            yield _Candidate(key, 0, index, row)

    def _key(self, instant: int) -> tuple[int, int, int]:
        if self.scope.by_clock or not self.part.triggers:
            return instant, 1, 0
        streams = sorted({leg.stream_id for leg in self.scope.waited_for})
        crossings = [self.scope.plan.crossings[stream_id] for stream_id in streams]
        return self.finder.position(instant, crossings) or 0, 0, 0

    def _instants(self, begin: _Begin) -> Iterator[int]:
        """Yield the points of REFRESH EVERY. Those at which nothing can have changed are passed
        over."""
        refreshes = periodic(self.part.part.refresh)
        ends = [self.scope.last_instant(every) for every in refreshes]
        end = max((last for last in ends if last is not None), default=MIN_INSTANT - 1)
        instant = begin.instant
        if self._is_calm and end > instant:
            # The last point is yielded in any case.
            instant = max(instant, min(self._unchanged_until, end) - 1)
        while refreshes:
            instant = min(every.following(instant) for every in refreshes)
            if instant > end:
                return
            yield instant

    # ---- points at which nothing changes

    @cached_property
    def _is_calm(self) -> bool:
        """Whether the answer changes between two points only by rows that come, and by time in ways
        that `calm_until` knows."""
        plan = self.scope.plan
        legs = plan.legs
        is_single = self.scope.by_clock or len({leg.stream_id for leg in legs}) == 1
        is_simple = all(leg.is_timeless and leg.leg.as_of is None for leg in legs)
        has_more = len(plan.unsettled) > 1 or bool(self.part.triggers)
        return is_single and is_simple and not has_more and not plan.query.uses_now

    @property
    def _unchanged_until(self) -> int:
        """An instant: at points before it the answer is that of the copy."""
        if self.copy.now is None:
            return MIN_INSTANT
        instants = [self.calm_until()]
        column: SystemColumn = "_stamp" if self.scope.by_clock else "_before"
        for leg, mark in zip(self.scope.plan.legs, self.copy.legs, strict=True):
            value = leg.stem.first_from(mark.high, column) if mark.high < leg.stem.high else None
            if value is not None:
                # A row is known at a point if it was stamped by then, or if the stream had not
                # reached the point before it.
                instants.append(value if self.scope.by_clock else value + 1)
        return min(instants)

    def _most_changes(self, now: int) -> int:
        """Return the number of points after a NOW, at most, at which a calm answer changes: each
        row comes once and leaves once."""
        rows = 0
        for leg, mark in zip(self.scope.plan.legs, self.copy.legs, strict=True):
            begin = leg.window.at(now)[0] if isinstance(leg.window, TimeWindow) else None
            first = leg.stem.first_id(now if begin is None else begin, FOR_EVER)
            rows += leg.stem.high - min(first, mark.high)
        return 2 * rows


# ---- what has been passed, and what is still retained


def _instant_of(copy: Mark, scope: RefreshScope, last: AnyPoint | None) -> int:
    """Return the NOW of a copy; before there is one, an instant before all rows."""
    if copy.now is not None:
        return copy.now
    earliest = [leg.stem.earliest() for leg in scope.legs]
    least = min((ts for ts in earliest if ts is not None), default=None)
    if least is None:
        least = MIN_INSTANT if last is None else _now_of(last)
    return max(least, MIN_INSTANT) - 1


def _now_of(point: AnyPoint) -> int:
    if isinstance(point, Point):
        return point.instant if point.now is None else point.now
    return point


def _lows(copy: Mark, part: UnsettledPart) -> tuple[int, ...]:
    """Return the ids from which on the rows of each trigger have not been looked at."""
    if len(copy.trigger_highs) == len(part.triggers):
        return copy.trigger_highs
    # The copy is of the last point at its position.
    return tuple(_low(trigger, copy.position.packed) for trigger in part.triggers)


def _low(trigger: Triggers, position: int) -> int:
    low, before = trigger.stem.high_at("_position", position)
    if before is not None:
        return low
    first = trigger.stem.first_from(0, "_row_id")
    return trigger.stem.high if first is None else first


def _lost(part: UnsettledPart, lows: Sequence[int], finder: PointFinder) -> Skipped:
    """Return RETENTION if rows that made points are no longer retained."""
    triggers = zip(part.triggers, lows, strict=True)
    lost = any(has_lost(trigger, low, finder.matcher(trigger)) for trigger, low in triggers)
    return Skipped.RETENTION if lost else Skipped.NONE


def is_whole(leg: LegPlan) -> bool:
    """Return True if a leg at its NOW has all rows that it had when that was the present."""
    now, schema = leg.now, leg.schema
    if now is None or leg.current is None:
        return True
    oldest, valid = oldest_retained(schema, max(now, leg.current)), leg.leg.valid
    if valid is not None and valid.retain is not None:
        begin = valid.window.at(now)[0]
        if begin is None or begin <= max(now, leg.current) - valid.retain:
            return False
    if oldest is None:
        return True
    window = leg.window if isinstance(leg.window, TimeWindow) else None
    if schema.key and leg.leg.as_of is None:
        # Rows that were current at the instant of the window ended later than that.
        return (now if window is None else window.present(now)) >= oldest - 1
    then = oldest_retained(schema, now)
    begin = None if window is None or leg.leg.as_of is not None else window.at(now)[0]
    since = then if begin is None or then is None else max(begin, then)
    return (since is not None and since >= oldest) or _lost_nothing(leg, oldest)


def _lost_nothing(leg: LegPlan, oldest: int) -> bool:
    """Return True if the stream never had a row that is no longer retained."""
    earliest = leg.stem.earliest()
    return (earliest is None or earliest >= oldest) and leg.stem.is_whole(0)
