"""Turns to compute: whose work runs next, chunk by chunk.

A number of turns run at once, each in a thread of its own and in a slot. A turn that has done a
chunk of work gives its slot to the next one, which may be itself (`shares`). One slot is for first
chunks only. So a small call waits for a chunk, never for a long call, however many of these run.
Work for a client that has gone ends with its chunk.

A client that is slow to read does not ask for a turn, so it delays no other.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from psoup.errors import OutOfTime, ServerError, Stopping
from psoup.server.call import Call
from psoup.server.sharing.precedence import Precedence
from psoup.server.sharing.shares import CHUNK_UNITS, Rank, Share
from psoup.tenant_queue import QueuePlace, TenantQueue
from querystem.pace import paced

T = TypeVar("T")

# What a turn costs beside its work.
TURN_UNITS = CHUNK_UNITS // 100
# A turn that has begun keeps its thread while it waits: the most of all callers, and of one.
_MAX_BEGUN = 256
_MAX_BEGUN_PER_CALLER = 16
# A turn works for at least this long before it steps back: less is not worth waking a thread.
_MIN_WORK_SECONDS = 0.002
_POLL_SECONDS = 0.01


class Cut(Exception):
    """The client of this work has gone."""


class Turns:
    """Turns of at most `slots` at once, one of them for first chunks only. For one event loop.

    `charge` is called with a call and the units of work that were done for it. `units_of_others`
    takes the units that were done for a tenant, and returns those that other servers of a group
    have done for it since: they count as done here.
    `chunks` counts those that have ended. `_lock` is held for a moment only, never by work.
    """

    def __init__(
        self,
        slots: int,
        charge: Callable[[Call, int], None] = lambda call, units: None,
        precedence: Precedence | None = None,
        units_of_others: Callable[[str, int], int] = lambda tenant, units: 0,
    ) -> None:
        self._charge = charge
        self._units_of_others = units_of_others
        self._precedence = precedence or Precedence()
        self._precedence.resume = self._resume
        self._lock = threading.Lock()
        self.pool = ThreadPoolExecutor(_MAX_BEGUN + slots, "answer")
        self._root = Share()
        self._present: set[Turn] = set()
        # Turns that have not begun; those of callers that have many begun; those that have begun.
        self._new: TenantQueue[Turn] = TenantQueue(_rank)
        self._crowded: TenantQueue[Turn] = TenantQueue(_rank)
        self._begun: TenantQueue[Turn] = TenantQueue(_rank)
        self._free_slots = max(1, slots - 1)
        self._free_first_slots = 1
        self._stopped: ServerError | None = None
        self.chunks = 0

    @contextlib.asynccontextmanager
    async def turn(self, call: Call) -> AsyncIterator[Turn]:
        """Wait for a slot, and hold it until the work of the turn has ended, or the context if it
        was given none. Raise Stopping."""
        turn = Turn(self, call)
        try:
            with call.queuing():
                await turn.granted()
            yield turn
        except asyncio.CancelledError:
            # The thread can't be interrupted; it raises this at the end of its chunk.
            turn.cut(Cut())
            raise
        finally:
            self._leave(turn)

    async def run(self, call: Call, work: Callable[..., T], *arguments: Any) -> T:
        """Do the work in a thread when it is the call's turn."""
        async with self.turn(call) as turn:
            return await turn.run(work, *arguments)

    def stop(self) -> None:
        """End everything that waits or runs with its chunk, and take nothing new."""
        with self._lock:
            self._stopped = Stopping("the server is stopping", hint="ask another server")
            # `enter` checks `_stopped` under the same lock, so no turn is in between.
            present = list(self._present)
        for turn in present:
            turn.cut(self._stopped)
        self.pool.shutdown(wait=False)

    async def ended(self) -> None:
        """Return when nothing waits or runs."""
        while self._present:
            await asyncio.sleep(_POLL_SECONDS)

    @property
    def running(self) -> int:
        """The number of turns that hold a slot."""
        return self._root.running

    @property
    def waiting(self) -> int:
        """The number of turns that wait for a slot."""
        return len(self._present) - self._root.running

    # ---- for turns, in any thread

    def enter(self, turn: Turn) -> None:
        with self._lock:
            if self._stopped is not None:
                raise self._stopped
            turn.tenant_share = self._root.enter(turn.tenant)
            units_of_others = self._units_of_others(turn.tenant, 0)
            # An idle tenant starts at the current minimum, whatever was done for it elsewhere.
            if turn.tenant_share.present > 1:
                turn.tenant_share.units += units_of_others
            turn.share = turn.tenant_share.enter(turn.call.peer)
            self._present.add(turn)
            turn.place = self._new.push(turn.tenant, turn)
            self._hand_out()

    def steps_back(self, turn: Turn) -> bool:
        """Return whether a turn has to give its slot away before its chunk is done: it is one of
        many of its tenant, while others have a few calls under way."""
        seconds = self._precedence.clock() - turn.began_at
        return seconds >= _MIN_WORK_SECONDS and self._precedence.crowds(turn.tenant)

    def end_chunk(self, turn: Turn) -> bool:
        """Take the slot of a turn that has more to do; return whether it has it back at once."""
        with self._lock:
            self._take_back(turn)
            self._set_begun(turn, True)
            turn.place = self._begun.push(turn.tenant, turn)
            self._hand_out()
            return turn.slot is not None

    def end_work(self, turn: Turn) -> None:
        """Note that the work of a turn has ended."""
        with self._lock:
            turn.is_working = False
            self._remove(turn)

    def _leave(self, turn: Turn) -> None:
        """End a turn, unless it works: then it ends with its work."""
        with self._lock:
            if not turn.is_working:
                self._remove(turn)

    def _resume(self) -> None:
        """Look again which turn is next: a tenant may have rested for long enough."""
        with self._lock:
            self._hand_out()

    # ---- under the lock

    def _remove(self, turn: Turn) -> None:
        if turn not in self._present:
            return
        self._present.remove(turn)
        turn.place.leave()
        self._take_back(turn)
        self._set_begun(turn, False)
        turn.tenant_share.present -= 1
        turn.share.present -= 1
        self._hand_out()

    def _take_back(self, turn: Turn) -> None:
        if turn.slot is None:
            return
        self.chunks += 1
        self._precedence.worked(turn.tenant, turn.began_at)
        for share in (turn.tenant_share, turn.share):
            share.units += turn.units
            share.running -= 1
        turn.tenant_share.units += self._units_of_others(turn.tenant, turn.units)
        self._charge(turn.call, turn.units)
        self._root.running -= 1
        self._free_slots += turn.slot == "any"
        self._free_first_slots += turn.slot == "first"
        turn.slot, turn.units = None, 0

    def _set_begun(self, turn: Turn, begun: bool) -> None:
        change = begun - turn.has_begun
        turn.has_begun = begun
        turn.share.begun += change
        self._root.begun += change

    def _hand_out(self) -> None:
        """Give the free slots to the turns that are next."""
        # Ordinary slots first: the reserved one stays free for a small call as long as possible.
        while self._free_slots and (turn := self._next(any_turn=True)):
            self._free_slots -= 1
            self._grant(turn, "any")
        while self._free_first_slots and (turn := self._next(any_turn=False)):
            self._free_first_slots -= 1
            self._grant(turn, "first")

    def _next(self, any_turn: bool) -> Turn | None:
        # Turns of a caller that already keeps many threads never get the slot for first chunks.
        while (head := self._head(self._new)) and head.share.begun >= _MAX_BEGUN_PER_CALLER:
            head.place.leave()
            head.place = self._crowded.push(head.tenant, head)
        queues = [self._begun] if any_turn else []
        # A new turn may turn out long and then keeps its thread, so begun turns are bounded here.
        if self._root.begun < _MAX_BEGUN:
            queues += [self._new, self._crowded] if any_turn else [self._new]
        heads = [head for queue in queues if (head := self._head(queue)) is not None]
        if not heads:
            return None
        # Between tenants the smallest share is next; ranks only order the callers of one tenant.
        turn = min(heads, key=lambda head: (head.tenant_share.charged_units, head.rank))
        turn.place.leave()
        return turn

    def _head(self, queue: TenantQueue[Turn]) -> Turn | None:
        """Return the first turn of the tenant with the smallest share, of those that do not rest;
        None if all of them rest."""
        shares = self._root.inner
        ready = (tenant for tenant in queue if not self._rests(tenant))
        tenant = min(ready, key=lambda tenant: shares[tenant].charged_units, default=None)
        return None if tenant is None else queue.head(tenant)

    def _rests(self, tenant: str) -> bool:
        """Return whether a tenant has to wait: while others have calls under way, one turn of a
        crowding tenant runs at a time."""
        precedence = self._precedence
        is_running = self._root.inner[tenant].running > 0
        return precedence.rests(tenant) or (is_running and precedence.crowds(tenant))

    def _grant(self, turn: Turn, slot: str) -> None:
        self._root.choose(turn.tenant_share)
        turn.tenant_share.choose(turn.share)
        self._root.running += 1
        turn.slot, turn.began_at = slot, self._precedence.clock()
        turn.wake()


