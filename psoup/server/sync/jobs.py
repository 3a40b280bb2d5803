"""A job: one item of a Sync, with what its client has and what it is to have."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from datastem.arrays import Int64s
from psoup.server.core import Core
from psoup.server.errors import BadRequest
from psoup.server.invoke import Plan, known
from psoup.server.planning import make_plan, of_registration
from psoup.server.readings import Reading
from psoup.server.sync.tokens import Claim, Mark, Signed, Subject, Unusable
from psoup.v1 import psoup_pb2 as pb
from querystem.identity import base_query, slides
from querystem.query import RefreshEvery
from results.id_sets import from_runs
from results.window import TimeWindow, Window, window_to_json

# Ids a client may name in `have` and `resend`, of all items of a call: a few bytes can name many.
MOST_IDS = 50_000_000


@dataclass(frozen=True, slots=True)
class Repair:
    """Rows of the copy that are damaged, and, where it says so, all that are not."""

    resend: Int64s
    have: Int64s | None

    @classmethod
    def of(cls, item: pb.SyncItem) -> Repair:
        have = _ids(item.have, "have") if item.HasField("have") else None
        return cls(_ids(item.resend, "resend"), have)

    @property
    def asked(self) -> bool:
        return self.have is not None or bool(len(self.resend))


@dataclass(frozen=True, slots=True)
class Job:
    """`reason` says why the claim is less than the token's, where it is.

    A target that is `fixed` was chosen by an earlier call. `moment` is there where it is yet to be
    found out what the answer is of, because of REFRESH: then it is that of this plan.
    """

    item: pb.SyncItem
    reading: Reading
    subject: Subject
    claim: Claim
    reason: pb.SyncReason
    target: Mark
    fixed: bool
    repair: Repair
    moment: Plan | None = None

    @property
    def continued(self) -> bool:
        """Whether some of the target has been sent."""
        return self.claim.target is not None and self.claim.next_id != 0

    def unsent(self, removed: Int64s) -> Int64s:
        """Of the ids to remove those that were not sent yet."""
        if not self.continued:
            return removed
        next_id = self.claim.next_id
        return removed[:0] if next_id > 0 else removed[np.searchsorted(removed, -next_id) :]

    def restarted(self, target: Mark) -> Job:
        """From the copy, towards another target."""
        claim, reason = Claim(self.claim.copy), pb.SYNC_REASON_TARGET_GONE
        return replace(self, claim=claim, target=target, fixed=False, reason=reason, moment=None)

    def later(self, now: int | None, next_id: int) -> Job:
        """The same with a later NOW, when what has an id below `next_id` was sent."""
        target = self.target
        horizon = None if target.horizon is None else _latest(target.horizon, now)
        moved = replace(target, now=_latest(target.now, now), horizon=horizon)
        return replace(self, claim=Claim(self.claim.copy, target, next_id), target=moved)

    def without_copy(self, reason: pb.SyncReason) -> Job:
        """The same for a client that has nothing."""
        return replace(self, claim=replace(self.claim, copy=None), reason=reason)


def check_ids(items: Sequence[pb.SyncItem]) -> None:
    """Raises BadRequest where the items name more ids than are taken."""
    named = sum(sum(ids.runs[1::2]) for one in items for ids in (one.have, one.resend))
    if named > MOST_IDS:
        raise BadRequest(f"have and resend name more than {MOST_IDS:,} ids", field="items")


def request_of(tenant: str, item: pb.SyncItem) -> pb.InvokeRequest:
    """An Invoke of what the item asks for."""
    return pb.InvokeRequest(
        tenant=tenant, handle=item.handle, window=item.window, unrefreshed=item.base_rows
    )


def plan_of(core: Core, tenant: str, item: pb.SyncItem, reading: Reading) -> Plan:
    """What the item asks for, now. Raises what Invoke raises."""
    request = request_of(tenant, item)
    plan = make_plan(core, request, of_registration(core, request, reading), ahead=True)
    if item.base_rows and not (slides(plan.query) and plan.query.refresh is None):
        plan = replace(plan, query=base_query(plan.query, plan.schema))
    return plan


def by_rows(plan: Plan) -> bool:
    """Whether a copy of the answer is a copy of rows that come and go by themselves.

    Not where the answer stays as of a refresh point; nor where SLIDE decides which rows of a key
    are current, since then rows end by time alone.
    """
    window = plan.window
    slid = plan.keyed is not None and isinstance(window, TimeWindow) and window.slide is not None
    return slides(plan.query) and plan.query.refresh is None and not slid


def by_clock(plan: Plan) -> bool:
    """Whether NOW goes on by itself."""
    return plan.schema.ordered_by is None


def enters_by_time(window: Window) -> bool:
    """Whether rows that are there already may enter later."""
    if not isinstance(window, TimeWindow):
        return False
    gap = window.end is not None and window.end.relative and window.end.offset < 1
    return gap or window.slide is not None


@dataclass(frozen=True, slots=True)
class ItemRead:
    """What of an item takes long to read: texts, and ids that a few bytes may name very many of."""

    reading: Reading
    repair: Repair


def make_job(
    item: pb.SyncItem, read: ItemRead, signed: Signed | Unusable | None, plan: Plan, away: int
) -> Job:
    """Of one moment with the plan. `away` is -1 where the client did not say."""
    subject = Subject(item.handle, _shape(plan, item))
    claim, reason = _claim(item, signed, subject)
    target, fixed = aim(plan, claim, away), claim.target is not None
    moment = None if fixed or plan.query.refresh is None else plan
    return Job(item, read.reading, subject, claim, reason, target, fixed, read.repair, moment)


def _claim(
    item: pb.SyncItem, signed: Signed | Unusable | None, subject: Subject
) -> tuple[Claim, pb.SyncReason]:
    if signed is None:
        return Claim(), pb.SYNC_REASON_FIRST
    if item.whole:
        return Claim(), pb.SYNC_REASON_ASKED
    try:
        if isinstance(signed, Unusable):
            raise signed
        return signed.about(subject), pb.SYNC_REASON_UNSPECIFIED
    except Unusable as problem:
        return Claim(), problem.reason


def fresh_target(plan: Plan, copy: Mark | None, away: int) -> Mark:
    """The answer of the plan; NOW never runs back behind the copy's, unless a late row refreshes.

    A plan with REFRESH must be settled, and not on the event loop. The horizon of results is the
    NOW their retention counts from, which a refresh point may lie before.
    """
    high, _ = known(plan)
    if plan.query.refresh is not None:
        late = isinstance(plan.query.refresh, RefreshEvery) and (plan.now or 0) < _now(copy)
        if copy is not None and late:
            return replace(copy, position=plan.position)
        return Mark(plan.position, high, plan.now, plan.current)
    now = _latest(plan.now, copy.now if copy else None)
    horizon = _horizon(plan, now, copy, away) if by_rows(plan) else now
    return Mark(plan.position, high, now, horizon)


def aim(plan: Plan, claim: Claim, away: int) -> Mark:
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


def _horizon(plan: Plan, now: int | None, before: Mark | None, away: int) -> int | None:
    """Never nearer than before: what was sent ahead is there."""
    bounded = away >= 0 and by_clock(plan) and enters_by_time(plan.window)
    if not bounded or now is None or (before is not None and before.horizon is None):
        return None
    return max(now + away, before.horizon or now) if before else now + away


def _shape(plan: Plan, item: pb.SyncItem) -> str:
    form = [window_to_json(plan.window), item.base_rows]
    return json.dumps(form, separators=(",", ":"))


def _ids(ids: pb.Ids, field: str) -> Int64s:
    try:
        return from_runs(ids.runs, MOST_IDS) if ids.runs else np.empty(0, np.int64)
    except ValueError as problem:
        raise BadRequest(f"{field}: {problem}", field=field) from None
