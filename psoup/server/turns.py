"""Whose turn it is to compute, chunk by chunk.

So many turns run at once as there are slots, each in a thread of its own. When one has done a chunk
of work it gives its slot to whoever is next, which may be itself (`shares`). One slot is kept for
first chunks, so that a small call is not held up by long ones, however many there are: what it
waits for is a chunk, not a call. Work for somebody who has gone ends with its chunk.

A client that is slow to read does not ask for a turn, so it holds up nobody.
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
from psoup.server.fair_queue import CHUNK, Queue, Rank, Share, pop_first, rank_of
from psoup.server.precedence import Precedence
from querystem.pace import paced

T = TypeVar("T")

# What a turn costs beside its work.
TURN_UNITS = CHUNK // 100
# A turn that has begun keeps its thread while it waits: so many in all, and of one caller.
_MOST_BEGUN = 256
_MOST_OF_CALLER = 16
# Seconds that a turn works before it steps back: less is not worth the waking.
_LEAST_WORK = 0.002


class Cut(Exception):
    """Nobody waits for this work any more."""


class Turns:
    """Hands out turns: at most `slots` run at once, one of them for first chunks only. For one
    event loop.

    `charge` is told the units that somebody of a tenant took. `chunks` counts those that have
    ended. `_lock` is held for a moment only, never by work.
    """

    def __init__(
        self,
        slots: int,
        charge: Callable[[str, str, int], None] = lambda tenant, owner, units: None,
        precedence: Precedence | None = None,
    ) -> None:
        self._charge = charge
        self._precedence = precedence or Precedence()
        self._precedence.resume = self._go_on
        self._lock = threading.Lock()
        self.pool = ThreadPoolExecutor(_MOST_BEGUN + slots, "answer")
        self._root = Share()
        self._present: set[Turn] = set()
        # Those that have not begun; those of callers with much begun; those that have begun.
        self._new: Queue[Turn] = Queue()
        self._crowded: Queue[Turn] = Queue()
        self._begun: Queue[Turn] = Queue()
        self._free = max(1, slots - 1)
        self._room = 1
        self._stopped: ServerError | None = None
        self.chunks = 0

    @contextlib.asynccontextmanager
    async def turn(self, call: Call) -> AsyncIterator[Turn]:
        """Waits for a slot and holds it until the work given to the turn has ended, or the context
        where it was given none. Raises Stopping."""
        turn = Turn(self, call)
        try:
            await turn.granted()
            yield turn
        except asyncio.CancelledError:
            turn.cut(Cut())
            raise
        finally:
            turn.leave()

    async def run(self, call: Call, work: Callable[..., T], *given: Any) -> T:
        """Do the work in a thread when it is the call's turn."""
        async with self.turn(call) as turn:
            return await turn.run(work, *given)

    def stop(self) -> None:
        """Ends everything that waits or runs with its chunk, and takes nothing new."""
        with self._lock:
            self._stopped = Stopping("the server is stopping", hint="ask another server")
            present = list(self._present)
        for turn in present:
            turn.cut(self._stopped)
        self.pool.shutdown(wait=False)

    async def ended(self) -> None:
        """Returns when nothing waits or runs."""
        while self._present:
            await asyncio.sleep(0.01)

    @property
    def running(self) -> int:
        """How many hold a slot."""
        return self._root.running

    @property
    def waiting(self) -> int:
        """How many wait for one."""
        return len(self._present) - self._root.running

    @property
    def stopped(self) -> bool:
        return self._stopped is not None

    def _go_on(self) -> None:
        """Somebody who rested may be next."""
        with self._lock:
            self._hand_out()

    # ---- for turns, under the lock

    def steps_back(self, turn: Turn) -> bool:
        """Tells whether a turn is to give its slot away before its chunk is done: it is one of
        many of its tenant, while others have a few calls under way."""
        worked = self._precedence.clock() - turn.since
        return worked >= _LEAST_WORK and self._precedence.crowds(turn.call.tenant)

    def enter(self, turn: Turn) -> None:
        with self._lock:
            if self._stopped is not None:
                raise self._stopped
            turn.tenant = self._root.enter(turn.call.tenant)
            turn.share = turn.tenant.enter(turn.call.peer)
            self._present.add(turn)
            self._new.push(turn)
            self._hand_out()

    def chunk_done(self, turn: Turn) -> bool:
        """Takes the slot of a turn that has more to do; whether it has it back at once."""
        with self._lock:
            self._take_back(turn)
            self._count_begun(turn, 1)
            self._begun.push(turn)
            self._hand_out()
            return turn.slot is not None

    def leave(self, turn: Turn) -> None:
        """A turn is over, unless it works: then it is when the work has ended."""
        with self._lock:
            if not turn.working:
                self._remove(turn)

    def work_ended(self, turn: Turn) -> None:
        """The work of a turn has ended."""
        with self._lock:
            turn.working = False
            self._remove(turn)

    def _remove(self, turn: Turn) -> None:
        if turn.left:
            return
        turn.left = True
        self._present.remove(turn)
        self._take_back(turn)
        self._count_begun(turn, -1)
        turn.tenant.present -= 1
        turn.share.present -= 1
        self._hand_out()

    def _take_back(self, turn: Turn) -> None:
        if turn.slot is None:
            return
        self.chunks += 1
        self._precedence.worked(turn.call.tenant, turn.since)
        for share in (turn.tenant, turn.share):
            share.served += turn.units
            share.running -= 1
        self._charge(turn.call.tenant, turn.call.owner, turn.units)
        self._root.running -= 1
        self._free += turn.slot == "any"
        self._room += turn.slot == "first"
        turn.slot, turn.units = None, 0

    def _count_begun(self, turn: Turn, change: int) -> None:
        if turn.begun != (change > 0):
            turn.begun = change > 0
            turn.share.begun += change
            self._root.begun += change

    def _hand_out(self) -> None:
        """Gives what slots there are to who is next."""
        while self._free and (turn := self._next(any_turn=True)):
            self._free -= 1
            self._grant(turn, "any")
        while self._room and (turn := self._next(any_turn=False)):
            self._room -= 1
            self._grant(turn, "first")

    def _next(self, any_turn: bool) -> Turn | None:
        while (head := self._new.head(self._rests)) and head.share.begun >= _MOST_OF_CALLER:
            self._new.pop(head)
            self._crowded.push(head)
        queues = [self._begun] if any_turn else []
        if self._root.begun < _MOST_BEGUN:
            queues += [self._new, self._crowded] if any_turn else [self._new]
        return pop_first(queues, self._rests)

    def _rests(self, tenant: Share) -> bool:
        """Tells whether it is not a tenant's time: one turn of a tenant that crowds runs at once
        while others have calls under way."""
        precedence = self._precedence
        return precedence.rests(tenant.name) or (
            tenant.running > 0 and precedence.crowds(tenant.name)
        )

    def _grant(self, turn: Turn, slot: str) -> None:
        self._root.choose(turn.tenant)
        turn.tenant.choose(turn.share)
        self._root.running += 1
        turn.slot, turn.since = slot, self._precedence.clock()
        turn.wake()


