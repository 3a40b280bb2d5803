"""The fence: what a source does when another process publishes under its name."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable

from psoup.source.errors import AnotherCopy

LOSSES = 3
WINDOW_SECONDS = 60.0
WAIT_SECONDS = 4.0


class CopyFence:
    """Counts lost races for a sequence. The third within a minute stops the source.

    Copies can't harm each other: the store takes each sequence once, and each copy goes on at the
    mark that the store has. After a lost race this one waits, so that the other can work. A
    `standby` never stops: it waits while the other one moves the mark.
    """

    def __init__(self, standby: bool = False) -> None:
        self._standby = standby
        self._losses: deque[float] = deque()

    async def lost(self, sequence: Callable[[], Awaitable[int]]) -> None:
        """Note a lost race, and wait. `sequence` returns the publisher's last one. Raises
        AnotherCopy."""
        now = time.monotonic()
        self._losses.append(now)
        while self._losses and self._losses[0] < now - WINDOW_SECONDS:
            self._losses.popleft()
        if len(self._losses) >= LOSSES and not self._standby:
            raise AnotherCopy("another process runs this source")
        last = await sequence()
        while True:
            # At random, so that two copies that wait for each other do not go on together.
            await asyncio.sleep(WAIT_SECONDS * random.uniform(0.5, 1.5))
            current = await sequence()
            if current == last or not self._standby:
                return
            last = current
