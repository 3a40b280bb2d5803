"""A job: an answer that a client has, the one it is to have, and the way between them.

A mark says in a few numbers what a copy of an answer is; a claim, what of it a client has.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto

import numpy as np

from datastem.arrays import Int64s
from psoup.answers.planning.plan import Plan
from psoup.answers.planning.question import Question
from psoup.store import Position
from querystem.clocks import is_apart, is_by_clock
from querystem.combine.parts import is_selection
from querystem.identity import slides
from querystem.query import Leg
from querystem.refresh import triggers_of
from results.checksum import DIGEST_BYTES
from results.window import TimeWindow, Window

NO_DIGEST = bytes(DIGEST_BYTES)


# ---- marks


class WholeReason(Enum):
    """Why a whole answer is sent although the client may have had something; NONE where it is not.

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


@dataclass(frozen=True, slots=True)
class LegMark:
    """A leg of an answer: the rows of its stream with ids below `high` are known.

    `current` is the stream's own NOW, which its retention counts from; None where it had none yet,
    and in an answer over one stream, whose NOW it is. No row of the leg has an id below `low`.
    `now` is the refresh point of a leg that has points of its own, or stands in a query inside that
    has; None of any other and before the first point.
    """

    high: int
    current: int | None = None
    low: int = 0
    now: int | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """An answer and the rows ahead of it: the rows known to its `legs` that are visible at some NOW
    in `[now, horizon]`.

    `now` is None where there was no NOW yet. A `horizon` of None has all rows that will ever be
    visible. `digest` is zero where the answer consists of rows of one stream, which say themselves
    what they are. Of combinations it is the digest of their ids, and `rows` is their number; `salt`
    goes into their ids, so that there are others where two combinations had one id. `nows` are
    those of queries inside the query that have refresh points.
    """

    position: Position
    legs: tuple[LegMark, ...]
    now: int | None
    horizon: int | None
    digest: bytes = NO_DIGEST
    rows: int = 0
    salt: int = 0
    nows: tuple[int | None, ...] = ()

    @property
    def high(self) -> int:
        """The high of an answer over one stream."""
        (leg,) = self.legs
        return leg.high


