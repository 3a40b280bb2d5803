"""The appender: proposals that wait together are validated in order and become one synced commit.

The state is read up to the tail before anything is validated, and the commit is compare-and-set. A
server that loses the race reads the commit that won, validates again and retries. So a refusal is
as reliable as an acceptance.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from psoup.errors import (
    AfterFailure,
    ClockAhead,
    ClockUnconfirmed,
    DiskFull,
    Stopping,
    StorageFailed,
)
from psoup.store import Conflict, Entry, Hole, Log, State
from psoup.store.log.decoding import DecodedRows, decode_rows
from psoup.write.clock import ClockGuard
from psoup.write.conditions import NO_NEW_ROWS, NewRows
from psoup.write.draft import Actor, CommitDraft, Moment, Proposal, RecentBatches
from psoup.write.line import GroupLimits, ProposalLine
from psoup.write.new_rows import KeyedTail, read_new_rows

log = logging.getLogger("psoup.write")

T = TypeVar("T")

# How long a server waits for the clock of another machine, and how often it checks for it.
_ANSWER_SECONDS = 10.0
_ANSWER_POLL_SECONDS = 0.01
# A commit that could not be written counts against a server for so long.
_FAILED_SECONDS = 30.0


class LogTail(KeyedTail, Protocol):
    """The state at the end of the log, as far as it was read; a server's follower is one.

    `version` is the last commit that `state` holds, `recent` caches digests of recent batches.
    """

    @property
    def recent(self) -> RecentBatches: ...

    async def catch_up(self) -> None:
        """Return when every commit that existed at the call is applied."""

    def apply(self, version: int, entries: Sequence[Entry], rows: DecodedRows, nbytes: int) -> None:
        """Apply the next commit, whose file has `nbytes` bytes; ignore one that is applied."""

    def appending(self) -> AbstractContextManager[None]:
        """Announce that the next commit is being written, and will be applied."""


class MemoryHold(Protocol):
    """Memory reserved for a request; freed when every `retain` was matched by a `release`."""

    def retain(self) -> None: ...

    def release(self) -> None: ...


@dataclass(slots=True)
class _Waiting:
    proposal: Proposal[Any]
    future: asyncio.Future[Any]
    hold: MemoryHold | None
    actor: Actor | None


class Appender:
    """Makes commits of the proposals that wait, those of one tenant in the order they arrived.

    `steps_back` returns True for a tenant whose proposals yield to those of others. `report` gets
    the seconds of each commit and its entries, or None if another server was faster.
    """

    def __init__(
        self,
        log: Log,
        tail: LogTail,
        guard: ClockGuard,
        limits: GroupLimits,
        steps_back: Callable[[str], bool] = lambda tenant: False,
        report: Callable[[float, Sequence[Entry] | None], None] = lambda seconds, entries: None,
    ) -> None:
        self._log = log
        self._tail = tail
        self._guard = guard
        self._line: ProposalLine[_Waiting] = ProposalLine(limits, steps_back)
        self._report = report
        self._failed_at: float | None = None
        self.stopping = False

    @property
    def has_failed(self) -> bool:
        """Whether the last commit could not be written. That counts for a while: the cause may be
        gone."""
        failed_at = self._failed_at
        return failed_at is not None and time.monotonic() - failed_at < _FAILED_SECONDS

    async def submit(
        self, proposal: Proposal[T], actor: Actor | None = None, hold: MemoryHold | None = None
    ) -> T:
        """Return the proposal's outcome when its events are durable; raise what it is refused with.

        If the caller is cancelled, the events may be appended all the same.
        """
        return await self.enqueue(proposal, actor, hold)

    def enqueue(
        self, proposal: Proposal[T], actor: Actor | None = None, hold: MemoryHold | None = None
    ) -> asyncio.Future[T]:
        """Queue a proposal and return the future of its outcome.

        Proposals of one tenant, and of one chain, are appended in the order of these calls. `actor`
        is the caller that the log names. `hold` is the memory of the request, which is kept until
        the outcome is delivered.
        """
        if self.stopping:
            raise Stopping("the server is stopping; try another, or again later")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if hold is not None:
            hold.retain()
        self._line.put(_Waiting(proposal, future, hold, actor))
        return future

    async def run(self) -> None:
        """Append what is queued, until cancelled."""
        while True:
            group = await self._line.group()
            try:
                await self._commit(group)
            except Exception as error:
                # The whole group fails, and the next one is tried: the cause may be gone by then.
                _deliver(group, [error] * len(group))
            self._line.done(len(group))

    async def drain(self) -> None:
        """Refuse new proposals, and return when the queued ones are done."""
        self.stopping = True
        await self._line.join()

    async def _commit(self, group: list[_Waiting]) -> None:
        tail = self._tail
        while True:
            await tail.catch_up()
            if self._guard.is_asked and self._guard.problem():
                # A server with a wrong clock can't tick. It states its clock, so that the other
                # need not wait.
                await self._append_clock(asks=False)
                continue
            if self._guard.must_ask(tail.state.clock):
                await self._compare_clocks()
            new_rows = await read_new_rows(tail, (waiting.proposal for waiting in group))
            draft = self._draft(self._moment(), new_rows)
            outcomes = [_propose(waiting, draft) for waiting in group]
            # If another server was faster, every proposal is validated again over its commit.
            if draft.empty or await self._write(draft):
                break
        _deliver(group, outcomes)

    def _draft(self, moment: Moment, new_rows: NewRows = NO_NEW_ROWS) -> CommitDraft:
        tail = self._tail
        return CommitDraft(tail.state.draft(), tail.version + 1, moment, tail.recent, new_rows)

    async def _write(self, draft: CommitDraft) -> bool:
        """Append a draft and apply it; return False if another server was faster."""
        tail, began = self._tail, time.monotonic()
        try:
            # In a thread, since the append waits for the disk.
            with tail.appending():
                appended = await asyncio.to_thread(self._append, draft, tail.state)
        except Conflict:
            self._report(time.monotonic() - began, None)
            return False
        except (StorageFailed, DiskFull):
            self._failed_at = time.monotonic()
            raise
        self._failed_at = None
        self._report(time.monotonic() - began, appended[0])
        tail.apply(draft.version, *appended)
        return True

    async def _append_clock(self, asks: bool) -> bool:
        """Append this machine's clock; return False if another server was faster."""
        # With the last stamp and no server's clock, the entry moves no stamp and confirms no jump.
        draft = self._draft(Moment(self._tail.state.clock, "", None))
        draft.append("", "", self._guard.statement(asks))
        return await self._write(draft)

    async def _compare_clocks(self) -> None:
        """Ask the servers of other machines, if any are present, for their clocks.

        Return when one has answered. Raise ClockUnconfirmed if none answers in time.
        """
        guard, tail, loop = self._guard, self._tail, asyncio.get_running_loop()
        try:
            if not await asyncio.to_thread(guard.sees_others):
                return
        except OSError as error:
            raise _storage_error(error) from error
        deadline, has_asked = loop.time() + _ANSWER_SECONDS, False
        while guard.must_ask(tail.state.clock):
            if not has_asked:
                # After a lost race the question is not in the log yet, and is asked again.
                has_asked = await self._append_clock(asks=True)
            elif loop.time() >= deadline:
                raise ClockUnconfirmed(
                    "nothing was accepted: this server's clock is far past the last event, and no "
                    "server of another machine has confirmed it yet",
                    hint="try again, or another server; or set this clock right",
                )
            else:
                await asyncio.sleep(_ANSWER_POLL_SECONDS)
            await tail.catch_up()

    def _moment(self) -> Moment:
        """Return the time of the next commit. Raise ClockAhead if this server's clock must not be
        written to the log."""
        guard, last = self._guard, self._tail.state.clock
        problem = guard.problem()
        if problem:
            raise ClockAhead(
                f"nothing was accepted: {problem}", hint="use another server until then"
            )
        clock = guard.timepiece.wall()
        # Stamps never fall, even if this clock is behind that of the last commit.
        stamp = max(clock, last)
        return Moment(stamp, guard.timepiece.name, clock, guard.jump(last, stamp))

    def _append(self, draft: CommitDraft, state: State) -> tuple[Sequence[Entry], DecodedRows, int]:
        """Write the commit; return its entries, its rows and the size of its file."""
        rows = decode_rows(draft.entries, state)
        # The digest of a payload is checked here: memory errors must not reach the log.
        if any(isinstance(decoded, Hole) for decoded in rows.values()):
            raise StorageFailed("a batch changed in this server's memory; nothing was accepted")
        try:
            entries, nbytes = self._log.append(draft.version, draft.entries)
        except OSError as error:
            log.error("could not append to the log: %s", error)
            raise _storage_error(error) from error
        return entries, rows, nbytes


