"""A job: the answer that a client has, the one it is to have, and the way between them.

A mark says in a few numbers what a copy of an answer is. A claim says what of it a client has.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum, auto

import numpy as np

from datastem.arrays import Int64s
from datastem.schema import StreamSchema
from psoup.answers.planning.plan import LegPlan, Plan
from psoup.answers.planning.policies import moves
from psoup.answers.planning.question import Question
from psoup.store import Position
from querystem.clocks import is_apart, is_by_clock
from querystem.combine.parts import is_selection
from querystem.expressions import TRUE
from querystem.identity import slides
from querystem.legs import Leg
from querystem.refresh import triggers_of
from results.checksum import DIGEST_BYTES
from results.window import TimeWindow, Window

NO_DIGEST = bytes(DIGEST_BYTES)
# The most legs of a copy of combinations: its cost grows with the square of their number.
MAX_SLIDING_LEGS = 32


# ---- marks


class WholeReason(Enum):
    """The reason why a whole answer is sent although the client may have a copy; NONE if it is not
    sent whole.

    The names are those of the wire's SyncReason.
    """

    NONE = auto()
    FIRST = auto()
    ASKED = auto()
    UNREADABLE_TOKEN = auto()
    FOREIGN_TOKEN = auto()
    OTHER_REGISTRATION = auto()
    OTHER_WINDOW = auto()
    RETENTION = auto()
    SMALLER = auto()
    TARGET_GONE = auto()
    REPLACED = auto()
    PERMISSION = auto()
    ERASED = auto()


class Skipped(Enum):
    """The reason why refresh points between a copy and its target were left out; NONE if none was.

    The names are those of the wire's SkippedPoints.
    """

    NONE = auto()
    RETENTION = auto()
    TOO_MANY = auto()
    NO_COPY = auto()


@dataclass(frozen=True, slots=True)
class LegMark:
    """A leg of an answer: the rows of its stream with ids below `high` are known.

    `current` is the stream's own NOW, which its retention counts from. It is None before there is
    one, and in an answer over one stream, where it is the answer's NOW. No row of the leg has an id
    below `low`. `now` is the refresh point of a leg with REFRESH of its own or of a query around it
    inside the whole; None for other legs and before the first point.
    """

    high: int
    current: int | None = None
    low: int = 0
    now: int | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """An answer and the rows sent ahead of it: the rows known to its `legs` that are visible at
    some NOW in `[now, horizon]`.

    `now` is None before there is a NOW. With a `horizon` of None, all rows that will ever be
    visible are sent ahead. `digest` is zero if the answer consists of rows of one stream, whose ids
    follow from the mark. For combinations, `digest` is that of their ids and `rows` their number;
    `salt` goes into their ids, and changes if two combinations had one id. `nows` are those of
    queries with refresh points inside the query. `trigger_highs` are the ids below which rows that
    refresh the answer have been passed, for each trigger; empty: all at the position. `skipped`
    says why points before this one were left out of its transfer.
    """

    position: Position
    legs: tuple[LegMark, ...]
    now: int | None
    horizon: int | None
    digest: bytes = NO_DIGEST
    rows: int = 0
    salt: int = 0
    nows: tuple[int | None, ...] = ()
    trigger_highs: tuple[int, ...] = ()
    skipped: Skipped = Skipped.NONE

    @property
    def high(self) -> int:
        """The high of an answer over one stream."""
        (leg,) = self.legs
        return leg.high


@dataclass(frozen=True, slots=True, order=True)
class Cursor:
    """The progress of a transfer: all rows with ids below `next_id` were sent, or all combinations
    up to and including the one with these `parts`.

    Removals come before rows: while they are sent, `next_id` is −n, and the removed ids below n
    have been sent.
    """

    next_id: int = 0
    parts: tuple[int, ...] = ()

    @property
    def begun(self) -> bool:
        return self.next_id != 0 or bool(self.parts)


BEGINNING = Cursor()


@dataclass(frozen=True, slots=True)
class Claim:
    """What the client has: the copy, if any, and what of `target` comes before the cursor."""

    copy: Mark | None = None
    target: Mark | None = None
    cursor: Cursor = BEGINNING

    @property
    def position(self) -> Position | None:
        mark = self.target or self.copy
        return None if mark is None else mark.position


# ---- jobs


@dataclass(frozen=True, slots=True)
class Repair:
    """A client's report of damage: the ids of rows to send again, and of all rows that it has
    undamaged, None if it does not say."""

    resend: Int64s
    have: Int64s | None

    @property
    def requested(self) -> bool:
        return self.have is not None or bool(len(self.resend))


NO_REPAIR = Repair(np.empty(0, np.int64), None)


@dataclass(frozen=True, slots=True)
class CopyJob:
    """The way from a client's claim to a target.

    `reason` says why the claim is less than the client's token said, if it is. A target that is
    `fixed` was chosen by an earlier call. As long as the refresh point of the answer is not known,
    the target will be the answer of the plan `moment`. `erased` are ids of rows that the claim's
    copy may have and that no one will find again.

    If the client wants every refresh point, `more` says that later ones than the target follow.
    `following` says that another job of the same call led to the claim's copy.
    """

    question: Question
    claim: Claim
    reason: WholeReason
    target: Mark
    fixed: bool
    repair: Repair
    moment: Plan | None = None
    erased: Int64s = field(default_factory=lambda: np.empty(0, np.int64), compare=False)
    more: bool = False
    following: bool = False

    @property
    def continued(self) -> bool:
        """Whether part of the target has been sent."""
        return self.claim.target is not None and self.claim.cursor.begun

    def unsent(self, removed: Int64s) -> Int64s:
        """Return the removed ids, of some that ascend, that were not sent yet."""
        if not self.continued:
            return removed
        cursor = self.claim.cursor
        if cursor.next_id >= 0:
            return removed[:0]
        return removed[np.searchsorted(removed, -cursor.next_id) :]

    def restarted(self, target: Mark) -> CopyJob:
        """Return the job from the copy to another target."""
        claim, reason = Claim(self.claim.copy), WholeReason.TARGET_GONE
        return replace(self, claim=claim, target=target, fixed=False, reason=reason, moment=None)

    def later(self, now: int | None, cursor: Cursor) -> CopyJob:
        """Return the job with a later NOW, when all rows before the cursor were sent."""
        target = self.target
        horizon = None if target.horizon is None else _latest(target.horizon, now)
        moved = replace(target, now=_latest(target.now, now), horizon=horizon)
        return replace(self, claim=Claim(self.claim.copy, target, cursor), target=moved)

    def next_point(self) -> CopyJob:
        """Return the job from the target to the next refresh point."""
        return replace(
            self,
            claim=Claim(self.target),
            reason=WholeReason.NONE,
            fixed=False,
            repair=NO_REPAIR,
            moment=None,
            erased=self.erased[:0],
            more=False,
            following=True,
        )

    def without_copy(self, reason: WholeReason) -> CopyJob:
        """Return the job for a client that has no copy."""
        return replace(self, claim=replace(self.claim, copy=None), reason=reason)


def by_rows(plan: Plan) -> bool:
    """Return True if a copy of the answer is a copy of rows, or of combinations of rows, that come
    and go by themselves.

    It is not if the answer stays as of a refresh point; nor if rows of a leg end by time alone; nor
    if a row policy, or a view that the caller may not look behind, hides rows until an instant. Nor
    if there are so many legs that the changes of each, joined with all others, take longer than two
    answers.
    """
    if len(plan.legs) > MAX_SLIDING_LEGS:
        return False
    hiding = any(leg.leg.when != TRUE and leg.stream_id in plan.unread for leg in plan.legs)
    hiding = hiding or any(moves(leg.policy) for leg in plan.legs)
    hiding = hiding or (bool(plan.unread) and plan.query.has_now)
    if plan.query.stays or hiding or any(map(_ends_by_time, plan.legs)):
        return False
    return slides(plan.query) and is_selection(plan.query.source)


def by_clock(plan: Plan) -> bool:
    """Return True if NOW follows the clock."""
    return is_by_clock(plan.query.moving, [leg.schema for leg in plan.legs])


def legs_apart(plan: Plan) -> tuple[bool, ...]:
    """Return for each leg whether it is taken at its stream's own NOW, not at the query's."""
    clock = by_clock(plan)
    return tuple(is_apart(leg.schema, clock) for leg in plan.legs)


def _ends_by_time(leg: LegPlan) -> bool:
    """Return True if NOW alone may end rows of a leg by others: SLIDE decides which rows of a
    stream key are current, or a waiting row enters and ends the row of its key, or takes its place
    in a window that counts rows."""
    if leg.leg.as_of is not None:
        return False
    if not isinstance(leg.window, TimeWindow):
        return leg.schema.rows_wait
    return leg.keyed is not None and (leg.schema.rows_wait or leg.window.slide is not None)


def enters_by_time(window: Window, schema: StreamSchema) -> bool:
    """Return True if rows of a stream that are stored already may enter the window later."""
    if not isinstance(window, TimeWindow):
        return False
    gap = window.end is not None and window.end.relative and window.end.nearest < 1
    return gap or window.slide is not None or schema.rows_wait


def withholds(plan: Plan) -> bool:
    """Return True if a view keeps rows back until an instant, from a caller who may not read the
    view's stream.

    With arrival time those are the rows that enter a window of the view later. With event time NOW
    waits for the slowest stream, so any window of a view keeps rows of the others back.
    """
    if not plan.unread:
        return False
    clock = by_clock(plan)
    return any(
        leg.stream_id in plan.unread
        and any(not clock or enters_by_time(window, leg.schema) for window in windows)
        for leg, windows in zip(plan.legs, plan.query.view_windows, strict=True)
    )


def make_job(
    question: Question,
    plan: Plan,
    claim: Claim,
    reason: WholeReason,
    repair: Repair,
    away: int | None,
) -> CopyJob:
    """Return the job of a plan that was just made.

    The client will be offline for `away` microseconds; None if it does not say.
    """
    fixed = claim.target is not None
    moment = plan if plan.query.stays and not fixed else None
    target, more = aim(plan, claim, away), fixed and question.every_point
    return CopyJob(question, claim, reason, target, fixed, repair, moment, more=more)


def fresh_target(plan: Plan, copy: Mark | None, away: int | None) -> Mark:
    """Return the mark of the plan's answer. Its NOW is never before the copy's, unless a late row
    refreshes.

    A plan with REFRESH must be settled, which must not happen on the event loop. The horizon of
    results is the NOW that their retention counts from; a refresh point may be earlier.
    """
    if plan.query.stays:
        has_triggers = bool(triggers_of(plan.query.refresh))
        if copy is not None and not has_triggers and (plan.now or 0) < _now(copy):
            return replace(copy, position=plan.position, trigger_highs=(), skipped=Skipped.NONE)
        return point_mark(plan)
    now = _latest(plan.now, copy.now if copy else None)
    horizon = _horizon(plan, now, copy, away) if by_rows(plan) else now
    # Another salt would change the ids of all combinations that the client has.
    salt = copy.salt if copy else 0
    return Mark(plan.position, _leg_marks(plan, copy), now, horizon, salt=salt)


def point_mark(plan: Plan, highs: tuple[int, ...] = ()) -> Mark:
    """Return the mark of a plan's answer as of a refresh point."""
    horizon = _latest(*(leg.current for leg in plan.legs))
    legs = _leg_marks(plan, None)
    now, nows = plan.now, plan.nows
    return Mark(plan.position, legs, now, horizon, nows=nows, trigger_highs=highs)