class Turn:
    """One piece of work, which may be many chunks. Made on the event loop.

    `slot` is which kind of slot it holds, if any; `units` are those of its chunk. It has `begun`
    when it has done a chunk and has more to do; is `working` while a thread is at it; and has
    `left` when it is over.
    """

    tenant: Share
    share: Share

    def __init__(self, turns: Turns, call: Call) -> None:
        """Raises Stopping."""
        self._turns = turns
        self.call = call
        self.slot: str | None = None
        self.since = 0.0
        self.units = TURN_UNITS
        self.begun = self.working = self.left = False
        self._loop = asyncio.get_running_loop()
        self._come: asyncio.Future[None] | None = None
        self._ready = threading.Event()
        self._over: Exception | None = None
        turns.enter(self)

    @property
    def rank(self) -> Rank:
        return rank_of(self.share, self.call.ticket)

    # ---- on the event loop

    async def granted(self) -> None:
        """Returns when the turn has come. Raises what it was cut with."""
        if self.slot is None:
            self._come = self._loop.create_future()
            # It may have been woken before there was a future.
            if not self._ready.is_set():
                await self._come
        if self._over is not None:
            raise self._over

    async def run(self, work: Callable[..., T], *given: Any) -> T:
        """Works in a thread, once. Raises what the work raises, or what the turn was cut with."""
        if self._over is not None:
            raise self._over
        done: asyncio.Future[T] = self._loop.create_future()
        self.working = True
        self._turns.pool.submit(self._work, done, work, given)
        return await done

    def leave(self) -> None:
        self._turns.leave(self)

    # ---- in any thread

    def cut(self, error: Exception) -> None:
        """Ends the work with its chunk, and its waiting at once."""
        self._over = self._over or error
        self.wake()

    def wake(self) -> None:
        self._ready.set()
        if self._come is not None:
            self._settle(self._come)

    def _settle(self, future: asyncio.Future[Any], *outcome: Any) -> None:
        # After its end a loop takes nothing, and nobody waits there.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(_settle, future, *outcome)

    # ---- in the thread of the work

    def spend(self, units: int) -> None:
        """Counts work; where that makes a chunk, another may be next. Raises what ends it."""
        self.units += units
        if self.units >= CHUNK or self._turns.steps_back(self):
            self._ready.clear()
            self._check()
            if not self._turns.chunk_done(self):
                self._ready.wait()
            self._check()

    def _check(self) -> None:
        if self._over is not None:
            raise self._over
        until = self.call.deadline
        if until is not None and time.monotonic() >= until:
            raise OutOfTime("the deadline of the call has passed", hint="call with a longer one")

    def _work(
        self, done: asyncio.Future[T], work: Callable[..., T], given: tuple[Any, ...]
    ) -> None:
        result, error = None, None
        try:
            self._check()
            with paced(self.spend):
                result = work(*given)
        except BaseException as problem:
            error = problem
        self._turns.work_ended(self)
        self._settle(done, result, error)


def _settle(
    future: asyncio.Future[Any], result: Any = None, error: BaseException | None = None
) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
