"""The difference for a client that lacks nothing, found on the event loop.

Most syncs find nothing new. To wait for a thread would take them longer than to find that out.
"""

from __future__ import annotations

from dataclasses import replace

from psoup.answers.at_once import MAX_ROWS, AtOnce
from psoup.answers.difference.copier import Difference
from psoup.answers.difference.job import CopyJob, by_rows
from psoup.answers.difference.row_copy import RowCopier
from psoup.answers.maker import AnswerMaker
from psoup.answers.planning.plan import Plan
from querystem.legs import Leg
from results.window import TimeWindow


def nothing_new(maker: AnswerMaker, plan: Plan, job: CopyJob, at_once: AtOnce) -> Difference | None:
    """Return the difference of a job whose client lacks no row and has none to remove; None if it
    lacks some, or if that can't be found quickly."""
    if not _is_quick(plan, job):
        return None
    leg = replace(plan.leg, stem=plan.leg.stem.in_memory())
    work = at_once.work(plan.bound)
    copier = RowCopier(maker, replace(plan, legs=(leg,)), job, work)

    def find() -> Difference | None:
        return None if copier.lacks_any else copier.difference()

    difference = at_once.run(find)
    return difference if difference is not None and difference.nothing else None


def _is_quick(plan: Plan, job: CopyJob) -> bool:
    """Return True if the rows of a time window decide, and few of them are new."""
    copy, leg = job.claim.copy, plan.legs[0]
    if copy is None or job.claim.target is not None or job.repair.requested:
        return False
    if not isinstance(plan.query.source, Leg) or leg.keyed is not None or not by_rows(plan):
        return False
    visibility = leg.visibility
    if visibility is not None and visibility.ends:
        return False
    is_few = leg.stem.high - copy.high <= MAX_ROWS
    return is_few and isinstance(leg.window, TimeWindow) and not leg.limits
