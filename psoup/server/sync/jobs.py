"""A job: one item of a Sync, with what its client has and what it is to have."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import numpy as np

from psoup.server.core import Core
from psoup.server.errors import BadRequest
from psoup.server.invoke import Plan, known
from psoup.server.planning import make_plan, of_registration
from psoup.server.sync.tokens import Claim, Mark, Signed, Subject, Unusable
from psoup.v1 import psoup_pb2 as pb
from querystem.identity import base_query, slides
from results.idruns import Int64s, from_runs
from results.window import TimeWindow, Window, window_to_json

# Ids a client may name in `have` or `resend`.
_MOST_IDS = 50_000_000


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
    """`reason` says why the claim is less than the token's, where it is."""

    item: pb.SyncItem
    subject: Subject
    claim: Claim
    reason: pb.SyncReason
    target: Mark
    repair: Repair

    @property
    def continued(self) -> bool:
        """Whether some of the target has been sent."""
        return self.claim.target is not None and self.claim.next_id > 0

    def restarted(self, target: Mark) -> Job:
        """From the copy, towards another target."""
        claim = Claim(self.claim.copy)
        return replace(self, claim=claim, target=target, reason=pb.SYNC_REASON_TARGET_GONE)


def plan_of(core: Core, tenant: str, item: pb.SyncItem) -> Plan:
    """What the item asks for, now. Raises what Invoke raises."""
    request = pb.InvokeRequest(tenant=tenant, handle=item.handle, window=item.window)
    plan = make_plan(core, request, of_registration(core, request))
    if item.base_rows and not slides(plan.query):
        plan = replace(plan, query=base_query(plan.query, plan.schema))
    return plan


def by_clock(plan: Plan) -> bool:
    """Whether NOW goes on by itself."""
    return plan.schema.ordered_by is None


def enters_by_time(window: Window) -> bool:
    """Whether rows that are there already may enter later."""
    if not isinstance(window, TimeWindow):
        return False
    gap = window.end is not None and window.end.relative and window.end.offset < 1
    return gap or window.slide is not None


def make_job(item: pb.SyncItem, signed: Signed | Unusable | None, plan: Plan, away: int) -> Job:
    """Of one moment with the plan. `away` is -1 where the client did not say."""
    subject = Subject(item.handle, _shape(plan, item))
    claim, reason = _claim(item, signed, subject)
    return Job(item, subject, claim, reason, _target(plan, claim, away), Repair.of(item))


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
    """The answer of the plan; NOW never runs back behind the copy's."""
    high, position = known(plan)
    now = _latest(plan.now, copy.now if copy else None)
    return Mark(position, high, now, _horizon(plan, now, copy, away))


def _target(plan: Plan, claim: Claim, away: int) -> Mark:
    """A target that was begun keeps its position. Rows go on to the NOW of now; results can't."""
    begun = claim.target
    if begun is None:
        return fresh_target(plan, claim.copy, away)
    if not slides(plan.query):
        return begun
    now = _latest(plan.now, begun.now)
    return replace(begun, now=now, horizon=_horizon(plan, now, begun, away))


def _latest(*instants: int | None) -> int | None:
    return max((one for one in instants if one is not None), default=None)


def _horizon(plan: Plan, now: int | None, before: Mark | None, away: int) -> int | None:
    """Never nearer than before: what was sent ahead is there."""
    bounded = away >= 0 and by_clock(plan) and enters_by_time(plan.window)
    if not bounded or now is None or (before is not None and before.horizon is None):
        return None
    return max(now + away, before.horizon or now) if before else now + away


def _shape(plan: Plan, item: pb.SyncItem) -> str:
    form = [window_to_json(plan.window), item.base_rows and slides(plan.query)]
    return json.dumps(form, separators=(",", ":"))


def _ids(ids: pb.Ids, field: str) -> Int64s:
    try:
        return from_runs(ids.runs, _MOST_IDS) if ids.runs else np.empty(0, np.int64)
    except ValueError as problem:
        raise BadRequest(f"{field}: {problem}", field=field) from None
