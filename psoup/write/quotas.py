"""Quotas: what tenants and owners may have, checked when something is appended, and the proposal
that sets them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from psoup.errors import BadRequest, QuotaExceeded
from psoup.store import Position, State
from psoup.store.log.access_events import AccessEnded, AccessPut
from psoup.store.state.access import Quota, kind_of
from psoup.write.draft import HEADER_BYTES, Chain, CommitDraft

# The limits there are. The last three are of each server.
LIMITS = ("registrations", "bytes", "rows_per_second", "work_per_second", "watches")
# What a file belongs to is a stream, and a stream to its tenant.
OF_TENANTS = frozenset({"bytes"})


def quota_of(state: State, tenant: str, owner: str = "") -> Mapping[str, int]:
    """The limits of a tenant, or of an owner of it; none where there is no quota."""
    found = state.access.quotas.get(Quota(tenant, owner, ()).id)
    return {} if found is None else dict(found.limits)


def limits_on(state: State, name: str, tenant: str, owner: str) -> Iterator[tuple[str, int]]:
    """The limits of a name that hold for an owner of a tenant: whose they are, an empty owner being
    the tenant, and the number."""
    if not state.access.quotas:
        return
    for whose in ("", owner):
        limit = quota_of(state, tenant, whose).get(name)
        if limit is not None:
            yield whose, limit


def check_registrations(state: State, tenant: str, owner: str, more: int) -> None:
    """Raises QuotaExceeded where so many registrations more would be too many."""
    for whose, limit in limits_on(state, "registrations", tenant, owner):
        have = state.registered_by(tenant, whose)
        if more and have + more > limit:
            called = f"owner {whose}" if whose else "the tenant"
            raise QuotaExceeded(
                f"{called} may have {limit:,} registrations, and has {have:,}",
                field="registrations",
                expected=f"at most {limit}",
                got=f"{have} and {more} more",
                hint="unregister some, or ask for a larger quota",
            )


@dataclass(frozen=True, slots=True)
class SetLimits:
    """Sets limits of a tenant, or of one owner of it, and takes others away. Those that are not
    named stay. `asking` is the owner who asks."""

    tenant: str
    asking: str
    owner: str
    limits: Mapping[str, int]
    removed: Sequence[str] = ()
    nbytes: int = HEADER_BYTES
    chain: Chain | None = None

    def propose(self, draft: CommitDraft) -> Position:
        self._check(draft.state)
        known = quota_of(draft.state, self.tenant, self.owner)
        limits = {**known, **self.limits}
        kept = [name for name in LIMITS if name in limits and name not in self.removed]
        quota = Quota(self.tenant, self.owner, tuple((name, limits[name]) for name in kept))
        if kept:
            return draft.append(self.tenant, self.asking, AccessPut((quota,)))
        if known:
            ended = AccessEnded(((kind_of(quota), quota.id),))
            return draft.append(self.tenant, self.asking, ended)
        return draft.state.position

    def _check(self, state: State) -> None:
        for name in (*self.limits, *self.removed):
            if name not in LIMITS or (self.owner and name in OF_TENANTS):
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
