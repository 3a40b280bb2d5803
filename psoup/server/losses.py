"""Answers and lost rows: which answers a hole spoils, and what is said of those it does not."""

from __future__ import annotations

from psoup.server.errors import RowsLost
from psoup.server.invoke import Plan
from psoup.store import Hole, Losses, State
from results.region import time_region
from results.window import TimeWindow

_HINT = (
    "the operator can put the file back from a back-up, or accept the loss with "
    "`psoup repair STORE --accept`; answers that do not need these rows go on"
)


def check_losses(plan: Plan, state: State, losses: Losses, ahead: bool) -> tuple[str, ...]:
    """What is to be said of lost rows the plan would have needed, where their loss is accepted.

    Raises RowsLost where it is not. `ahead` is for who also gets the rows that will enter the
    window later.
    """
    notes = []
    for hole in losses.holes:
        if _spoils(plan, hole, ahead):
            text = hole.text(state.streams[hole.stream_id].schema.name)
            if not losses.is_accepted(hole):
                raise RowsLost(f"the answer needs lost rows: {text}", hint=_HINT)
            notes.append(f"without lost rows: {text}")
    return tuple(notes)


def _spoils(plan: Plan, hole: Hole, ahead: bool) -> bool:
    """Which rows of a stream are current, the last, or the ones that refresh, depends on all."""
    triggers = plan.triggers
    if triggers is not None and hole.stream_id in (plan.stream_id, triggers.stream_id):
        return True
    if hole.stream_id != plan.stream_id:
        return False
    if plan.keyed is not None or not isinstance(plan.window, TimeWindow):
        return True
    if plan.now is None:
        return False
    region = time_region(plan.window, plan.now, plan.oldest, 0)
    return hole.meets(region.begin, None if ahead else region.end)
