"""Shares of the processor: how much work a server has done for each tenant, and for its callers.

Work is counted in units (`querystem.pace`), and a turn that runs as a whole chunk. So many calls at
once get a tenant no more than one does. The callers of a tenant are compared in steps: of those in
the same step the first is finished first, because callers that took turns would all end late.
An idle caller starts at the current minimum: unused time is not credited.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

# The units of work between two decisions who is next: some ten milliseconds.
CHUNK_UNITS = 10_000_000
# Callers of a tenant whose shares differ by less go in the order of their calls.
_STEP_UNITS = 64 * CHUNK_UNITS
# Shares of idle callers are forgotten beyond this number.
_MAX_IDLE = 1024

Rank: TypeAlias = tuple[int, int]


@dataclass(eq=False, slots=True)
class Share:
    """The units that were done for a tenant or caller, and the shares that it consists of.

    `present` counts its turns that wait or run, `running` those that run, `begun` those that have
    done a chunk and are not finished. `floor` is the largest share that one of `inner` had when it
    was chosen; with `limit` of these the idle ones are forgotten.
    """

    units: int = 0
    present: int = 0
    running: int = 0
    begun: int = 0
    floor: int = 0
    limit: int = _MAX_IDLE
    inner: dict[str, Share] = field(default_factory=dict)

    @property
    def charged_units(self) -> int:
        """The units that were done, with a whole chunk for each turn that runs."""
        return self.units + CHUNK_UNITS * self.running

    def enter(self, name: str) -> Share:
        """Count one more turn of that name; return its share."""
        share = self.inner.get(name)
        if share is None:
            self._forget_idle()
            share = self.inner[name] = Share()
        # A caller that was idle has few units, and would otherwise run alone until it caught up.
        if not share.present:
            share.units = max(share.units, self.floor)
        share.present += 1
        return share

    def choose(self, share: Share) -> None:
        """Note that a turn of one of `inner` runs."""
        self.floor = max(self.floor, share.units)
        share.running += 1

    def rank(self, ticket: int) -> Rank:
        """Return the rank of a caller's turn among those of its tenant."""
        return self.units // _STEP_UNITS, ticket

    def _forget_idle(self) -> None:
        if len(self.inner) >= self.limit:
            self.inner = {name: share for name, share in self.inner.items() if share.present}
            self.limit = max(_MAX_IDLE, 2 * len(self.inner))
