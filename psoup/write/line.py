"""The line of proposals that wait for a commit: tenants in turns, each tenant's in their order.

One tenant's flood delays another's proposal by a commit at most, and by the tenant's share of it.
Those of a tenant that steps back for others wait a moment for a commit that is made anyway.
Proposals of one call stay behind each other, whatever tenants they name.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from psoup.write.draft import Proposal


class InLine(Protocol):
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
# Seconds that those who step back wait for a commit with others, and between two looks.
_PATIENCE = 0.025
_LOOK = 0.001


class ProposalLine(Generic[W]):
    """Proposals that wait. For one event loop.

    `steps_back` tells of a tenant whether it has many calls here while others have a few.
    """

    def __init__(
        self, limits: GroupLimits, steps_back: Callable[[str], bool] = lambda tenant: False
    ) -> None:
        self._limits = limits
        self._steps_back = steps_back
        self._since = 0.0
        self._lines: OrderedDict[str, deque[W]] = OrderedDict()
        self._some = asyncio.Event()
        self._none = asyncio.Event()
        self._none.set()
        self._unfinished = 0

    def put(self, waiting: W) -> None:
        chain = waiting.proposal.chain
        name = str(getattr(waiting.proposal, "tenant", ""))
        if chain is not None:
            name = chain.line = name if chain.line is None else chain.line
        if not self._lines:
            self._since = time.monotonic()
        self._lines.setdefault(name, deque()).append(waiting)
        self._unfinished += 1
        self._none.clear()
        self._some.set()

    async def group(self) -> list[W]:
        """The next proposals that become one commit, at least one."""
        loop = asyncio.get_running_loop()
        while not self._ready():
            self._some.clear()
            if self._lines:
                loop.call_later(_LOOK, self._some.set)
            await self._some.wait()
        self._since = time.monotonic()
        group: list[W] = []
        left = self._limits.nbytes
        # Who was first this time is last the next time.
        for name in list(self._lines):
            if len(group) >= self._limits.proposals or (group and left <= 0):
                break
            taken = self._take(name, self._limits.proposals - len(group), left, not group)
            left -= sum(one.proposal.nbytes for one in taken)
            group += taken
        return group

    def _ready(self) -> bool:
        """Tells whether a commit is to be made now: it is not where all that wait step back, until
        somebody else's comes, with which theirs goes, or they have waited for long."""
        if all(map(self._steps_back, self._lines)):
            return bool(self._lines) and time.monotonic() - self._since >= _PATIENCE
        return True

    def _take(self, name: str, most: int, left: int, first: bool) -> list[W]:
        """The next of a line, of no more bytes than are left, unless it is the first of all."""
        line, taken, share = self._lines[name], list[W](), self._limits.share
        alone = len(self._lines) == 1
        most = most if alone else min(most, share.proposals)
        left = left if alone else min(left, share.nbytes)
        while line and len(taken) < most:
            size = line[0].proposal.nbytes
            if size > left and (taken or not first):
                break
            taken.append(line.popleft())
            left -= size
        self._lines.move_to_end(name)
        if not line:
            del self._lines[name]
        return taken

    def done(self, count: int) -> None:
        """Notes that the outcomes of so many proposals are known."""
        self._unfinished -= count
        if not self._unfinished:
            self._none.set()

    async def join(self) -> None:
        """Returns when the outcome of everything put here is known."""
        await self._none.wait()