@dataclass(frozen=True, slots=True, order=True)
class Cursor:
    """How far a transfer has come: all rows with ids below `next_id` were sent, or all combinations
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
    """A claim is what the client has: the copy, if any, and what of `target` comes before the
    cursor."""

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
    """A client's word about damage: the rows to send again, and if it can tell, all it has
    whole."""

    resend: Int64s
    have: Int64s | None

    @property
    def asked(self) -> bool:
        return self.have is not None or bool(len(self.resend))


@dataclass(frozen=True, slots=True)
class CopyJob:
    """The way from a client's claim to a target.

    `reason` says why the claim is less than the client's token said, where it is. A target that is
    `fixed` was chosen by an earlier call. Where REFRESH is yet to decide what the answer is of, the
    target will be the answer of the plan `moment`.
    """

    question: Question
    claim: Claim
    reason: WholeReason
    target: Mark
    fixed: bool
    repair: Repair
    moment: Plan | None = None

    @property
    def continued(self) -> bool:
        """Tells whether some of the target has been sent."""
        return self.claim.target is not None and self.claim.cursor.begun

    def unsent(self, removed: Int64s) -> Int64s:
        """The ids to remove that were not sent yet."""
        if not self.continued:
            return removed
        cursor = self.claim.cursor
        if cursor.next_id >= 0:
            return removed[:0]
        return removed[np.searchsorted(removed, -cursor.next_id) :]

    def restarted(self, target: Mark) -> CopyJob:
        """The job from the copy towards another target."""
        claim, reason = Claim(self.claim.copy), WholeReason.TARGET_GONE
        return replace(self, claim=claim, target=target, fixed=False, reason=reason, moment=None)

    def later(self, now: int | None, cursor: Cursor) -> CopyJob:
        """The job with a later NOW, when all rows before the cursor were sent."""
        target = self.target
        horizon = None if target.horizon is None else _latest(target.horizon, now)
        moved = replace(target, now=_latest(target.now, now), horizon=horizon)
        return replace(self, claim=Claim(self.claim.copy, target, cursor), target=moved)

    def without_copy(self, reason: WholeReason) -> CopyJob:
        """The job for a client that has nothing."""
        return replace(self, claim=replace(self.claim, copy=None), reason=reason)


def by_rows(plan: Plan) -> bool:
    """Tells whether a copy of the answer is a copy of rows, or of combinations of rows, that come
    and go by themselves.

    Not where the answer stays as of a refresh point; nor where SLIDE decides which rows of a key
    are current, since then rows end by time alone.
    """
    slid = any(
        leg.keyed is not None
        and isinstance(leg.window, TimeWindow)
        and leg.window.slide is not None
        for leg in plan.legs
    )
    if slid or plan.query.stays:
        return False
    return slides(plan.query) and is_selection(plan.query.source)


def by_clock(plan: Plan) -> bool:
    """Tells whether NOW goes on by itself."""
    return is_by_clock(plan.query.moving, [leg.schema for leg in plan.legs])


def legs_apart(plan: Plan) -> tuple[bool, ...]:
    """Tells of each leg whether it is taken at its stream's own NOW, not at the query's."""
    clock = by_clock(plan)
    return tuple(is_apart(leg.schema, clock) for leg in plan.legs)


def enters_by_time(window: Window) -> bool:
    """Tells whether rows that are there already may enter later."""
    if not isinstance(window, TimeWindow):
        return False
    gap = window.end is not None and window.end.relative and window.end.offset < 1
    return gap or window.slide is not None


def withholds(plan: Plan) -> bool:
    """Tells whether a view keeps rows back until an instant, from a caller who may not read the
    view's stream.

    Over the clock those are the rows that enter a window of the view later. Over event time NOW
    waits for the slowest stream, so any window of a view keeps rows of the others back.
    """
    if not plan.unread:
        return False
    clock = by_clock(plan)
    return any(
        leg.stream_id in plan.unread and any(not clock or enters_by_time(one) for one in windows)
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
    """The job of a plan that was just made. `away` is None where the client did not say."""
    fixed = claim.target is not None
    moment = plan if plan.query.stays and not fixed else None
    return CopyJob(question, claim, reason, aim(plan, claim, away), fixed, repair, moment)


def fresh_target(plan: Plan, copy: Mark | None, away: int | None) -> Mark:
    """The answer of the plan; NOW never runs back behind the copy's, unless a late row refreshes.

    A plan with REFRESH must be settled, and not on the event loop. The horizon of results is the
    NOW their retention counts from, which a refresh point may lie before.
    """
    if plan.query.stays:
        by_rows_of = bool(triggers_of(plan.query.refresh))
        if copy is not None and not by_rows_of and (plan.now or 0) < _now(copy):
            return replace(copy, position=plan.position)
        horizon = _latest(*(leg.current for leg in plan.legs))
        return Mark(plan.position, _leg_marks(plan, None), plan.now, horizon, nows=plan.nows)
    now = _latest(plan.now, copy.now if copy else None)
    horizon = _horizon(plan, now, copy, away) if by_rows(plan) else now
    salt = copy.salt if copy else 0
    return Mark(plan.position, _leg_marks(plan, copy), now, horizon, salt=salt)


def _leg_marks(plan: Plan, copy: Mark | None) -> tuple[LegMark, ...]:
    inside = plan.query.stays_inside
    own = [leg.now if inside(number) else None for number, leg in enumerate(plan.legs)]
    if isinstance(plan.query.source, Leg):
        return (LegMark(plan.leg.known()[0], now=own[0]),)
    before = [None] * len(plan.legs) if copy is None else [leg.current for leg in copy.legs]
    return tuple(
        LegMark(leg.known()[0], _latest(leg.current, current), now=now)
        for leg, current, now in zip(plan.legs, before, own, strict=True)
    )


def aim(plan: Plan, claim: Claim, away: int | None) -> Mark:
    """A target that was begun keeps its position. Rows go on to the NOW of now; results and
    combinations, whose number and digest are told, can't.

    What an answer with REFRESH is of is found out later: only its position is known here.
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
    return max((one for one in instants if one is not None), default=None)


def _horizon(plan: Plan, now: int | None, before: Mark | None, away: int | None) -> int | None:
    """Return the instant up to which rows are sent ahead; None for all of them. It is never nearer
    than before, since what was sent ahead is there. What a view withholds is not sent ahead."""
    if withholds(plan):
        return now
    bounded = by_clock(plan) and any(enters_by_time(leg.window) for leg in plan.legs)
    if (
        away is None
        or not bounded
        or now is None
        or (before is not None and before.horizon is None)
    ):
        return None
    return max(now + away, before.horizon or now) if before else now + away
