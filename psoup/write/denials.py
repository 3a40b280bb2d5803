"""The proposal that notes denied attempts to administer, as events of the log for the audit."""

from __future__ import annotations

from dataclasses import dataclass

from psoup.store.log.events import Denied
from psoup.write.draft import HEADER_BYTES, Chain, CommitDraft


@dataclass(frozen=True, slots=True)
class Denial:
    """A denial: the caller, the credential it used and the reason."""

    tenant: str
    owner: str
    credential: str
    reason: str


@dataclass(frozen=True, slots=True)
class NoteDenials:
    """Proposal to note denials, each with the number of times it happened."""

    denials: tuple[tuple[Denial, int], ...]
    chain: Chain | None = None

    @property
    def nbytes(self) -> int:
        return HEADER_BYTES * len(self.denials)

    def propose(self, draft: CommitDraft) -> None:
        for denial, count in self.denials:
            event = Denied(denial.credential, denial.reason, count)
            draft.append(denial.tenant, denial.owner, event)
