"""How far back an answer looks: the least ts that its windows hold, for each predicate."""

from __future__ import annotations

from collections.abc import Iterator

from psoup.answers.planning.plan import LegPlan, Plan
from results.region import time_region
from results.window import TimeWindow


def lookback(plan: Plan) -> Iterator[tuple[int, int, int | None]]:
    """Yield the stream and the predicate of each leg, and the least ts that its window holds; None
    if rows of any age count."""
    for leg in plan.legs:
        if leg.now is not None:
            yield leg.stream_id, leg.predicate_id, _since(leg, leg.now)


def _since(leg: LegPlan, now: int) -> int | None:
    if leg.keyed is not None:
        return None
    if not isinstance(leg.window, TimeWindow):
        return leg.oldest
    return time_region(leg.window, now, leg.oldest, 0).begin
