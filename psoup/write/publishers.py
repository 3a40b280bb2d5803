"""The proposal that forgets publishers that are no longer used."""

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
