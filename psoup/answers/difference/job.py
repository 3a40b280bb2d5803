"""A job: an answer that a client has, the one it is to have, and the way between them.

A mark says in a few numbers what a copy of an answer is; a claim, what of it a client has.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto

import numpy as np

from datastem.arrays import Int64s
from psoup.answers.plan import Plan
from psoup.answers.question import Question
from psoup.store import Position
from querystem.identity import slides
from querystem.refresh import RefreshEvery
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


@dataclass(frozen=True, slots=True)
class Mark:
    """An answer and the rows ahead of it: the rows with ids below `high` that are visible at some
    NOW in `[now, horizon]`.

    `now` is None where the stream had no NOW yet. A `horizon` of None has all rows that will ever
    be visible. `digest` is zero where the answer consists of rows, which say themselves what they
    are.
    """

    position: Position
    high: int
    now: int | None
    horizon: int | None
    digest: bytes = NO_DIGEST


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim is what the client has: the copy, if any, and the rows of `target` below `next_id`.

    Removals come before rows: while they are sent, `next_id` is −n, and the removed ids below n
    have been sent.
    """

    copy: Mark | None = None
    target: Mark | None = None
    next_id: int = 0

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
        return self.claim.target is not None and self.claim.next_id != 0

    def unsent(self, removed: Int64s) -> Int64s:
        """The ids to remove that were not sent yet."""
        if not self.continued:
            return removed
        next_id = self.claim.next_id
        return removed[:0] if next_id > 0 else removed[np.searchsorted(removed, -next_id) :]

    def restarted(self, target: Mark) -> CopyJob:
        """The job from the copy towards another target."""
        claim, reason = Claim(self.claim.copy), WholeReason.TARGET_GONE
        return replace(self, claim=claim, target=target, fixed=False, reason=reason, moment=None)

    def later(self, now: int | None, next_id: int) -> CopyJob:
        """The job with a later NOW, when all rows with ids below `next_id` were sent."""
        target = self.target
        horizon = None if target.horizon is None else _latest(target.horizon, now)
        moved = replace(target, now=_latest(target.now, now), horizon=horizon)
        return replace(self, claim=Claim(self.claim.copy, target, next_id), target=moved)

    def without_copy(self, reason: WholeReason) -> CopyJob:
        """The job for a client that has nothing."""
        return replace(self, claim=replace(self.claim, copy=None), reason=reason)


def by_rows(plan: Plan) -> bool:
    """Tells whether a copy of the answer is a copy of rows that come and go by themselves.

    Not where the answer stays as of a refresh point; nor where SLIDE decides which rows of a key
    are current, since then rows end by time alone.
    """
    leg = plan.leg
    window = leg.window
    slid = leg.keyed is not None and isinstance(window, TimeWindow) and window.slide is not None
    return slides(plan.query) and plan.query.refresh is None and not slid


def by_clock(plan: Plan) -> bool:
    """Tells whether NOW goes on by itself."""
    return plan.leg.schema.ordered_by is None


def enters_by_time(window: Window) -> bool:
    """Tells whether rows that are there already may enter later."""
    if not isinstance(window, TimeWindow):
        return False
    gap = window.end is not None and window.end.relative and window.end.offset < 1
    return gap or window.slide is not None


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
    moment = None if fixed or plan.query.refresh is None else plan
    return CopyJob(question, claim, reason, aim(plan, claim, away), fixed, repair, moment)


def fresh_target(plan: Plan, copy: Mark | None, away: int | None) -> Mark:
    """The answer of the plan; NOW never runs back behind the copy's, unless a late row refreshes.

    A plan with REFRESH must be settled, and not on the event loop. The horizon of results is the
    NOW their retention counts from, which a refresh point may lie before.
    """
    high, _ = plan.leg.known()
    if plan.query.refresh is not None:
        late = isinstance(plan.query.refresh, RefreshEvery) and (plan.now or 0) < _now(copy)
        if copy is not None and late:
            return replace(copy, position=plan.position)
        return Mark(plan.position, high, plan.now, plan.leg.current)
    now = _latest(plan.now, copy.now if copy else None)
    horizon = _horizon(plan, now, copy, away) if by_rows(plan) else now
    return Mark(plan.position, high, now, horizon)


def aim(plan: Plan, claim: Claim, away: int | None) -> Mark:
    """A target that was begun keeps its position. Rows go on to the NOW of now; results can't.

    What an answer with REFRESH is of is found out later: only its position is known here.
    """
    begun = claim.target
    if begun is None and plan.query.refresh is not None:
        return Mark(plan.position, 0, None, None)
    if begun is None:
        return fresh_target(plan, claim.copy, away)
    if not by_rows(plan):
        return begun
    now = _latest(plan.now, begun.now)
    return replace(begun, now=now, horizon=_horizon(plan, now, begun, away))


def _now(copy: Mark | None) -> int:
    return copy.now or 0 if copy else 0


def _latest(*instants: int | None) -> int | None:
    return max((one for one in instants if one is not None), default=None)


def _horizon(plan: Plan, now: int | None, before: Mark | None, away: int | None) -> int | None:
    """Never nearer than before: what was sent ahead is there."""
    bounded = by_clock(plan) and enters_by_time(plan.leg.window)
    if (
        away is None
        or not bounded
        or now is None
        or (before is not None and before.horizon is None)
    ):
        return None
    return max(now + away, before.horizon or now) if before else now + away
