"""Whose message is next to be taken up on the event loop.

What a call does before it waits for something, and a small answer as a whole, happens on the event
loop in one go. So of many messages that have come a few are taken up at a time, in turns by tenant:
a flood of one is taken up as fast as ever where nobody else is there, and delays the message of
another by a few.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque

# Messages that are taken up before the loop looks at everything else that is ready.
_AT_ONCE = 4


class Starts:
    """Messages that wait to be taken up, by what they share. For one event loop."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._started = 0

    async def turn(self, sharing: str) -> None:
        """Returns when the next message of a tenant, or of a connection, may be taken up."""
        loop = asyncio.get_running_loop()
        if not self._started:
            loop.call_soon(self._go_on, loop)
        if self._started < _AT_ONCE and not self._waiting:
            self._started += 1
            return
        self._started = max(1, self._started)
        future: asyncio.Future[None] = loop.create_future()
        self._waiting.setdefault(sharing, deque()).append(future)
        await future

    def _go_on(self, loop: asyncio.AbstractEventLoop) -> None:
        self._started = 0
        while self._waiting and self._started < _AT_ONCE:
            name, line = next(iter(self._waiting.items()))
            future = line.popleft()
            self._waiting.move_to_end(name)
            if not line:
                del self._waiting[name]
            if not future.done():
                future.set_result(None)
                self._started += 1
        if self._started:
            loop.call_soon(self._go_on, loop)
