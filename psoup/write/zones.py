"""The proposal that gives a store the rules of a time zone."""

from __future__ import annotations

from dataclasses import dataclass

from datastem.zones import ZoneRules
from psoup.store import ZoneDefined
from psoup.write.draft import HEADER_BYTES, Chain, CommitDraft

# Of a change in the rules, as JSON.
_CHANGE_BYTES = 20


@dataclass(frozen=True, slots=True)
class DefineZone:
    """Proposal to give the store these rules of a zone, if it has none. With `renew` they also take
    the place of other rules, as their next version."""

    rules: ZoneRules
    renew: bool = False
    chain: Chain | None = None

    @property
    def nbytes(self) -> int:
        return HEADER_BYTES + _CHANGE_BYTES * len(self.rules.starts)

    def propose(self, draft: CommitDraft) -> ZoneRules:
        """Return the rules that the store has from here on."""
        rules, present = self.rules, draft.state.zones.get(self.rules.name)
        if present is not None and (not self.renew or present.has_rules_of(rules)):
            return present
        defined = rules.of_version(1 if present is None else present.version + 1)
        draft.append("", "", ZoneDefined(defined))
        return defined
