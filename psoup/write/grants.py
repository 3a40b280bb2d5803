"""Grants as proposals: giving actions, taking them away, and their end with what they are on."""

from __future__ import annotations

from dataclasses import dataclass

from psoup.errors import BadRequest, NoSuchStream
from psoup.store import Position
from psoup.store.log.access_events import AccessEnded, AccessPut
from psoup.store.state.access import Grant, kind_of
from psoup.write.draft import HEADER_BYTES, Chain, CommitDraft
from psoup.write.quotas import check_objects


@dataclass(frozen=True, slots=True)
class GrantAll:
    """Makes grants, all on one stream or view, or on all. Those that are there stay."""

    tenant: str
    owner: str
    grants: tuple[Grant, ...]
    nbytes: int = HEADER_BYTES
    chain: Chain | None = None

    def propose(self, draft: CommitDraft) -> Position:
        for grant in self.grants:
            check_live(draft, grant.object_id)
        new = {grant.id for grant in self.grants} - draft.state.access.grants.keys()
        check_objects(draft.state, "grants", self.tenant, "", len(new))
        return draft.append(self.tenant, self.owner, AccessPut(self.grants))


@dataclass(frozen=True, slots=True)
class Revoke:
    """Ends grants. Refused where one of them is not there."""

    tenant: str
    owner: str
    grants: tuple[Grant, ...]
    nbytes: int = HEADER_BYTES
    chain: Chain | None = None

    def propose(self, draft: CommitDraft) -> Position:
        known = draft.state.access.grants
        for grant in self.grants:
            if grant.id not in known:
                raise BadRequest(
                    f"{grant.to} {grant.name} has no grant of {grant.action} there",
                    reason="NO_SUCH_GRANT",
                    got=grant.action,
                    hint="list the grants; what a built-in role allows can't be revoked",
                )
        ids = tuple((kind_of(grant), grant.id) for grant in self.grants)
        return draft.append(self.tenant, self.owner, AccessEnded(ids))


def check_live(draft: CommitDraft, object_id: int) -> None:
    """Raises NoSuchStream where a stream or view has ended; 0 stands for all."""
    found = draft.state.views.get(object_id) or draft.state.streams.get(object_id)
    if object_id and (found is None or found.dropped):
        raise NoSuchStream("what the grant is on was dropped meanwhile")


def end_grants(draft: CommitDraft, object_id: int, tenant: str, owner: str) -> list[Grant]:
    """End the grants on a stream or a view that is dropped, and return them."""
    found = [one for one in draft.state.access.grants.values() if one.object_id == object_id]
    if found:
        ids = tuple((kind_of(one), one.id) for one in found)
        draft.append(tenant, owner, AccessEnded(ids))
    return found
