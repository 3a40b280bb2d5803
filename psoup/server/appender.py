"""Appends to the log: what arrives together is validated in order and becomes one synced commit.

The state is read up to the tail before anything is validated, and the commit is compare-and-set:
whoever loses the race reads what won, validates again, and tries again. So a refusal is as true
as an acceptance.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from psoup.server.clockguard import ClockGuard
from psoup.server.draft import Chain, Draft, Moment
from psoup.server.errors import AfterFailure, ClockAhead, DiskFull, Stopping, StorageFailed
from psoup.server.follower import Follower
from psoup.server.room import HOLD, Hold
from psoup.server.settings import Settings
from psoup.server.tail import Rows, decode_rows
from psoup.store import Conflict, Hole, State

log = logging.getLogger("psoup.server")

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class Proposal(Protocol[T_co]):
    """Something to append. May be asked several times, each time over a newer state."""

    @property
    def nbytes(self) -> int: ...

    @property
    def chain(self) -> Chain | None: ...

    def propose(self, draft: Draft) -> T_co:
        """Appends its events and returns what to answer once they are durable.

        Raises before its first event where it must be refused.
        """


@dataclass(slots=True)
class _Waiting:
    """`hold` is the room of the request, which stays taken until its outcome is known."""

    proposal: Proposal[Any]
    future: asyncio.Future[Any]
    hold: Hold | None


class Appender:
    def __init__(self, follower: Follower, settings: Settings, guard: ClockGuard) -> None:
        self._follower = follower
        self._settings = settings
        self._guard = guard
        self._queue: asyncio.Queue[_Waiting] = asyncio.Queue()
        self._kept: _Waiting | None = None
        self.stopping = False

    async def submit(self, proposal: Proposal[T]) -> T:
        """Returns when the proposal's events are durable. A cancelled caller's may still be."""
        return await self.enqueue(proposal)

    def enqueue(self, proposal: Proposal[T]) -> asyncio.Future[T]:
        """Proposals are appended in the order of this call."""
        if self.stopping:
            raise Stopping("the server is stopping; try another, or again later")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        hold = HOLD.get()
        if hold is not None:
            hold.retain()
        self._queue.put_nowait(_Waiting(proposal, future, hold))
        return future

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            group = await self._gather()
            try:
                await self._commit(group)
            except Exception as error:
                _deliver(group, [error] * len(group))
            for _ in group:
                self._queue.task_done()

    async def drain(self) -> None:
        """Takes nothing new, and returns when what was taken is done."""
        self.stopping = True
        await self._queue.join()

    async def _gather(self) -> list[_Waiting]:
        group = [self._kept or await self._queue.get()]
        self._kept = None
        size = group[0].proposal.nbytes
        while len(group) < self._settings.group_events and not self._queue.empty():
            waiting = self._queue.get_nowait()
            size += waiting.proposal.nbytes
            if size > self._settings.group_bytes:
                self._kept = waiting
                break
            group.append(waiting)
        return group

    async def _commit(self, group: list[_Waiting]) -> None:
        follower = self._follower
        while True:
            await follower.catch_up()
            moment = self._moment()
            draft = Draft(follower.state.draft(), follower.version + 1, moment, follower.recent)
            outcomes = [_propose(waiting.proposal, draft) for waiting in group]
            if not draft.empty:
                try:
                    appended = await asyncio.to_thread(self._append, draft, follower.state)
                except Conflict:
                    continue
                follower.apply(draft.version, draft.entries, *appended)
            break
        _deliver(group, outcomes)

    def _moment(self) -> Moment:
        """Raises ClockAhead where this server's clock must not get into the log."""
        guard, last = self._guard, self._follower.state.clock
        problem = guard.problem()
        if problem:
            raise ClockAhead(f"nothing was taken: {problem}", hint="ask another server meanwhile")
        clock = guard.timepiece.wall()
        stamp = max(clock, last)
        return Moment(stamp, guard.timepiece.name, clock, guard.jump(last, stamp))

    def _append(self, draft: Draft, state: State) -> tuple[Rows, int]:
        """The rows of the commit, and the size of its file."""
        rows = decode_rows(draft.entries, state)
        if any(isinstance(found, Hole) for found in rows.values()):
            raise StorageFailed("a batch changed in this server's memory; nothing was taken")
        try:
            nbytes = self._follower.store.log.append(draft.version, draft.entries)
        except OSError as error:
            log.error("could not append to the log: %s", error)
            raise _storage_error(error) from error
        return rows, nbytes


def _propose(proposal: Proposal[Any], draft: Draft) -> Any:
    """What the proposal answers, or the error it is refused with."""
    chain = proposal.chain
    try:
        if chain is not None and (chain.broken or chain in draft.broken):
            raise AfterFailure("an earlier batch of this call was refused; this one was not taken")
        return proposal.propose(draft)
    except Exception as error:
        if chain is not None:
            draft.broken.add(chain)
        return error


def _deliver(group: list[_Waiting], outcomes: list[Any]) -> None:
    for waiting, outcome in zip(group, outcomes, strict=True):
        failed = isinstance(outcome, Exception)
        if waiting.hold is not None:
            waiting.hold.release()
        if failed and waiting.proposal.chain is not None:
            waiting.proposal.chain.broken = True
        if waiting.future.done():
            continue
        if failed:
            waiting.future.set_exception(outcome)
        else:
            waiting.future.set_result(outcome)


def _storage_error(error: OSError) -> Exception:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT) or "errno 28" in str(error).lower()
    if full:
        return DiskFull(
            "the store's disk is full; nothing was taken", hint="free space, then send it again"
        )
    return StorageFailed(
        f"the store could not be written: {error}", hint="send it again with the same sequence"
    )
