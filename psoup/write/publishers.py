"""The proposals that forget publishers that are no longer used."""

from __future__ import annotations

from dataclasses import dataclass

from psoup.errors import NoSuchPublisher
from psoup.store import Position
from psoup.store.log.events import PublishersForgotten
from psoup.write.draft import HEADER_BYTES, Chain, CommitDraft


@dataclass(frozen=True, slots=True)
class ForgetPublishers:
    """Proposal to forget publishers of an owner, all of the names or none."""

    tenant: str
    owner: str
    names: tuple[str, ...]
    chain: Chain | None = None

    @property
    def nbytes(self) -> int:
        return HEADER_BYTES + sum(map(len, self.names))

    def propose(self, draft: CommitDraft) -> Position:
        for name in self.names:
            if (self.tenant, self.owner, name) not in draft.state.publishers:
                raise NoSuchPublisher(
                    f"owner {self.owner} has no publisher {name[:100]!r}",
                    field="names",
                    got=name[:100],
                    hint="`psoup publisher list` shows the publishers; --of names another owner",
                )
        event = PublishersForgotten(self.owner, self.names)
        return draft.append(self.tenant, self.owner, event)


@dataclass(frozen=True, slots=True)
class ExpirePublisher:
    """Proposal to forget a publisher, if it was not used for as long as its lease."""

    tenant: str
    owner: str
    name: str
    nbytes: int = HEADER_BYTES
    chain: Chain | None = None

    def propose(self, draft: CommitDraft) -> bool:
        """Return True if the proposal forgets the publisher."""
        last = draft.state.publishers.get((self.tenant, self.owner, self.name))
        if (
            last is None
            or last.lease is None
            or draft.state.awake_since_publish(last, draft.stamp) < last.lease
        ):
            return False
        event = PublishersForgotten(self.owner, (self.name,), expired=True)
        draft.append(self.tenant, self.owner, event)
        return True
