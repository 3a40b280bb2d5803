"""The end of the log, proved by a commit.

A listing of the folder may be out of date on a network file system. A commit is not: it succeeds
only at the version after the last one. So when it has, no later version was acknowledged before.
"""

from __future__ import annotations

import asyncio
import time

from psoup.write.appender import Appender
from psoup.write.clock import ClockGuard
from psoup.write.leases import TickOnce

# Clients can request proofs, so a server makes at most one in this interval.
PROOF_INTERVAL_SECONDS = 1.0


class LogEnd:
    """Proofs of the log's end, shared by the calls that wait for one."""

    def __init__(self, appender: Appender, guard: ClockGuard) -> None:
        self._appender = appender
        self._guard = guard
        self._proving = asyncio.Lock()
        self._begun = self._proved = 0
        self._next_at = 0.0

    async def prove(self) -> None:
        """Return when a commit has succeeded that began after this call.

        The appender's tail then holds every version that was acknowledged before the call. Raise
        what `Appender.submit` does.
        """
        # Proofs are numbered as they begin. Only one with a higher number begins after this call.
        begun = self._begun
        async with self._proving:
            # Another call's proof that began after this call is as good.
            if self._proved > begun:
                return
            await asyncio.sleep(self._next_at - time.monotonic())
            self._begun = number = self._begun + 1
            self._next_at = time.monotonic() + PROOF_INTERVAL_SECONDS
            # If the commit has other events, the tick is left out, and the commit proves as much.
            await self._appender.submit(TickOnce(self._guard, after=0))
            self._proved = number
