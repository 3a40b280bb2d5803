"""The parts of a running server, put together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from datastem.instants import SECOND
from psoup.answers import AnswerMaker
from psoup.answers.joins.join_limits import JoinLimits
from psoup.server.call import Call
from psoup.server.call_trace import traced_child
from psoup.server.follower import Follower
from psoup.server.group.counts import GroupCounts, LocalCounts, QuotaCounts
from psoup.server.identity import Authenticator, Endings, authenticator
from psoup.server.memory import tidy_up
from psoup.server.metrics import ServerMetrics
from psoup.server.quotas import Quotas
from psoup.server.recent_work import RecentWork
from psoup.server.security_events import SecurityEvents
from psoup.server.settings import Settings
from psoup.server.sharing.precedence import Precedence
from psoup.server.sharing.room import Room
from psoup.server.sharing.turns import Turns
from psoup.server.watches import Watches
from psoup.server.wire.copies import Tokens, read_key
from psoup.store import Entry, RowsErased, Store, WriterMarks
from psoup.store.log.position import PositionCodec
from psoup.store.presence import MachinePresence, Occupancy
from psoup.tracing import Tracing
from psoup.write.appender import Appender
from psoup.write.clock import ClockGuard
from psoup.write.draft import Proposal
from psoup.write.interest import InterestKeeper
from psoup.write.leases import LeaseKeeper
from psoup.write.line import GroupLimits
from psoup.write.log_end import LogEnd
from psoup.write.policies import PolicyKeeper
from psoup.write.timepiece import Timepiece, of_clock, this_machine
from querystem.language import TemplateCache
from results.masking import MASK_BYTES

T = TypeVar("T")

# A server that could not read its folder for so long is not ready.
_UNREAD_SECONDS = 10.0


class Core:
    """The parts of a running server, wired together.

    `clock` is the machine's by default; a function alone is a clock that is never wrong.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        clock: Timepiece | Callable[[], int] | None = None,
    ) -> None:
        # Before anything is read: no process rewrites the store from here on.
        self._occupancy = Occupancy(store.root)
        self._occupancy.enter()
        self.store = store
        self.settings = settings
        timepiece = _timepiece(clock)
        self._presence = MachinePresence(store.root, timepiece.name)
        self._presence.enter()
        self.started = time.monotonic()
        limit, settle = settings.clock_limit * SECOND, settings.clock_settle * SECOND
        self.guard = ClockGuard(timepiece, int(limit), int(settle), self._presence.sees_others)
        # The two need each other: watches ask the follower's clock late, through the lambda.
        self.watches = Watches(lambda: self.follower.now)
        self.follower = Follower(store, settings, self._hear, self.guard.now, self.watches)
        limits = GroupLimits(settings.group_events, settings.group_bytes)
        self.precedence = Precedence()
        self.appender = Appender(
            store.log, self.follower, self.guard, limits, self.precedence.crowds, self._appended
        )
        self.room = Room(self.follower.memory, settings.memory // 2, settings.patience)
        self.answer_room = Room(
            self.follower.memory, settings.memory // 4, settings.patience, "answers"
        )
        joins = JoinLimits(settings.join_pairs, settings.memory // 4, self.follower.memory)
        self.positions = PositionCodec(store.identity, self._writers)
        key = read_key(store, settings.token_key_file)
        self.tokens = Tokens(store.identity, key, self._writers)
        mask = self.tokens.derived("mask", MASK_BYTES)
        self.maker = AnswerMaker(store, settings.memory, settings.compute_rows, joins, mask)
        self.templates = TemplateCache()
        self.log_end = LogEnd(self.appender, self.guard)
        self.leases = LeaseKeeper(self.follower, self.appender, self.guard)
        self.interest = InterestKeeper(self.follower, self.appender)
        counts = _counts(settings)
        self.quotas = Quotas(self.follower, counts)
        self.recent_work = RecentWork()
        lease = settings.policy_lease * SECOND
        self.policies = PolicyKeeper(self.follower, self.appender, self.guard, lease)
        self.maker.policy_used = self.policies.used
        self.turns = Turns(
            settings.workers, self.charge_work, self.precedence, counts.units_of_others
        )
        self.authenticator: Authenticator = authenticator(
            settings.identity,
            lambda: self.follower.state,
            self.guard.now,
            self.follower.catch_up,
        )
        self.endings = Endings(lambda: self.authenticator)
        self.security = SecurityEvents(self.appender.submit)
        self.metrics = ServerMetrics()
        # Set if traces are sent.
        self.tracing: Tracing | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.stopping = False
        self.closing = False

    @property
    def cache_bytes(self) -> int:
        return self.follower.memory.used + self.maker.used

    def _writers(self) -> WriterMarks:
        return self.follower.state.writers

    def lacks(self, for_writing: bool = False) -> list[str]:
        """Return what keeps the server from answering, and from taking rows if it is asked for
        that; nothing if it is ready. An engine is not needed: answers are complete without one."""
        missing = []
        if self.stopping or self.closing:
            missing.append("the server is stopping")
        if self.follower.unread_seconds > _UNREAD_SECONDS:
            missing.append("the store's folder can't be read")
        if for_writing and self.appender.has_failed:
            missing.append("the store's folder can't be written")
        return missing

    async def start(self) -> None:
        """Return when the state is at the tail of the log. Raise StoreError."""
        await self.follower.start()
        self.guard.begin(self.follower.state.clock)
        self._tasks = [
            asyncio.create_task(self.follower.run()),
            asyncio.create_task(self.appender.run()),
            asyncio.create_task(self.leases.run()),
            asyncio.create_task(self.policies.run()),
            asyncio.create_task(tidy_up()),
            asyncio.create_task(self.endings.run()),
            asyncio.create_task(self.security.run()),
        ]

    def _hear(self, entries: Sequence[Entry]) -> None:
        """Take what a commit says of clocks, and forget what was computed from erased rows."""
        if any(isinstance(entry.event, RowsErased) for entry in entries):
            self.maker.forget()
        self.guard.hear(entries)
        self.leases.answer()

    def _appended(self, seconds: float, entries: Sequence[Entry] | None) -> None:
        if entries is None:
            self.metrics.lose_race()
        else:
            self.metrics.append(seconds, entries)

    def close(self) -> None:
        """End the waits of calls for something new."""
        self.closing = True
        self.follower.wake()
        self.watches.end()

    async def stop(self) -> None:
        """Finish what was accepted, then end."""
        self.close()
        # Security events are appended too, so they are handed over before the appender drains.
        await self.security.flush()
        await self.appender.drain()
        # Only after the drain, which needs the appender's own task.
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.watches.stop()
        self.follower.stop()
        self.turns.stop()
        # Last: until here other processes must take the store as in use.
        self._presence.leave()
        self._occupancy.leave()

    async def in_thread(self, call: Call, work: Callable[..., T], *arguments: Any) -> T:
        """Return the outcome of work for a call, done in a thread when it is the call's turn."""
        return await self.turns.run(call, work, *arguments)

    def charge_work(self, call: Call, units: int) -> None:
        """Count units of work that were done for a call. Thread-safe."""
        self.quotas.charge_work(call.tenant, call.owner, units)
        if call.registration is not None:
            self.recent_work.add(call.registration, units)

    async def submit(self, call: Call, proposal: Proposal[T]) -> T:
        """Return when the proposal of a call is durable. Raise what it is refused with."""
        with traced_child(call.trace, "append"):
            return await self.enqueue(call, proposal)

    def enqueue(self, call: Call, proposal: Proposal[T]) -> asyncio.Future[T]:
        """Queue a proposal of a call, in the caller's name. The room of the message at hand stays
        taken until the outcome is known."""
        return self.appender.enqueue(proposal, call.actor, call.hold)


def _counts(settings: Settings) -> QuotaCounts:
    group = settings.group
    if group is None:
        return LocalCounts()
    return GroupCounts(group.descriptor, group.member, group.members)


def _timepiece(clock: Timepiece | Callable[[], int] | None) -> Timepiece:
    if clock is None:
        return this_machine()
    return clock if isinstance(clock, Timepiece) else of_clock(clock)
