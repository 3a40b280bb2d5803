"""Whose turn it is: of many transfers at once, those that began first are finished first.

All of them by turns would be done all at the end, each holding a piece of its own meanwhile. A
client that is slow to read does not ask for a turn, so it holds up nobody; one with very much to
read takes a new ticket now and then.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count


class Turns:
    """At most `slots` at once; of those that wait the one with the least ticket is next.

    For one event loop.
    """

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._tickets = 0
        self._order = count()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []

    def ticket(self) -> int:
        """Greater than all before."""
        self._tickets += 1
        return self._tickets

    @asynccontextmanager
    async def turn(self, ticket: int) -> AsyncIterator[None]:
        if self._free:
            self._free -= 1
        else:
            await self._wait(ticket)
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, ticket: int) -> None:
        ready = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (ticket, next(self._order), ready))
        try:
            await ready
        except asyncio.CancelledError:
            if ready.done() and not ready.cancelled():
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        while self._waiting:
            _, _, ready = heapq.heappop(self._waiting)
            if not ready.done():
                ready.set_result(None)
                return
        self._free += 1
