"""Proposals that make and revoke grants, and the end of grants on an object that is dropped."""

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
    """Proposal to make grants, all on one stream or view, or on all. Existing grants stay."""

    tenant: str
    owner: str
    grants: tuple[Grant, ...]
    nbytes: int = HEADER_BYTES
    chain: Chain | None = None

    def propose(self, draft: CommitDraft) -> Position:
        for grant in self.grants:
            check_live(draft, grant.object_id)
        # Grants that exist already take no more of the quota.
        new = {grant.id for grant in self.grants} - draft.state.access.grants.keys()
        check_objects(draft.state, "grants", self.tenant, "", len(new))
        return draft.append(self.tenant, self.owner, AccessPut(self.grants))


@dataclass(frozen=True, slots=True)
class Revoke:
    """Proposal to end grants. Refused if one of them does not exist."""

    tenant: str
    owner: str
    grants: tuple[Grant, ...]
    nbytes: int = HEADER_BYTES
    chain: Chain | None = None

    def propose(self, draft: CommitDraft) -> Position:
        grants = draft.state.access.grants
        for grant in self.grants:
            if grant.id not in grants:
                raise BadRequest(
                    f"{grant.to} {grant.name} has no grant of {grant.action} there",
                    reason="NO_SUCH_GRANT",
                    got=grant.action,
                    hint="list the grants; what a built-in role allows can't be revoked",
                )
        ids = tuple((kind_of(grant), grant.id) for grant in self.grants)
        return draft.append(self.tenant, self.owner, AccessEnded(ids))


def check_live(draft: CommitDraft, object_id: int) -> None:
    """Raise NoSuchStream if a stream or view has ended; the id 0 stands for all."""
    target = draft.state.views.get(object_id) or draft.state.streams.get(object_id)
    if object_id and (target is None or target.dropped):
        raise NoSuchStream("the stream or view that the grant is on was dropped")


def end_grants(draft: CommitDraft, object_id: int, tenant: str, owner: str) -> list[Grant]:
    """End the grants on a stream or a view that is dropped, and return them."""
    grants = [grant for grant in draft.state.access.grants.values() if grant.object_id == object_id]
    if grants:
        ids = tuple((kind_of(grant), grant.id) for grant in grants)
        draft.append(tenant, owner, AccessEnded(ids))
    return grants