class Turn:
    """One piece of work, which may be many chunks. Made on the event loop.

    `slot` is the kind of slot that it holds, or None; `units` are those of its chunk. A turn
    `has_begun` if it has done a chunk and has more to do, and `is_working` while a thread is at it.
    `place` is the last that it had in a queue.
    """

    tenant_share: Share
    share: Share
    place: QueuePlace[Turn]

    def __init__(self, turns: Turns, call: Call) -> None:
        """Raise Stopping."""
        self._turns = turns
        self.call = call
        self.tenant = call.tenant
        self.slot: str | None = None
        self.began_at = 0.0
        self.units = TURN_UNITS
        self.has_begun = self.is_working = False
        self._loop = asyncio.get_running_loop()
        self._granted: asyncio.Future[None] | None = None
        self._ready = threading.Event()
        self._cut: Exception | None = None
        turns.enter(self)

    @property
    def rank(self) -> Rank:
        return self.share.rank(self.call.ticket)

    # ---- on the event loop

    async def granted(self) -> None:
        """Return when the turn has a slot. Raise what it was cut with."""
        if self.slot is None:
            self._granted = self._loop.create_future()
            # It may have been woken before there was a future.
            if not self._ready.is_set():
                await self._granted
        if self._cut is not None:
            raise self._cut

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """Work in a thread, once. Raise what the work raises, or what the turn was cut with."""
        if self._cut is not None:
            raise self._cut
        done: asyncio.Future[T] = self._loop.create_future()
        self.is_working = True
        # A thread is free: the pool has one for each slot and for each turn that has begun.
        self._turns.pool.submit(self._work, done, work, arguments)
        return await done

    # ---- in any thread

    def cut(self, error: Exception) -> None:
        """End the work with its chunk, or the wait at once."""
        self._cut = self._cut or error
        self.wake()

    def wake(self) -> None:
        self._ready.set()
        if self._granted is not None:
            self._settle(self._granted)

    def _settle(self, future: asyncio.Future[Any], *outcome: Any) -> None:
        # A loop that has ended takes nothing, and no call waits there.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(_settle, future, *outcome)

    # ---- in the thread of the work

    def spend(self, units: int) -> None:
        """Count work; after a chunk another turn may be next. Raise what ends the work."""
        self.units += units
        if self.units >= CHUNK_UNITS or self._turns.steps_back(self):
            # Cleared before the slot is given up: the next grant may come from another thread at
            # once. A cut that was cleared with it is seen by the check.
            self._ready.clear()
            self._check()
            if not self._turns.end_chunk(self):
                self._ready.wait()
            self._check()

    def _check(self) -> None:
        if self._cut is not None:
            raise self._cut
        deadline = self.call.deadline
        if deadline is not None and time.monotonic() >= deadline:
            raise OutOfTime("the deadline of the call has passed", hint="call with a longer one")

    def _work(
        self, done: asyncio.Future[T], work: Callable[..., T], arguments: tuple[Any, ...]
    ) -> None:
        result, error = None, None
        try:
            self._check()
            with paced(self.spend):
                result = work(*arguments)
        except BaseException as problem:
            error = problem
        # The slot is free before the caller goes on, which may ask for its next turn at once.
        self._turns.end_work(self)
        self._settle(done, result, error)


def _rank(turn: Turn) -> Rank:
    return turn.rank


def _settle(
    future: asyncio.Future[Any], result: Any = None, error: BaseException | None = None
) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
