"""The line of proposals that wait for a commit: tenants take turns, in each the first comes first.

The flood of one tenant delays the proposal of another by one commit at most, and by the tenant's
share of it. A tenant that steps back for others waits a moment for a commit that is made anyway.
Proposals of one call stay behind each other, whatever tenants they name.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from psoup.tenant_queue import TenantQueue
from psoup.write.draft import Proposal


class InLine(Protocol):
    """A proposal in a line, with what its sender needs to know of the outcome."""

    @property
    def proposal(self) -> Proposal[Any]: ...


W = TypeVar("W", bound=InLine)


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """The most proposals, and the most bytes of them, that become one commit."""

    proposals: int
    nbytes: int

    @property
    def share(self) -> GroupLimits:
        """The part of a commit that one tenant has, unless it is one proposal that is larger."""
        return GroupLimits(max(1, self.proposals // _SHARES), max(1, self.nbytes // _SHARES))


_SHARES = 8
# How long tenants that step back wait for a commit with others, and how often that is checked.
_STEP_BACK_SECONDS = 0.025
_POLL_SECONDS = 0.001


class ProposalLine(Generic[W]):
    """Proposals that wait. For one event loop.

    `steps_back` returns of a tenant whether it has many calls here while others have a few.
    """

    def __init__(
        self, limits: GroupLimits, steps_back: Callable[[str], bool] = lambda tenant: False
    ) -> None:
        self._limits = limits
        self._steps_back = steps_back
        # Since when proposals wait that the last commit did not take.
        self._waiting_since = 0.0
        self._queue: TenantQueue[W] = TenantQueue()
        self._arrived = asyncio.Event()
        self._finished = asyncio.Event()
        self._finished.set()
        self._unfinished = 0

    def put(self, entry: W) -> None:
        """Add a proposal at the end of its tenant's, or of its chain's."""
        chain = entry.proposal.chain
        tenant = str(getattr(entry.proposal, "tenant", ""))
        if chain is not None:
            # With the tenant of the chain's first proposal, or a later one could overtake it.
            tenant = chain.line = tenant if chain.line is None else chain.line
        if not self._queue:
            self._waiting_since = time.monotonic()
        self._queue.push(tenant, entry)
        self._unfinished += 1
        self._finished.clear()
        self._arrived.set()

    async def group(self) -> list[W]:
        """Return the next proposals that become one commit, at least one."""
        loop = asyncio.get_running_loop()
        while not self._is_ready():
            self._arrived.clear()
            if self._queue:
                # Tenants may cease to step back without a new proposal, so check again soon.
                loop.call_later(_POLL_SECONDS, self._arrived.set)
            await self._arrived.wait()
        self._waiting_since = time.monotonic()
        group: list[W] = []
        room = self._limits.nbytes
        # A copy, since taking an entry moves its tenant to the end of the queue.
        for tenant in list(self._queue):
            if len(group) >= self._limits.proposals or (group and room <= 0):
                break
            entries = self._take(tenant, self._limits.proposals - len(group), room, not group)
            room -= sum(entry.proposal.nbytes for entry in entries)
            group += entries
        return group

    def _is_ready(self) -> bool:
        """Return whether to commit now. If all tenants that wait step back, their proposals wait
        for one of another tenant, or until they have waited for long."""
        if all(map(self._steps_back, self._queue)):
            waited = time.monotonic() - self._waiting_since
            return bool(self._queue) and waited >= _STEP_BACK_SECONDS
        return True

    def _take(self, tenant: str, count: int, room: int, is_first: bool) -> list[W]:
        """Take the next proposals of a tenant, of no more bytes than there is room for, unless it
        is the first of the group."""
        entries, share = list[W](), self._limits.share
        # A tenant that waits alone may have the whole commit.
        if len(self._queue) > 1:
            count, room = min(count, share.proposals), min(room, share.nbytes)
        while tenant in self._queue and len(entries) < count:
            nbytes = self._queue.head(tenant).proposal.nbytes
            if nbytes > room and (entries or not is_first):
                break
            entries.append(self._queue.pop(tenant))
            room -= nbytes
        return entries

    def done(self, count: int) -> None:
        """Note that the outcomes of so many proposals are known."""
        self._unfinished -= count
        if not self._unfinished:
            self._finished.set()

    async def join(self) -> None:
        """Return when the outcome of everything put here is known."""
        await self._finished.wait()
