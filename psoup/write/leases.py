"""Leases of registrations: contact renews them, silence ends them, ticks keep the count honest."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from datastem.instants import MINUTE, SECOND
from psoup.errors import ServerError
from psoup.store import Expire, Registration, Renew, State, StoreError, Tick
from psoup.write.appender import Appender, LogTail
from psoup.write.clock import ClockGuard
from psoup.write.draft import HEADER_BYTES, Chain, CommitDraft, Proposal

log = logging.getLogger("psoup.write")

# Half of what counts between two stamps, so that one tick may be late.
TICK = 5 * MINUTE
# A lease is renewed when so small a part of it has been used up: 30 renewals a lease at most.
_RENEWALS = 30
_LOOK_SECONDS = 60.0
# Looking at all registrations is not for every minute.
_LOOKS_PER_SEARCH = 10
_RENEWAL_SECONDS = 0.05


def wants_renewal(state: State, registration: Registration, now: int) -> bool:
    used = state.awake_since_contact(registration, now)
    return used * _RENEWALS >= registration.lease


@dataclass(frozen=True, slots=True)
class RenewOne:
    """Begins a lease anew, where some of it has been used up; else there is nothing to say."""

    handle: bytes
    nbytes: int = HEADER_BYTES
    chain: Chain | None = None

    def propose(self, draft: CommitDraft) -> None:
        found = draft.state.registrations.get(self.handle)
        if found is not None and wants_renewal(draft.state, found, draft.stamp):
            draft.append(found.tenant, found.owner, Renew(self.handle))


@dataclass(frozen=True, slots=True)
class ExpireOne:
    """Ends a registration, if nobody has asked for it for as long as its lease."""

    handle: bytes
    nbytes: int = HEADER_BYTES
    chain: Chain | None = None

    def propose(self, draft: CommitDraft) -> bool:
        """True where the registration ends by this proposal."""
        found = draft.state.registrations.get(self.handle)
        if found is None or draft.state.awake_since_contact(found, draft.stamp) < found.lease:
            return False
        draft.append(found.tenant, found.owner, Expire(self.handle))
        return True


@dataclass(frozen=True, slots=True)
class TickOnce:
    """Says that a server is up, where none of its machine has said anything for a while."""

    guard: ClockGuard
    after: int
    nbytes: int = HEADER_BYTES
    chain: Chain | None = None

    def propose(self, draft: CommitDraft) -> None:
        if draft.empty and max(draft.quiet, self.guard.silence) >= self.after:
            draft.append("", "", Tick())


class LeaseKeeper:
    """Renews the leases of registrations that are asked for, and ends those nobody asks for.

    No answer waits for a lease, but for `renewed`, and that for a moment only.
    """

    def __init__(self, tail: LogTail, appender: Appender, guard: ClockGuard) -> None:
        self._tail = tail
        self._appender = appender
        self._guard = guard
        self._renewing: dict[bytes, asyncio.Future[Any]] = {}
        self._answering: asyncio.Future[Any] | None = None

    def contact(self, handle: bytes) -> None:
        """Somebody asks for a registration: its lease begins anew, if some of it is used up."""
        state = self._tail.state
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
        state = self._tail.state
        found = state.registrations.get(handle)
        if found is None:
            return None
        now = self._now
        left = found.lease - state.awake_since_contact(found, now)
        return (now + max(left, 0)) // SECOND * SECOND

    async def run(self) -> None:
        """Ticks and ends leases now and then, until cancelled."""
        looks = 0
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                await self.tick()
                looks += 1
                if looks % _LOOKS_PER_SEARCH == 0:
                    await self.expire()
            except (ServerError, StoreError) as error:
                log.warning("leases wait: %s", error)

    async def tick(self) -> None:
        """Says that a server is up, where there are leases to count and no server of this machine
        has said so lately. Other machines compare their clocks with the one in the tick."""
        state = self._tail.state
        self._guard.see(state.clock)
        if not state.registrations:
            return
        if self._now - state.clock >= TICK or self._guard.silence >= TICK:
            await self._append(TickOnce(self._guard, TICK))

    def answer(self) -> None:
        """Tick if another machine asks for this one's clock."""
        if not self._guard.is_asked or self._appender.stopping:
            return
        if self._answering is None or self._answering.done():
            self._answering = self._append(TickOnce(self._guard, 0))

    async def expire(self) -> int:
        """Ends the registrations whose lease is used up, and returns how many those were."""
        state, now = self._tail.state, self._now
        registrations, _ = state.columns
        handles, since, leases = registrations.leases()
        used = state.leases.awake_all(since, state.clock, now)
        due = handles.filter(pa.array(used >= leases)).to_pylist()
        ended = await asyncio.gather(*(self._append(ExpireOne(handle)) for handle in due))
        return sum(ended)

    @property
    def _now(self) -> int:
        return max(self._guard.now(), self._tail.state.clock)

    def _append(self, proposal: Proposal[Any]) -> asyncio.Future[Any]:
        future = self._appender.enqueue(proposal)
        # Whoever does not wait for it does not want to hear of its failure either.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        return future