def _propose(waiting: _Waiting, draft: CommitDraft) -> Any:
    """Return the outcome of one proposal, or the error that it is refused with."""
    proposal, draft.actor = waiting.proposal, waiting.actor
    chain = proposal.chain
    try:
        if chain is not None and (chain.broken or chain in draft.broken):
            raise AfterFailure(
                "an earlier batch of this call was refused; this one was not accepted"
            )
        return proposal.propose(draft)
    except Exception as error:
        if chain is not None:
            # In the draft only: after a lost race the same proposals are validated again.
            draft.broken.add(chain)
        return error


def _deliver(group: list[_Waiting], outcomes: list[Any]) -> None:
    """Set the futures of a group; an outcome that is an exception is raised in its caller."""
    for waiting, outcome in zip(group, outcomes, strict=True):
        failed = isinstance(outcome, Exception)
        if waiting.hold is not None:
            waiting.hold.release()
        if failed and waiting.proposal.chain is not None:
            # Later batches of the chain may be in line already, for a later commit.
            waiting.proposal.chain.broken = True
        if waiting.future.done():
            # The caller was cancelled.
            continue
        if failed:
            waiting.future.set_exception(outcome)
        else:
            waiting.future.set_result(outcome)


def _storage_error(error: OSError) -> Exception:
    # Arrow reports a full disk without errno.
    full = error.errno in (errno.ENOSPC, errno.EDQUOT) or "errno 28" in str(error).lower()
    if full:
        return DiskFull(
            "the store's disk is full; nothing was accepted", hint="free space, then send it again"
        )
    return StorageFailed(
        f"the store could not be written: {error}", hint="send it again with the same sequence"
    )
