"""How long registrations live without contact, counted in time in which some server was up.

Servers append something at least every few minutes while they run. So a long stretch of the log
without a stamp is an outage, and is not counted.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass, field

from datastem.instants import MINUTE
from psoup.store.overlay import Overlay

# So much of the time between two stamps counts at most.
QUIET = 10 * MINUTE
# So many registrations that expired are remembered as such.
REMEMBERED = 100_000

# When it ended, and how much time had been lost by then in all.
Outage = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Expired:
    """A registration that ended because nobody asked for it."""

    tenant: str
    stamp: int


@dataclass(slots=True)
class Leases:
    """`renewed` is the stamp of a registration's last renewal, if there was one."""

    renewed: MutableMapping[bytes, int] = field(default_factory=dict)
    expired: MutableMapping[bytes, Expired] = field(default_factory=dict)
    outages: tuple[Outage, ...] = ()

    def draft(self) -> Leases:
        return Leases(Overlay(self.renewed), Overlay(self.expired), self.outages)

    def pass_time(self, clock: int, stamp: int) -> None:
        """From one stamp of the log to the next."""
        if clock and stamp - clock > QUIET:
            lost = self.outages[-1][1] if self.outages else 0
            self.outages = (*self.outages, (stamp, lost + stamp - clock - QUIET))

    def awake(self, since: int, clock: int, until: int) -> int:
        """Time that counts between two instants; `clock` is the last stamp of the log."""
        lost = [total for end, total in self.outages if end > since]
        before = max((total for end, total in self.outages if end <= since), default=0)
        asleep = (lost[-1] - before) if lost else 0
        return max(0, min(until, max(clock, since) + QUIET) - since - asleep)

    def expire(self, handle: bytes, tenant: str, stamp: int) -> list[bytes]:
        """The handles that are forgotten for it."""
        self.expired[handle] = Expired(tenant, stamp)
        if not isinstance(self.expired, dict) or len(self.expired) <= REMEMBERED:
            return []
        oldest = next(iter(self.expired))
        del self.expired[oldest]
        return [oldest]
