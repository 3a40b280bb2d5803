"""Erased rows in copies: what a copy from before an erasure is told.

The difference of two marks is computed from the rows that are there, and erased ones are not. So a
copy of rows is told their ids. Other copies are sent whole: their results were made with the rows.
"""

from __future__ import annotations

from datastem.arrays import Int64s
from psoup.answers.difference.job import Claim, by_rows
from psoup.answers.difference.keys import NO_IDS
from psoup.answers.planning.plan import Plan
from psoup.store import State
from querystem.legs import Leg
from results.window import TimeWindow


def erased_rows(state: State, plan: Plan, claim: Claim) -> Int64s | None:
    """Return the ids of erased rows that a claim's copy may have, ascending; None if the copy has
    to be sent whole."""
    marks = [mark for mark in (claim.copy, claim.target) if mark is not None]
    if not marks:
        return NO_IDS
    last = max(state.erased(stream_id).last for stream_id in plan.streams)
    if last < min(mark.position for mark in marks):
        return NO_IDS
    # Rows of a transfer that was begun before the erasure can't be found again.
    begun_before = claim.target is not None and claim.target.position < last
    if claim.copy is None or begun_before or not _is_told(plan):
        return None
    ids = state.erased(plan.leg.stream_id).since(claim.copy.position)
    return ids[: ids.searchsorted(claim.copy.high)]


def _is_told(plan: Plan) -> bool:
    """Return True if a copy is one of rows that a time window chooses, each by itself. A window
    that counts rows has others in the place of erased ones. A caller whom policies bind must not
    learn the ids of rows that it could not see."""
    if not isinstance(plan.query.source, Leg) or plan.bound or not by_rows(plan):
        return False
    return isinstance(plan.leg.window, TimeWindow)
