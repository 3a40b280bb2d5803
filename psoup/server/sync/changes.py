"""The next instant at which time alone changes a window's rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from datastem.arrays import Int64s
from datastem.blocks import Part
from datastem.instants import FOR_EVER
from psoup.server.folding import Fold
from psoup.server.invoke import Plan
from psoup.server.summaries import Summaries
from psoup.server.sync.jobs import enters_by_time
from psoup.server.sync.tokens import Mark
from querystem.query import RefreshEvery
from results.region import Region, entered, leaving, visible
from results.window import TimeWindow


@dataclass(frozen=True, slots=True)
class _Least:
    """The least ts of some rows."""

    ts: int
    nbytes: int = 64


def next_change(plan: Plan, region: Region, mark: Mark, summaries: Summaries) -> int | None:
    """When the first of the region's rows leaves, or the first that waits enters; where NOW stays
    at refresh points, the next of them, if it is told by time.

    Rows that do not match count too, so it may be early. None: never.
    """
    instants = [_leaves(plan, _least(plan, region, summaries))]
    window, now = plan.window, mark.now
    if isinstance(plan.query.refresh, RefreshEvery):
        instants.append(plan.query.refresh.point(mark.horizon or 0) + plan.query.refresh.period)
    elif isinstance(window, TimeWindow) and enters_by_time(window) and now is not None:
        waiting = Region((entered(window, now), 0), (FOR_EVER, 0), 0, mark.high)
        instants.append(_enters(plan, window, _least(plan, waiting, summaries)))
    soonest = min(instants)
    return None if soonest == FOR_EVER else soonest


def _leaves(plan: Plan, ts: int) -> int:
    """By the window, where NOW moves; by the retention, but for rows that a key keeps."""
    if ts == FOR_EVER:
        return ts
    least = np.array([ts])
    retain = None if plan.keyed is not None else plan.schema.retain
    if isinstance(plan.window, TimeWindow) and plan.query.refresh is None:
        return int(visible(plan.window, least, retain)[1][0])
    return int(leaving(least, retain)[0])


def _enters(plan: Plan, window: TimeWindow, ts: int) -> int:
    return ts if ts == FOR_EVER else int(visible(window, np.array([ts]), plan.schema.retain)[0][0])


def _least(plan: Plan, region: Region, summaries: Summaries) -> int:
    def of(part: Part, places: Int64s) -> _Least:
        ts = part.ts[places]
        return _Least(int(np.min(ts[region.holds(ts, part.ids[places])], initial=FOR_EVER)))

    def merge(parts: Sequence[_Least]) -> _Least:
        return min(parts, key=lambda part: part.ts)

    subject = ("least ts", plan.stream_id)
    found = Fold(summaries, subject, plan.stem, region, of, merge).values()
    return merge(found).ts if found else FOR_EVER
