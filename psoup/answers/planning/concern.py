"""The concern of a standing question: which new rows can change its answer.

It is sound, not exact: a row outside a concern never changes the answer, neither now nor at a later
NOW; a row inside may leave the answer as it is. It covers rows only, not the passing of time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from datastem.instants import FOR_EVER, SINCE_EVER
from datastem.schema import StreamSchema
from psoup.answers.planning.plan import LegPlan, Plan
from psoup.store import RegisteredLeg, State
from querystem.expressions import TRUE, Expression
from querystem.refresh import RefreshOn
from results.window import TimeWindow, Window

# In place of a predicate id; no predicate has it.
EVERY_ROW = 0


@dataclass(frozen=True, slots=True)
class RowConcern:
    """The new rows of a stream that match a predicate and have a ts in `[begin, end)`; with
    EVERY_ROW they need not match anything, and `where` is None.

    If the stream is `timed`, its rows move its NOW. Then everything that moves the NOW of the
    stream changes the answer too.
    """

    stream_id: int
    timed: bool
    predicate_id: int
    begin: int = SINCE_EVER
    end: int = FOR_EVER
    where: Expression | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Concern:
    """The rows that can change an answer, and the ids of the views that it was bound through."""

    rows: frozenset[RowConcern]
    views: tuple[int, ...] = ()


NO_CONCERN = Concern(frozenset())


def concern_of(
    plan: Plan,
    state: State,
    triggers: Iterable[tuple[RegisteredLeg, RefreshOn]] = (),
    views: tuple[int, ...] = (),
) -> Concern:
    """Return the concern of the question that a plan was just made for. `triggers` are the rows
    that refresh it, with their predicates."""
    stays = plan.query.stays
    legs = [_of_leg(leg, stays) for leg in plan.legs]
    refreshing = [
        _of_trigger(trigger, refresh, state.streams[trigger.stream_id].schema)
        for trigger, refresh in triggers
    ]
    return Concern(frozenset([*legs, *refreshing]), views)


def _of_leg(leg: LegPlan, stays: bool) -> RowConcern:
    """Return the concern of a leg. Any row of a stream key may end another, and any row of a stream
    shifts a window that counts rows."""
    timed = not leg.schema.now_is_clock
    if leg.schema.key or leg.leg.as_of is not None or not isinstance(leg.window, TimeWindow):
        return RowConcern(leg.stream_id, timed, EVERY_ROW)
    # NOW of a refresh point may be earlier, and far earlier if a late row refreshes.
    now = leg.now if timed and not stays else None
    begin, end = within(leg.window, now)
    return _matching(leg.stream_id, timed, leg.predicate_id, leg.leg.where, begin, end)


def within(window: Window, now: int | None) -> tuple[int, int]:
    """Return the interval `[begin, end)` of ts that a window may hold at `now` or later; without
    `now`, at any instant. Rows of its gap, and those past NOW, enter later.

    With arrival time `now` must be None: new rows get the ts of the clock, which a window that ends
    at NOW holds anyway, and a clock can be set back.
    """
    if not isinstance(window, TimeWindow):
        return SINCE_EVER, FOR_EVER
    begin, end = SINCE_EVER, FOR_EVER
    if window.begin is not None and window.begin.fixed is not None:
        begin = window.begin.fixed
    elif window.begin is not None and now is not None:
        begin = window.begin.at(window.present(now))
    if window.end is not None and window.end.fixed is not None:
        end = window.end.fixed
    return begin, end


def _of_trigger(trigger: RegisteredLeg, refresh: RefreshOn, schema: StreamSchema) -> RowConcern:
    timed = not schema.now_is_clock
    if schema.key:
        return RowConcern(trigger.stream_id, timed, EVERY_ROW)
    return _matching(trigger.stream_id, timed, trigger.predicate_id, refresh.where)


def _matching(
    stream_id: int,
    timed: bool,
    predicate_id: int,
    where: Expression,
    begin: int = SINCE_EVER,
    end: int = FOR_EVER,
) -> RowConcern:
    if where == TRUE:
        return RowConcern(stream_id, timed, EVERY_ROW, begin, end)
    return RowConcern(stream_id, timed, predicate_id, begin, end, where)
