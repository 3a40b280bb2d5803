"""Quotas: limits of tenants and owners, checked when objects are appended, and the proposal that
sets them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from psoup.errors import BadRequest, QuotaExceeded
from psoup.store import Position, State
from psoup.store.log.access_events import AccessEnded, AccessPut
from psoup.store.state.access import Quota, kind_of
from psoup.write.draft import HEADER_BYTES, Chain, CommitDraft

# Kinds of objects that are counted, and how to free one.
OBJECTS: Mapping[str, str] = {
    "registrations": "unregister some",
    "publishers": "forget those that are done (psoup publisher forget)",
    "streams": "drop one",
    "views": "drop one",
    "keys": "revoke one",
    "grants": "revoke some",
    "policies": "drop one",
}
# Limits that each server counts for itself.
_PER_SERVER = ("events_per_second", "rows_per_second", "work_per_second", "watches")
# All limits.
LIMITS = (*OBJECTS, "bytes", *_PER_SERVER)
# Limits that only tenants have: files belong to streams, not owners, and a grant has no owner.
TENANT_LIMITS = frozenset({"bytes", "grants"})


def quota_of(state: State, tenant: str, owner: str = "") -> Mapping[str, int]:
    """Return the limits of a tenant, or of an owner of it; empty without a quota."""
    quota = state.access.quotas.get(Quota(tenant, owner, ()).id)
    return {} if quota is None else dict(quota.limits)


def limits_on(state: State, name: str, tenant: str, owner: str) -> Iterator[tuple[str, int]]:
    """Yield the limits of a name that hold for an owner of a tenant: the subject of the limit,
    which is the owner or, if empty, the tenant; and the number."""
    # Most stores have no quotas, and this runs for every publish and registration.
    if not state.access.quotas:
        return
    for subject in ("", owner):
        limit = quota_of(state, tenant, subject).get(name)
        if limit is not None:
            yield subject, limit


def check_objects(state: State, kind: str, tenant: str, owner: str, more: int = 1) -> None:
    """Raise QuotaExceeded if `more` objects of a kind would be too many for the owner or the
    tenant."""
    for subject, limit in limits_on(state, kind, tenant, owner):
        count = state.owned_by(kind, tenant, subject)
        # A limit may be set below what exists. Then a call that adds nothing still succeeds.
        if more and count + more > limit:
            who = f"owner {subject}" if subject else "the tenant"
            raise QuotaExceeded(
                f"the quota of {who} for {kind} is {limit:,}, and {count:,} of it is used",
                field=kind,
                expected=f"at most {limit}",
                got=f"{count} and {more} more",
                hint=f"{OBJECTS[kind]}, or ask for a larger quota",
            )


@dataclass(frozen=True, slots=True)
class SetLimits:
    """Proposal to set limits of a tenant, or of one owner of it, and to remove others. Limits that
    are not named stay. `asking` is the owner who requests it."""

    tenant: str
    asking: str
    owner: str
    limits: Mapping[str, int]
    removed: Sequence[str] = ()
    nbytes: int = HEADER_BYTES
    chain: Chain | None = None

    def propose(self, draft: CommitDraft) -> Position:
        self._check(draft.state)
        previous = quota_of(draft.state, self.tenant, self.owner)
        limits = {**previous, **self.limits}
        remaining = [name for name in LIMITS if name in limits and name not in self.removed]
        quota = Quota(self.tenant, self.owner, tuple((name, limits[name]) for name in remaining))
        if remaining:
            return draft.append(self.tenant, self.asking, AccessPut((quota,)))
        if previous:
            ended = AccessEnded(((kind_of(quota), quota.id),))
            return draft.append(self.tenant, self.asking, ended)
        # There is no quota, as before: nothing has to be appended.
        return draft.state.position

    def _check(self, state: State) -> None:
        for name in (*self.limits, *self.removed):
            if name not in LIMITS or (self.owner and name in TENANT_LIMITS):
                raise BadRequest(
                    f"there is no limit {name[:60]!r}" + (" of an owner" if self.owner else ""),
                    field="limits",
                    got=name[:60],
                    expected=", ".join(LIMITS),
                )
        for name, limit in self.limits.items():
            most = quota_of(state, self.tenant).get(name) if self.owner else None
            if limit < 0 or (most is not None and limit > most):
                expected = "0 or more" if most is None else f"from 0 to the tenant's {most}"
                raise BadRequest(
                    f"{limit:,} can't be the limit {name}",
                    field="limits",
                    expected=expected,
                    got=str(limit),
                )
