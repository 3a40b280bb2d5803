"""The parts of one item: begin, what is removed, rows piece by piece, end."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias, TypeVar

from psoup.answers import Plan, Question
from psoup.answers.difference import (
    BEGINNING,
    Claim,
    CopyChunk,
    CopyJob,
    Cursor,
    Difference,
    ResultCopier,
    RowCopier,
    copier_of,
)
from psoup.answers.difference.job import by_clock, by_rows
from psoup.answers.difference.keys import has_keys, is_combined
from psoup.answers.planning.lookback import lookback
from psoup.answers.planning.question import RegisteredQuery
from psoup.server.call import Call
from psoup.server.calls.sending import Stalls, weighed
from psoup.server.core import Core
from psoup.server.permission import Acting
from psoup.server.sharing.room import SMALL_BYTES, Hold
from psoup.server.wire.copies import CopySubject, reason_message, removed_piece, row_part
from psoup.server.wire.values import columns_message, from_instant, pattern_message
from psoup.store import Position
from psoup.v1 import psoup_pb2 as pb
from psoup.write.interest import Lookback

T = TypeVar("T")

# The next rows, how many they are, and the cursor after them.
Piece: TypeAlias = tuple[pb.SyncPart, int, Cursor]

# What a message costs beside its content.
_FRAME = 5
_FEW_REMOVED = 1000


@dataclass(slots=True)
class Budget:
    """Bytes that may still be sent."""

    left: int

    @property
    def spent(self) -> bool:
        return self.left <= 0

    def spend(self, part: pb.SyncPart) -> None:
        self.left -= part.ByteSize() + _FRAME


@dataclass(frozen=True, slots=True)
class _Opened:
    """A difference that is about to be sent: the rows that must be `held` until they are sent, and
    the first piece of rows, if it was made already."""

    found: Difference
    held: CopyChunk | None = None
    first: Piece | None = None

    @property
    def nbytes(self) -> int:
        """The bytes that are kept while it is sent, if those are many."""
        found = self.found
        ids = int(found.removed.nbytes) + int(found.ended.nbytes)
        rows = 0 if self.held is None else self.held.nbytes
        piece = 0 if self.first is None else self.first[0].ByteSize()
        nbytes = ids + rows + piece
        return nbytes if nbytes > SMALL_BYTES else 0


@dataclass
class Transfer:
    """One item on its way. `token` is the newest the client was given. Once the registration has
    another query, whatever computes raises TextReplaced.

    `found` is there once the difference is known, and so is the `plan` that it was found by. A
    transfer is `done` when all of it was sent, `interrupted` when it ended before, and `quiet` when
    it tells the client nothing it does not know. One that was `resumed` has the position it was
    begun with, however much the store has taken since.
    """

    core: Core
    call: Call
    encoding: int
    item: pb.SyncItem
    job: CopyJob
    acting: Acting
    token: bytes = b""
    found: Difference | None = None
    done: bool = False
    quiet: bool = False
    plan: Plan | None = None
    interrupted: bool = False
    # The rows to send, if they can't be found again piece by piece.
    _held: CopyChunk | None = None

    async def parts(self, budget: Budget) -> AsyncGenerator[pb.SyncPart, None]:
        """Raises what Invoke raises. Ends after a resume token when the budget is spent."""
        self.core.leases.contact(self.item.handle, self.call.actor)
        hold = self.core.answer_room.hold(self.call.tenant)
        try:
            with Stalls(hold, self._drop) as stalls:
                async with aclosing(self._parts(budget, hold)) as parts:
                    async for part in parts:
                        stalls.begin()
                        yield part
                        stalls.end()
        finally:
            self._drop()
            hold.release()

    def _drop(self) -> None:
        self._held = None

    async def _parts(self, budget: Budget, hold: Hold) -> AsyncGenerator[pb.SyncPart, None]:
        async def attempt() -> tuple[Plan, _Opened]:
            return await self._compute(lambda plan: self._open(plan, budget))

        plan, opened = await weighed(self.call, hold, attempt, lambda found: found[1].nbytes)
        found, first, self._held = opened.found, opened.first, opened.held
        self.found, self.job = found, found.job
        if self.item.window:
            self.core.interest.request(
                (Lookback(*rows) for rows in lookback(plan)), self.call.actor
            )
        self.quiet = found.nothing and not self.job.claim.target and self._same_now(plan)
        begin = _begin(plan, found)
        # A client may take long to read: nothing is kept that pins rows in memory.
        self.plan = plan = plan.released()
        del opened
        yield pb.SyncPart(begin=begin)
        for part in self._removals(found, budget):
            yield part
        if not self.interrupted:
            async with aclosing(self._rows(first, budget)) as parts:
                async for part in parts:
                    yield part
        if not self.interrupted:
            yield await self._finish(plan, self.found)

    def _removals(self, found: Difference, budget: Budget) -> Iterator[pb.SyncPart]:
        """Ids to remove, with a resume token after each message but the last."""
        removed = found.removed
        while len(removed):
            part, count = removed_piece(removed, found.ended, self._room(budget))
            next_id, removed = int(removed[count - 1]) + 1, removed[count:]
            yield part
            if len(removed) or (found.lacking and budget.spent):
                yield self._resume(Cursor(-next_id))
                if budget.spent:
                    self.interrupted = True
                    return

    async def _rows(self, first: Piece | None, budget: Budget) -> AsyncGenerator[pb.SyncPart, None]:
        """The lacking rows, with a resume token after each message but the last.

        `first` is the first piece, where it was made with the difference.
        """
        assert self.found is not None
        left, cursor = self.found.lacking, BEGINNING
        while left:
            piece = first or await self._piece(cursor, budget)
            first = None
            if piece is None:
                found = await self._move_on(cursor)
                if found is None or found.whole != self.found.whole:
                    self.interrupted = True
                    return
                self.found, self.job, left, cursor = found, found.job, found.lacking, BEGINNING
                continue
            part, count, cursor = piece
            del piece
            left -= count
            yield part
            if left and cursor > self.job.claim.cursor:
                yield self._resume(cursor)
                if budget.spent:
                    self.interrupted = True
                    return

    def _resume(self, cursor: Cursor) -> pb.SyncPart:
        self.token = self._write(Claim(self.job.claim.copy, self.job.target, cursor))
        return pb.SyncPart(resume=self.token)

    def _room(self, budget: Budget) -> int:
        """The bytes of the next message."""
        return max(1, min(self.core.settings.sync_bytes, budget.left))

    async def held(self) -> pb.SyncPart:
        """A token that holds the target; where some of it was sent, the one that says how much."""
        if self.job.continued:
            self.token = self.item.token
            return pb.SyncPart(resume=self.token)
        if self.job.moment is not None:
            _, target = await self._compute(
                lambda plan: ResultCopier(self.core.maker, plan, self.job).target
            )
            self.job = replace(self.job, target=target, moment=None)
        return self._resume(BEGINNING)

    @property
    def resumed(self) -> bool:
        return self.job.claim.target is not None

    @property
    def text(self) -> Position:
        """The position of the event that gave the registration the text that was read."""
        return self._subject.text

    @cached_property
    def _subject(self) -> CopySubject:
        return copy_subject(self.job.question)

    def _same_now(self, plan: Plan) -> bool:
        """Tells whether NOW is where the client thinks it is, or does not matter to it."""
        copy = self.job.claim.copy
        told = copy is not None and copy.now == self.job.target.now
        return told or by_clock(plan) or not by_rows(plan)

    def _open(self, plan: Plan, budget: Budget) -> _Opened:
        """Finds the difference, and its first piece unless removals come before it and take of the
        budget."""
        copier = copier_of(self.core.maker, plan, self.job)
        found = copier.difference()
        if not found.lacking:
            return _Opened(found)
        copier = copier if found.job is copier.job else copier.renewed(plan, found.job)
        held = copier.buffered()
        if len(found.removed) > _FEW_REMOVED:
            return _Opened(found, held)
        chunk = copier.piece(BEGINNING, self._room(budget))
        return _Opened(found, held, self._message(plan, chunk))

    async def _piece(self, cursor: Cursor, budget: Budget) -> Piece | None:
        """None where the rows are gone."""
        held = self._held

        def make(plan: Plan) -> Piece | None:
            if held is not None:
                return self._message(plan, held.after(cursor).cut(self._room(budget)))
            copier = copier_of(self.core.maker, plan, self.job)
            return self._message(plan, copier.piece(cursor, self._room(budget)))

        return (await self._compute(make))[1]

    def _message(self, plan: Plan, chunk: CopyChunk | None) -> Piece | None:
        if chunk is None:
            return None
        part = row_part(chunk, plan.query.columns, self.encoding)
        return part, len(chunk.ids), chunk.cursor

    async def _move_on(self, cursor: Cursor) -> Difference | None:
        """Rows of the target have passed the retention: what is left of it at the NOW of now; None
        where a target can't move on, so that the next call begins anew."""
        sent = max(cursor, self.job.claim.cursor)

        def make(plan: Plan) -> Difference | None:
            if not isinstance(copier_of(self.core.maker, plan, self.job), RowCopier):
                return None
            return RowCopier(self.core.maker, plan, self.job.later(plan.now, sent)).difference()

        return (await self._compute(make))[1]

    async def _compute(self, work: Callable[[Plan], T]) -> tuple[Plan, T]:
        """Does the work in a thread when it is its turn, with a plan of now."""
        first = True

        async def attempt() -> tuple[Plan, T]:
            nonlocal first
            if not first:
                # Its files are gone.
                self.job = replace(self.job, moment=None)
            first = False
            async with self.core.turns.turn(self.call) as turn:
                plan = self.core.maker.plan(self.core.follower.view, self.job.question)
                return plan, await turn.run(work, plan)

        return await self.core.follower.read(attempt)

    def _write(self, claim: Claim) -> bytes:
        return self.core.tokens.write(self._subject, claim, self.acting.binding)

    async def _finish(self, plan: Plan, found: Difference) -> pb.SyncPart:
        self.done = True
        self.token = self._write(Claim(self.job.target))
        await self.core.leases.renewed(self.item.handle)
        target = self.job.target
        end = pb.SyncEnd(
            token=self.token,
            position=self.core.positions.encode(target.position),
            row_count=found.row_count,
            digest=found.digest,
            store_now=from_instant(self.core.follower.now),
            notes=(*plan.notes, *plan.losses) if found.whole else plan.losses,
        )
        if target.now is not None:
            end.now.CopyFrom(from_instant(target.now))
        lease_until = self.core.leases.until(self.item.handle)
        if lease_until is not None:
            end.lease_until.CopyFrom(from_instant(lease_until))
        if found.good_until is not None:
            end.good_until.CopyFrom(from_instant(found.good_until))
        return pb.SyncPart(end=end)


def copy_subject(question: Question) -> CopySubject:
    """The copy of the answer to a question about a registration whose texts were read."""
    source = question.source
    assert isinstance(source, RegisteredQuery) and source.text is not None
    return CopySubject.of(source.handle, source.text, question)


def _begin(plan: Plan, found: Difference) -> pb.SyncBegin:
    begin = pb.SyncBegin(continued=found.job.continued, reason=reason_message(found.reason))
    if not found.whole:
        return begin
    begin.mode = pb.SYNC_MODE_WHOLE
    if found.job.continued:
        return begin
    rows = by_rows(plan)
    begin.columns.extend(columns_message(plan.query.columns))
    begin.pattern = pattern_message(plan.query, plan.schema_of)
    begin.digest_of = pb.DIGEST_OF_UNSPECIFIED if rows else pb.DIGEST_OF_CHECKSUMS
    begin.slides = rows and by_clock(plan)
    begin.keyed = found.job.question.changes and has_keys(plan)
    begin.combined = found.job.question.changes and is_combined(plan)
    return begin
