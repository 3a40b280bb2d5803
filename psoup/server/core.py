"""The parts of a running server, put together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar

from datastem.instants import SECOND
from psoup.server.appender import Appender
from psoup.server.clockguard import ClockGuard
from psoup.server.follower import Follower
from psoup.server.leases import Leases
from psoup.server.matchfiles import MatchFileCache
from psoup.server.room import Room
from psoup.server.settings import Settings
from psoup.server.shares import CALLER
from psoup.server.summaries import Summaries
from psoup.server.sync.tokens import Tokens, read_key
from psoup.server.tidying import tidy_up
from psoup.server.timepiece import Timepiece, of_clock, this_machine
from psoup.server.turns import Turns
from psoup.server.unregistered import Unregistered
from psoup.store import Store
from psoup.store.repairing import Occupancy
from querystem.language import Shapes
from results.match_cache import MatchCache

T = TypeVar("T")


class Core:
    """`clock` is the machine's by default; a function alone is a clock that is never wrong."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        clock: Timepiece | Callable[[], int] | None = None,
    ) -> None:
        # Before anything is read: nobody rewrites the store from here on.
        self._occupancy = Occupancy(store.root)
        self._occupancy.enter()
        self.store = store
        self.settings = settings
        timepiece = _timepiece(clock)
        self.clock = timepiece.wall
        self.started = time.monotonic()
        limit, settle = settings.clock_limit * SECOND, settings.clock_settle * SECOND
        self.guard = ClockGuard(timepiece, int(limit), int(settle))
        self.follower = Follower(store, settings, self.guard.hear)
        self.appender = Appender(self.follower, settings, self.guard)
        self.room = Room(self.follower.memory, settings.memory // 2, settings.patience)
        self.known = MatchCache(settings.memory // 16)
        self.summaries = Summaries(settings.memory // 16)
        self.match_cache = MatchFileCache(settings.memory // 8)
        self.match_folder = store.table("matches").root
        self.unregistered = Unregistered()
        self.shapes = Shapes()
        self.tokens = Tokens(store.positions.mark, read_key(store, settings.token_key_file))
        self.leases = Leases(self.follower, self.appender, self.guard)
        self.turns = Turns(settings.workers)
        self._tasks: list[asyncio.Task[None]] = []
        self.closing = False

    @property
    def cache_bytes(self) -> int:
        return (
            self.follower.memory.used
            + self.known.used
            + self.summaries.used
            + self.match_cache.used
        )

    async def start(self) -> None:
        """Returns when the state is at the tail of the log. Raises StoreError."""
        await self.follower.start()
        self.guard.begin(self.follower.state.clock)
        self._tasks = [
            asyncio.create_task(self.follower.run()),
            asyncio.create_task(self.appender.run()),
            asyncio.create_task(self.leases.run()),
            asyncio.create_task(tidy_up()),
        ]

    def close(self) -> None:
        """Tells those that wait for something new that there will be nothing."""
        self.closing = True
        self.follower.wake()

    async def stop(self) -> None:
        """Finishes what was taken, then ends."""
        self.close()
        await self.appender.drain()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.follower.stop()
        self.turns.stop()
        self._occupancy.leave()

    async def in_thread(self, work: Callable[..., T], *given: Any) -> T:
        """Computes for the present call, when it is its turn."""
        return await self.turns.run(CALLER.get(), work, *given)


def _timepiece(clock: Timepiece | Callable[[], int] | None) -> Timepiece:
    if clock is None:
        return this_machine()
    return clock if isinstance(clock, Timepiece) else of_clock(clock)
