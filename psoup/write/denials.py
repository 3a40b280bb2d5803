"""Denials of administration as a proposal: they are events of the log, for the audit."""

from __future__ import annotations

from dataclasses import dataclass

from psoup.store.log.events import Denied
from psoup.write.draft import HEADER_BYTES, Chain, CommitDraft


@dataclass(frozen=True, slots=True)
class Denial:
    """What a caller, by one credential, was denied for one reason."""

    tenant: str
    owner: str
    credential: str
    reason: str


@dataclass(frozen=True, slots=True)
class NoteDenials:
    """Notes denials, each with how often it happened."""

    denials: tuple[tuple[Denial, int], ...]
    chain: Chain | None = None

    @property
    def nbytes(self) -> int:
        return HEADER_BYTES * len(self.denials)

    def propose(self, draft: CommitDraft) -> None:
        for denial, count in self.denials:
            event = Denied(denial.credential, denial.reason, count)
            draft.append(denial.tenant, denial.owner, event)
