"""Leases of registrations and publishers: use renews them, and they end without it.

Only time counts in which a server runs. Servers append ticks while there is nothing else to append,
so that the log shows how long they ran.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from datastem.instants import MINUTE, SECOND
from psoup.errors import ServerError
from psoup.store import Expire, Registration, Renew, State, StoreError, Tick
from psoup.store.state.leases import Leases
from psoup.store.state.streams import AcceptedBatch, PublisherKey
from psoup.write.appender import Appender, LogTail
from psoup.write.clock import ClockGuard
from psoup.write.draft import HEADER_BYTES, Actor, Chain, CommitDraft, Proposal
from psoup.write.publishers import ExpirePublisher

log = logging.getLogger("psoup.write")

# Half of the longest time that counts between two stamps, so that one tick may be late.
TICK_INTERVAL = 5 * MINUTE
# A lease is renewed once this part of it is used up, so that renewals are few.
_MAX_RENEWALS_PER_LEASE = 30
_CHECK_INTERVAL_SECONDS = 60.0
# Reading the leases of all registrations is too expensive for every check.
_CHECKS_PER_EXPIRY = 10
_RENEWAL_WAIT_SECONDS = 0.05


def wants_renewal(state: State, registration: Registration, now: int) -> bool:
    """Return True if enough of the lease is used up to append a renewal."""
    used = state.awake_since_contact(registration, now)
    return used * _MAX_RENEWALS_PER_LEASE >= registration.lease


@dataclass(frozen=True, slots=True)
class RenewOne:
    """Proposal to renew a lease. It appends nothing if hardly any of the lease is used up."""

    handle: bytes
    nbytes: int = HEADER_BYTES
    chain: Chain | None = None

    def propose(self, draft: CommitDraft) -> None:
        registration = draft.state.registrations.get(self.handle)
        if registration is not None and wants_renewal(draft.state, registration, draft.stamp):
            draft.append(registration.tenant, registration.owner, Renew(self.handle))


@dataclass(frozen=True, slots=True)
class ExpireOne:
    """Proposal to end a registration, if it was not used for as long as its lease."""

    handle: bytes
    nbytes: int = HEADER_BYTES
    chain: Chain | None = None

    def propose(self, draft: CommitDraft) -> bool:
        """Return True if the proposal ends the registration."""
        registration = draft.state.registrations.get(self.handle)
        if (
            registration is None
            or draft.state.awake_since_contact(registration, draft.stamp) < registration.lease
        ):
            return False
        draft.append(registration.tenant, registration.owner, Expire(self.handle))
        return True


@dataclass(frozen=True, slots=True)
class TickOnce:
    """Proposal of a tick. It appends nothing if a server of this machine has appended anything
    within the duration `after`, or the commit has other events."""

    guard: ClockGuard
    after: int
    nbytes: int = HEADER_BYTES
    chain: Chain | None = None

    def propose(self, draft: CommitDraft) -> None:
        if draft.empty and max(draft.quiet, self.guard.silence) >= self.after:
            draft.append("", "", Tick())


class LeaseKeeper:
    """Renews the leases of registrations that are used, and ends those whose lease is used up. A
    publisher's lease begins again with each batch.

    Answers do not wait for a lease, except in `renewed`, for at most 50 ms.
    """

    def __init__(self, tail: LogTail, appender: Appender, guard: ClockGuard) -> None:
        self._tail = tail
        self._appender = appender
        self._guard = guard
        self._renewing: dict[bytes, asyncio.Future[Any]] = {}
        self._answering: asyncio.Future[Any] | None = None

    def contact(self, handle: bytes, actor: Actor | None = None) -> None:
        """Note that `actor` uses a registration: renew its lease if enough of it is used up."""
        state = self._tail.state
        registration = state.registrations.get(handle)
        if registration is None or handle in self._renewing or self._appender.stopping:
            return
        if wants_renewal(state, registration, self._now):
            future = self._append(RenewOne(handle), actor)
            self._renewing[handle] = future
            future.add_done_callback(lambda _: self._renewing.pop(handle, None))

    async def renewed(self, handle: bytes) -> None:
        """Wait shortly for a renewal in progress, so that the answer can state the new end."""
        future = self._renewing.get(handle)
        if future is not None:
            await asyncio.wait([future], timeout=_RENEWAL_WAIT_SECONDS)

    def until(self, handle: bytes) -> int | None:
        """Return the instant before which the registration does not end, in whole seconds.

        Return None if it has ended. The instant holds whichever servers stop.
        """
        state = self._tail.state
        registration = state.registrations.get(handle)
        if registration is None:
            return None
        now = self._now
        remaining = registration.lease - state.awake_since_contact(registration, now)
        # Rounded down: the registration must not end before the instant that is promised.
        return (now + max(remaining, 0)) // SECOND * SECOND

    async def run(self) -> None:
        """Tick and end leases at intervals, until cancelled."""
        checks = 0
        while True:
            await asyncio.sleep(_CHECK_INTERVAL_SECONDS)
            try:
                await self.tick()
                checks += 1
                if checks % _CHECKS_PER_EXPIRY == 0:
                    await self.expire()
            except (ServerError, StoreError) as error:
                log.warning("could not renew or end leases, retrying: %s", error)

    async def tick(self) -> None:
        """Append a tick if there are leases to count and no server of this machine has appended
        anything recently. Other machines compare their clocks with the one in the tick."""
        state = self._tail.state
        self._guard.see(state.clock)
        if not state.registrations and not state.has_leased_publishers:
            return
        if self._now - state.clock >= TICK_INTERVAL or self._guard.silence >= TICK_INTERVAL:
            await self._append(TickOnce(self._guard, TICK_INTERVAL))

    def answer(self) -> None:
        """Tick if another machine asks for this one's clock."""
        if not self._guard.is_asked or self._appender.stopping:
            return
        # One answer in line is enough, whatever number of machines asks.
        if self._answering is None or self._answering.done():
            self._answering = self._append(TickOnce(self._guard, 0))

    async def expire(self) -> int:
        """End the registrations and publishers whose lease is used up; return their number."""
        state, now = self._tail.state, self._now
        registrations, _ = state.columns
        # Columns with an entry per registration; each proposal checks its lease again.
        handles, since, leases = registrations.leases()
        used = state.leases.awake_all(since, state.clock, now)
        due = handles.filter(pa.array(used >= leases)).to_pylist()
        ended = await asyncio.gather(*(self._append(ExpireOne(handle)) for handle in due))
        return ended.count(True) + await self._expire_publishers(now)

    async def _expire_publishers(self, now: int) -> int:
        """Forget the publishers whose lease is used up; return their number."""
        state = self._tail.state
        if not state.has_leased_publishers:
            return 0
        # There may be millions, so a thread looks at a copy of them; each proposal checks its lease
        # again.
        publishers = list(state.publishers.items())
        due = await asyncio.to_thread(_due_publishers, publishers, state.leases, state.clock, now)
        expired = await asyncio.gather(*(self._append(ExpirePublisher(*key)) for key in due))
        return expired.count(True)

    @property
    def _now(self) -> int:
        # This clock may be behind the last stamp, and stamps never fall.
        return max(self._guard.now(), self._tail.state.clock)

    def _append(self, proposal: Proposal[Any], actor: Actor | None = None) -> asyncio.Future[Any]:
        future = self._appender.enqueue(proposal, actor)
        # If no caller awaits the future, asyncio would log its exception as never retrieved.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        return future


def _due_publishers(
    publishers: list[tuple[PublisherKey, AcceptedBatch]], leases: Leases, clock: int, now: int
) -> list[PublisherKey]:
    """Return the publishers whose leases are used up at `now`; `clock` is the last stamp."""
    leased = [(key, last.stamp, last.lease) for key, last in publishers if last.lease is not None]
    stamps = np.array([stamp for _, stamp, _ in leased], np.int64)
    lengths = np.array([lease for _, _, lease in leased], np.int64)
    used = leases.awake_all(stamps, clock, now)
    return [leased[place][0] for place in np.flatnonzero(used >= lengths)]
