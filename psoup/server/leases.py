"""Leases of registrations: contact renews them, silence ends them, ticks keep the count honest."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pyarrow as pa

from datastem.instants import MINUTE, SECOND
from psoup.server.appender import Appender, Proposal
from psoup.server.clockguard import ClockGuard
from psoup.server.errors import FAMILIES
from psoup.server.follower import Follower
from psoup.server.proposals import ExpireOne, RenewOne, TickOnce, wants_renewal

log = logging.getLogger("psoup.server")

# Half of what counts between two stamps, so that one tick may be late.
TICK = 5 * MINUTE
_LOOK_SECONDS = 60.0
# Looking at all registrations is not for every minute.
_LOOKS_PER_SEARCH = 10
_RENEWAL_SECONDS = 0.05


class Leases:
    """Nothing here is on the way of an answer but `renewed`, and that for a moment only."""

    def __init__(self, follower: Follower, appender: Appender, guard: ClockGuard) -> None:
        self._follower = follower
        self._appender = appender
        self._guard = guard
        self._renewing: dict[bytes, asyncio.Future[Any]] = {}

    def contact(self, handle: bytes) -> None:
        """Somebody asks for a registration: its lease begins anew, if some of it is used up."""
        state = self._follower.state
        found = state.registrations.get(handle)
        if found is None or handle in self._renewing or self._appender.stopping:
            return
        if wants_renewal(state, found, self._now):
            future = self._append(RenewOne(handle))
            self._renewing[handle] = future
            future.add_done_callback(lambda _: self._renewing.pop(handle, None))

    async def renewed(self, handle: bytes) -> None:
        """Waits a moment for a renewal under way, so that the client can be told."""
        future = self._renewing.get(handle)
        if future is not None:
            await asyncio.wait([future], timeout=_RENEWAL_SECONDS)

    def until(self, handle: bytes) -> int | None:
        """The registration does not end before this instant, whoever dies; in whole seconds."""
        state = self._follower.state
        found = state.registrations.get(handle)
        if found is None:
            return None
        now = self._now
        left = found.lease - state.awake_since_contact(found, now)
        return (now + max(left, 0)) // SECOND * SECOND

    async def run(self) -> None:
        """Until cancelled."""
        looks = 0
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                await self.tick()
                looks += 1
                if looks % _LOOKS_PER_SEARCH == 0:
                    await self.expire()
            except FAMILIES as error:
                log.warning("leases wait: %s", error)

    async def tick(self) -> None:
        """Says that a server is up, where there are leases to count and none of this machine has:
        others' clocks are compared with this one's."""
        state = self._follower.state
        self._guard.see(state.clock)
        if not state.registrations:
            return
        if self._now - state.clock >= TICK or self._guard.silence >= TICK:
            await self._append(TickOnce(self._guard, TICK))

    async def expire(self) -> int:
        """Ends the registrations whose lease is used up; how many."""
        state, now = self._follower.state, self._now
        registrations, _ = state.columns
        handles, since, leases = registrations.leases()
        used = state.leases.awake_all(since, state.clock, now)
        due = handles.filter(pa.array(used >= leases)).to_pylist()
        ended = await asyncio.gather(*(self._append(ExpireOne(handle)) for handle in due))
        return sum(ended)

    @property
    def _now(self) -> int:
        return max(self._guard.now(), self._follower.state.clock)

    def _append(self, proposal: Proposal[Any]) -> asyncio.Future[Any]:
        future = self._appender.enqueue(proposal)
        # Whoever does not wait for it does not want to hear of its failure either.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        return future