def _leg_marks(plan: Plan, copy: Mark | None) -> tuple[LegMark, ...]:
    inside = plan.query.stays_inside
    points = [leg.now if inside(number) else None for number, leg in enumerate(plan.legs)]
    if isinstance(plan.query.source, Leg):
        return (LegMark(plan.leg.limit()[0], now=points[0]),)
    # What the copy has lost by the retention does not come back, so `current` never falls.
    before = [None] * len(plan.legs) if copy is None else [leg.current for leg in copy.legs]
    return tuple(
        LegMark(leg.limit()[0], _latest(leg.current, current), now=point)
        for leg, current, point in zip(plan.legs, before, points, strict=True)
    )


def aim(plan: Plan, claim: Claim, away: int | None) -> Mark:
    """Return the target of a transfer.

    A target that was begun keeps its position. A target of rows moves on to the present NOW; one of
    results or combinations can't, since its count and digest were sent. Of an answer with REFRESH
    only the position is known here: its refresh point is found later.
    """
    begun = claim.target
    if begun is None and plan.query.stays:
        return Mark(plan.position, (LegMark(0),) * len(plan.legs), None, None)
    if begun is None:
        return fresh_target(plan, claim.copy, away)
    if not by_rows(plan) or not isinstance(plan.query.source, Leg):
        return begun
    now = _latest(plan.now, begun.now)
    return replace(begun, now=now, horizon=_horizon(plan, now, begun, away))


def _now(copy: Mark | None) -> int:
    return copy.now or 0 if copy else 0


def _latest(*instants: int | None) -> int | None:
    return max((instant for instant in instants if instant is not None), default=None)


def _horizon(plan: Plan, now: int | None, before: Mark | None, away: int | None) -> int | None:
    """Return the instant up to which rows are sent ahead; None for all of them.

    It is never earlier than before, since the client has what was sent ahead. Rows that a view
    withholds are not sent ahead.
    """
    if withholds(plan):
        return now
    # All rows are sent ahead if the client may be away for any time, or if none waits for the
    # clock. A copy that has all rows that wait keeps them.
    bounded = by_clock(plan) and any(enters_by_time(leg.window, leg.schema) for leg in plan.legs)
    if (
        away is None
        or not bounded
        or now is None
        or (before is not None and before.horizon is None)
    ):
        return None
    return max(now + away, before.horizon or now) if before else now + away
