"""Leases: how long registrations live without contact, counted in time in which some server was up.

Servers append something at least every few minutes while they run. So a long stretch of the log
without a stamp is an outage, and is not counted.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass, field

import numpy as np

from datastem.arrays import Int64s
from datastem.instants import MINUTE
from psoup.store.state.overlay import Overlay

# At most this much of the time between two stamps counts.
MAX_COUNTED_GAP = 10 * MINUTE
# This many expired registrations are remembered.
MAX_EXPIRED = 100_000

# When the outage ended, and the time lost in all outages up to then.
Outage = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Expired:
    """A registration that ended because its lease was not renewed. If `owner` is None, only callers
    who see all owners' registrations learn of it."""

    tenant: str
    owner: str | None
    stamp: int


def outages_until(outages: Iterable[Outage], clock: int) -> tuple[Outage, ...]:
    """Return the outages before an instant; one that lasts beyond it is cut there."""
    shortened: list[Outage] = []
    before = lost = 0
    for end, total in outages:
        # Totals are cumulative: the difference of two is the length of one outage.
        begin, before = end - (total - before), total
        duration = min(end, clock) - min(begin, clock)
        if duration:
            lost += duration
            shortened.append((min(end, clock), lost))
    return tuple(shortened)


@dataclass(slots=True)
class Leases:
    """The outages and the expired registrations; when a lease began is in its registration."""

    expired: MutableMapping[bytes, Expired] = field(default_factory=dict)
    outages: tuple[Outage, ...] = ()

    def draft(self) -> Leases:
        return Leases(Overlay(self.expired), self.outages)

    def pass_time(self, clock: int, stamp: int, jump: bool = False) -> None:
        """Advance from one stamp of the log to the next. The time of a jump never counts, true or
        not."""
        counted = 0 if jump else MAX_COUNTED_GAP
        if clock and stamp - clock > counted:
            lost = self.outages[-1][1] if self.outages else 0
            self.outages = (*self.outages, (stamp, lost + stamp - clock - counted))

    def awake(self, since: int, clock: int, until: int) -> int:
        """Return the time that counts between two instants; `clock` is the last stamp of the
        log."""
        if not self.outages:
            return max(0, min(until, max(clock, since) + MAX_COUNTED_GAP) - since)
        return int(self.awake_all(np.array([since]), clock, until)[0])

    def awake_all(self, since: Int64s, clock: int, until: int) -> Int64s:
        """Return the time that counts since each of many instants, as `awake` does for one."""
        ends = np.array([end for end, _ in self.outages], np.int64)
        # `lost[n]` is the time lost in the first n outages. `asleep` is the time lost in those that
        # ended after `since`.
        lost = np.array([0, *(total for _, total in self.outages)], np.int64)
        asleep = lost[-1] - lost[np.searchsorted(ends, since, "right")]
        counted = np.minimum(until, np.maximum(clock, since) + MAX_COUNTED_GAP) - since - asleep
        awake: Int64s = np.maximum(counted, 0)
        return awake

    def expire(self, handle: bytes, tenant_and_owner: tuple[str, str], stamp: int) -> list[bytes]:
        """Record that a registration expired; return the handles that are dropped to make room."""
        self.expired[handle] = Expired(*tenant_and_owner, stamp)
        # A draft drops none: the length of an overlay takes a walk over all of it.
        if not isinstance(self.expired, dict) or len(self.expired) <= MAX_EXPIRED:
            return []
        oldest = next(iter(self.expired))
        del self.expired[oldest]
        return [oldest]
