"""How long an answer stays good: the next instant at which time alone may change it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from datastem.arrays import Int64s
from datastem.blocks import Part
from datastem.instants import FOR_EVER
from psoup.answers.caches import Memo
from psoup.answers.difference.job import Mark, enters_by_time
from psoup.answers.matching.shown_rows import ShownRows
from psoup.answers.planning.plan import LegPlan, Plan
from psoup.answers.rows.folds import Fold
from psoup.answers.rows.windows import NO_ROWS
from querystem.query import From, Item, LeftJoin, Leg, Query, SetOperation, Source
from querystem.refresh import periodic
from results.region import Region, entered, leaving, visible
from results.window import TimeWindow


@dataclass(frozen=True, slots=True)
class _Least:
    """The least ts of some rows."""

    ts: int
    nbytes: int = 64


def next_change(
    plan: Plan,
    regions: Sequence[Region],
    mark: Mark,
    memo: Memo,
    shown: Sequence[ShownRows | None],
) -> int | None:
    """The instant when the first row of a leg's region leaves, or the first that waits enters;
    where NOW stays at refresh points, the next point, if time tells it. None: never.

    Only legs whose stream goes by arrival time count: of the others, time alone changes nothing.
    Rows that do not match count too, if they are shown, so the instant may be early.
    """
    soonest = FOR_EVER
    for number, above in enumerate(_windows_over(plan.query.source)):
        leg = plan.legs[number]
        if leg.schema.ordered_by is None:
            stays = any(number in part.legs for part in plan.query.refreshed_parts)
            known = mark.legs[number].high
            changes = _Changes(leg, stays, regions[number], mark, known, memo, shown[number])
            soonest = min([soonest, changes.next(), *map(changes.next_over, above)])
    soonest = min([soonest, *_next_points(plan, mark)])
    return None if soonest == FOR_EVER else soonest


def next_entry(plan: Plan, mark: Mark, memo: Memo, shown: Sequence[ShownRows | None]) -> int | None:
    """Return the instant when the first row enters a leg's window that waits for its time; None
    without one.

    Only legs whose stream goes by arrival time count. Rows that do not match count too, if they are
    shown: an instant that depended on a condition would tell what is in a row before it is shown.
    """
    soonest = FOR_EVER
    for number, leg in enumerate(plan.legs):
        if leg.schema.ordered_by is None and isinstance(leg.window, TimeWindow):
            high = mark.legs[number].high
            changes = _Changes(leg, False, NO_ROWS.region, mark, high, memo, shown[number])
            soonest = min(soonest, changes.enters(leg.window))
    return None if soonest == FOR_EVER else soonest


def _next_points(plan: Plan, mark: Mark) -> Iterator[int]:
    """The next point of each part whose points are told by the clock."""
    for part in plan.query.refreshed_parts:
        arrival = [n for n in part.legs if plan.legs[n].schema.ordered_by is None]
        for every in periodic(part.refresh) if arrival else ():
            clock = mark.legs[arrival[0]].current
            yield every.following(clock or mark.horizon or 0)


@dataclass(frozen=True, slots=True)
class _Changes:
    """The instants at which time changes the rows of one leg, whose window moves at refresh points
    only where it `stays`."""

    leg: LegPlan
    stays: bool
    region: Region
    mark: Mark
    high: int
    memo: Memo
    shown: ShownRows | None

    def next(self) -> int:
        """The next change that the leg's window or its retention makes; FOR_EVER without one."""
        leaves = self._leaves(self._least(self.region))
        window = self.leg.window
        if self.stays or not isinstance(window, TimeWindow):
            return leaves
        return min(leaves, self.enters(window))

    def next_over(self, window: TimeWindow) -> int:
        """The next change that a window over a query makes, among whose rows are the leg's."""
        now = self.mark.now
        begin = None if now is None else window.at(now)[0]
        held = self.region if begin is None else self.region.narrowed(since=(begin, 0))
        ts = self._least(held)
        leaves = ts if ts == FOR_EVER else int(visible(window, np.array([ts]), None)[1][0])
        return min(leaves, self.enters(window))

    def _leaves(self, ts: int) -> int:
        """The instant at which a row leaves: by the window, where NOW moves; by the retention,
        unless a key keeps it."""
        if ts == FOR_EVER:
            return ts
        leg, least = self.leg, np.array([ts])
        retain = None if leg.keyed is not None else leg.schema.retain
        if isinstance(leg.window, TimeWindow) and not self.stays:
            return int(visible(leg.window, least, retain)[1][0])
        return int(leaving(least, retain)[0])

    def enters(self, window: TimeWindow) -> int:
        """The instant at which the first row enters that waits for its time."""
        if not enters_by_time(window) or self.mark.now is None:
            return FOR_EVER
        waiting = Region((entered(window, self.mark.now), 0), (FOR_EVER, 0), 0, self.high)
        ts = self._least(waiting)
        retain = self.leg.schema.retain
        return ts if ts == FOR_EVER else int(visible(window, np.array([ts]), retain)[0][0])

    def _least(self, region: Region) -> int:
        """The least ts of the stream's rows in a region that are shown; FOR_EVER without any."""
        shown = self.shown

        def of(part: Part, places: Int64s) -> _Least:
            places = places if shown is None else shown.places(part, places)
            ts = part.ts[places]
            return _Least(int(np.min(ts[region.holds(ts, part.ids[places])], initial=FOR_EVER)))

        def merge(parts: Sequence[_Least]) -> _Least:
            return min(parts, key=lambda part: part.ts)

        subject = ("least ts", self.leg.stream_id, None if shown is None else shown.subject)
        found = Fold(self.memo, subject, self.leg.stem, region, of, merge).values()
        return merge(found).ts if found else FOR_EVER


def _windows_over(
    source: Source | Item, above: tuple[TimeWindow, ...] = ()
) -> Iterator[tuple[TimeWindow, ...]]:
    """The time windows over queries that each leg of a source stands in."""
    match source:
        case Leg():
            yield above
        case From(items, _, subqueries):
            for item in (*items, *(one.query for one in subqueries)):
                yield from _windows_over(item, above)
        case SetOperation(_, queries):
            for query in queries:
                yield from _windows_over(query, above)
        case LeftJoin(left, right):
            yield from _windows_over(left, above)
            yield from _windows_over(right, above)
        case Query():
            own = (source.over,) if isinstance(source.over, TimeWindow) else ()
            yield from _windows_over(source.source, (*above, *own))
