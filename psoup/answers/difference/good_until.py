"""The next instant at which time alone may change an answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from datastem.arrays import Int64s
from datastem.blocks import Part
from datastem.instants import FOR_EVER, SINCE_EVER
from psoup.answers.caches import Memo
from psoup.answers.difference.job import Mark, by_clock, enters_by_time, legs_apart
from psoup.answers.matching.permitted_rows import PermittedRows
from psoup.answers.planning.plan import LegPlan, Plan
from psoup.answers.planning.policies import FilledCondition
from psoup.answers.rows.folds import Fold
from psoup.answers.rows.leg_rows import LegRows
from psoup.answers.rows.windows import NO_ROWS
from querystem.expressions import TRUE
from querystem.legs import Leg
from querystem.query import Item, Query, Source
from querystem.refresh import periodic
from querystem.sources import From, LeftJoin, SetOperation
from results.region import Region, entered, leaving, visible
from results.window import UNBOUNDED, TimeWindow


@dataclass(frozen=True, slots=True)
class _Least:
    """The least ts of a run of rows."""

    ts: int
    nbytes: int = 64


def next_change(
    plan: Plan,
    regions: Sequence[Region],
    mark: Mark,
    memo: Memo,
    permitted: Sequence[PermittedRows | None],
) -> int | None:
    """Return the instant at which the first row leaves a leg's region, or the first waiting row
    enters. If NOW stays at refresh points, return the next point that the clock makes. None: never.

    Only legs over arrival time count: with event time, time alone changes nothing. Rows that do not
    match count too, if they are shown, so the instant may be early.
    """
    soonest = FOR_EVER
    for number, above in enumerate(_windows_over(plan.query.source)):
        leg = plan.legs[number]
        if leg.schema.now_is_clock:
            stays = any(number in part.legs for part in plan.query.refreshed_parts)
            place = _place(plan, mark, number)
            changes = _Changes(leg, stays, regions[number], *place, memo, permitted[number])
            soonest = min([soonest, changes.next(), *map(changes.next_over, above)])
    soonest = min([soonest, *_next_points(plan, mark)])
    return None if soonest == FOR_EVER else soonest


def next_entry(
    plan: Plan, mark: Mark, memo: Memo, permitted: Sequence[PermittedRows | None]
) -> int | None:
    """Return the instant at which the first waiting row enters a leg's window; None without one.

    Only legs over arrival time count. Rows that do not match count too, if they are shown: an
    instant that depended on a condition would reveal a row's values before the row is visible.
    """
    soonest = FOR_EVER
    for number, leg in enumerate(plan.legs):
        if leg.schema.now_is_clock and isinstance(leg.window, TimeWindow):
            region, rows = NO_ROWS.region, permitted[number]
            changes = _Changes(leg, False, region, *_place(plan, mark, number), memo, rows)
            soonest = min(soonest, changes.enters(leg.window))
    return None if soonest == FOR_EVER else soonest


def calm_until(plan: Plan, regions: Sequence[Region], mark: Mark, memo: Memo) -> int:
    """Return the first NOW after that of a mark at which windows of the legs hold other rows, of
    those that are known at the mark, whatever moves NOW. FOR_EVER without one, and SINCE_EVER if a
    window over a query may hold others."""
    if any(_windows_over(plan.query.source)):
        return SINCE_EVER
    return min(
        _Changes(leg, False, regions[number], *_place(plan, mark, number), memo, None).by_now()
        for number, leg in enumerate(plan.legs)
    )


def _place(plan: Plan, mark: Mark, number: int) -> tuple[int | None, int]:
    """Return the NOW that a leg is taken at, and the id that its rows are below."""
    leg = mark.legs[number]
    return leg.current if legs_apart(plan)[number] else mark.now, leg.high


def changes_always(plan: Plan) -> bool:
    """Return True if the answer follows the clock from instant to instant: it is computed from NOW
    in another way than by intervals of visibility, and no REFRESH holds it."""
    if plan.query.refresh is not None or not by_clock(plan) or not plan.query.uses_now:
        return False
    legs = [leg for leg in plan.legs if leg.leg.when != TRUE]
    hidden = any(leg.visibility is None or leg.stream_id in plan.unread for leg in legs)
    return hidden or any(query.has_now for query in plan.query.all_queries)


def next_visibility(rows: Sequence[LegRows], now: int) -> int | None:
    """Return the first instant after `now` at which the visibility of a row of some legs begins or
    ends; None without one. The rows are those that their windows hold at `now`."""
    soonest = FOR_EVER
    for leg_rows in rows:
        visibility = leg_rows.leg.visibility
        assert visibility is not None, "the condition of the leg is a visibility"
        for part in leg_rows.parts():
            picked = [(part, leg_rows.places(part))]
            intervals = visibility.interval(leg_rows.gather(picked, visibility.reads | {"row_id"}))
            for ends in intervals:
                soonest = int(np.min(ends[ends > now], initial=soonest))
    return None if soonest == FOR_EVER else soonest


def permission_change(rows: LegRows, condition: FilledCondition, now: int) -> tuple[int, int]:
    """Return the first instants after `now` at which a condition of a policy shows one of the rows,
    and hides one that it shows; FOR_EVER without one. It permits the rows at some NOW."""
    shows = hides = FOR_EVER
    for part in rows.parts():
        reads = condition.visibility.reads | {"row_id"}
        batch = rows.gather([(part, rows.places(part))], reads)
        begin, end = condition.visibility.interval(batch)
        shows = int(np.min(begin[begin > now], initial=shows))
        hides = int(np.min(end[(begin <= now) & (end > now)], initial=hides))
    return shows, hides


def _next_points(plan: Plan, mark: Mark) -> Iterator[int]:
    """Yield the next point of each part whose points follow the clock."""
    for part in plan.query.refreshed_parts:
        arrival = [n for n in part.legs if plan.legs[n].schema.now_is_clock]
        for every in periodic(part.refresh) if arrival else ():
            # All legs over arrival time have the same clock. Over one stream the horizon holds it.
            clock = mark.legs[arrival[0]].current
            yield every.following(clock or mark.horizon or 0)


@dataclass(frozen=True, slots=True)
class _Changes:
    """The instants at which time changes the rows of one leg, which is taken at `now`. If the leg
    `stays`, its window moves at refresh points only. Its rows have ids below `high`. `permitted`
    are the rows that policies show; None for all."""

    leg: LegPlan
    stays: bool
    region: Region
    now: int | None
    high: int
    memo: Memo
    permitted: PermittedRows | None

    def next(self) -> int:
        """Return the next change that the leg's window or retention makes; FOR_EVER without one."""
        leaves = self._leaves(self._least(self.region))
        window = self.leg.window
        if self.stays:
            return leaves
        # A waiting row takes its place in a window that counts rows when NOW reaches it.
        return min(leaves, self.enters(window if isinstance(window, TimeWindow) else UNBOUNDED))

    def by_now(self) -> int:
        """Return the next NOW at which the window holds other rows; FOR_EVER without one."""
        window = self.leg.window
        leaves = self._leaves(self._least(self.region))
        return min(leaves, self._enters(window if isinstance(window, TimeWindow) else UNBOUNDED))

    def next_over(self, window: TimeWindow) -> int:
        """Return the next change made by a window over a query that reads the leg's rows."""
        now = self.now
        begin = None if now is None else window.at(now)[0]
        region = self.region if begin is None else self.region.narrowed(since=(begin, 0))
        ts = self._least(region)
        leaves = ts if ts == FOR_EVER else int(visible(window, np.array([ts]), None)[1][0])
        return min(leaves, self.enters(window))

    def _leaves(self, ts: int) -> int:
        """Return the instant at which a row leaves the window, if NOW moves, or the retention,
        unless its stream is keyed."""
        if ts == FOR_EVER:
            return ts
        leg, least = self.leg, np.array([ts])
        retain = None if leg.keyed is not None else leg.schema.retain
        if isinstance(leg.window, TimeWindow) and not self.stays:
            return int(visible(leg.window, least, retain)[1][0])
        return int(leaving(least, retain)[0])

    def enters(self, window: TimeWindow) -> int:
        """Return the instant at which the first waiting row enters; FOR_EVER without one."""
        return self._enters(window) if enters_by_time(window, self.leg.schema) else FOR_EVER

    def _enters(self, window: TimeWindow) -> int:
        if self.now is None:
            return FOR_EVER
        # The known rows that the window has not reached at NOW.
        waiting = Region((entered(window, self.now), 0), (FOR_EVER, 0), 0, self.high)
        ts = self._least(waiting)
        retain = self.leg.schema.retain
        return ts if ts == FOR_EVER else int(visible(window, np.array([ts]), retain)[0][0])

    def _least(self, region: Region) -> int:
        """Return the least ts of the permitted rows in a region; FOR_EVER without any. All rows of
        a stream key decide which is current, permitted or not."""
        permitted = None if self.leg.keyed is not None else self.permitted

        def of(part: Part, places: Int64s) -> _Least:
            places = places if permitted is None else permitted.places(part, places)
            ts = part.ts[places]
            # A run may have no permitted row in the region: it then has no least ts.
            return _Least(int(np.min(ts[region.holds(ts, part.ids[places])], initial=FOR_EVER)))

        def merge(parts: Sequence[_Least]) -> _Least:
            return min(parts, key=lambda part: part.ts)

        subject = (
            "least ts",
            self.leg.stream_id,
            self.leg.stem.erased_rows,
            None if permitted is None else permitted.subject,
        )
        values = Fold(self.memo, subject, self.leg.stem, region, of, merge).values()
        return merge(values).ts if values else FOR_EVER


def _windows_over(
    source: Source | Item, above: tuple[TimeWindow, ...] = ()
) -> Iterator[tuple[TimeWindow, ...]]:
    """Yield, for each leg of a source, the time windows over the queries that it stands in."""
    match source:
        case Leg():
            yield above
        case From(items, _, subqueries):
            for item in (*items, *(subquery.query for subquery in subqueries)):
                yield from _windows_over(item, above)
        case SetOperation(_, queries):
            for query in queries:
                yield from _windows_over(query, above)
        case LeftJoin(left, right):
            yield from _windows_over(left, above)
            yield from _windows_over(right, above)
        case Query():
            over = (source.over,) if isinstance(source.over, TimeWindow) else ()
            yield from _windows_over(source.source, (*above, *over))
