"""The parts of one item: begin, what is removed, rows piece by piece, end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias, TypeVar

from psoup.answers import Plan, Question
from psoup.answers.difference import (
    BEGINNING,
    Claim,
    Copier,
    CopyJob,
    Cursor,
    Difference,
    ResultCopier,
    RowCopier,
    copier_of,
)
from psoup.answers.difference.job import by_clock, by_rows
from psoup.answers.difference.keys import has_keys
from psoup.answers.looked import looked_at
from psoup.answers.question import RegisteredQuery
from psoup.server.core import Core
from psoup.server.fair_queue import CALLER
from psoup.server.wire.copies import CopySubject, reason_message, removed_piece, row_part
from psoup.server.wire.values import columns_message, from_instant, pattern_message
from psoup.v1 import psoup_pb2 as pb
from psoup.write.interest import Looked

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


@dataclass
class Transfer:
    """One item on its way. `token` is the newest the client was given. Once the registration has
    another query, whatever computes raises TextReplaced.

    `found` is there once the difference is known. A transfer is `done` when all of it was sent,
    `interrupted` when it ended before, and `quiet` when it tells the client nothing it does not
    know.
    """

    core: Core
    encoding: int
    item: pb.SyncItem
    job: CopyJob
    token: bytes = b""
    found: Difference | None = None
    done: bool = False
    quiet: bool = False
    refreshed: bool = False
    interrupted: bool = False

    async def parts(self, budget: Budget) -> AsyncIterator[pb.SyncPart]:
        """Raises what Invoke raises. Ends after a resume token when the budget is spent."""
        self.core.leases.contact(self.item.handle)
        plan, (copier, found, first) = await self._compute(lambda plan: self._open(plan, budget))
        self.found, self.job = found, found.job
        if self.item.window:
            self.core.interest.ask(Looked(*each) for each in looked_at(plan))
        self.refreshed = plan.query.stays
        self.quiet = found.nothing and not self.job.claim.target and self._same_now(plan)
        yield pb.SyncPart(begin=_begin(plan, found))
        for part in self._removals(found, budget):
            yield part
        if not self.interrupted:
            async for part in self._rows(copier, first, budget):
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

    async def _rows(
        self, copier: Copier, first: Piece | None, budget: Budget
    ) -> AsyncIterator[pb.SyncPart]:
        """The lacking rows, with a resume token after each message but the last.

        `first` is the first piece, where it was made with the difference.
        """
        assert self.found is not None
        left, cursor = self.found.lacking, BEGINNING
        while left:
            piece = first or await self._piece(copier, cursor, budget)
            first = None
            if piece is None:
                moved = await self._move_on(copier, cursor)
                if moved is None or moved[1].whole != self.found.whole:
                    self.interrupted = True
                    return
                copier, found = moved
                self.found, self.job, left, cursor = found, found.job, found.lacking, BEGINNING
                continue
            part, count, cursor = piece
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

    def is_behind(self) -> bool:
        """Tells whether there may be something new: rows, a later NOW of theirs, or time enough."""
        state, target = self.core.follower.state, self.job.target
        registration = state.registrations.get(self.item.handle)
        if registration is None or registration.position != self._subject.text:
            return True
        if registration.triggers or self.refreshed:
            return state.position != target.position or self._is_late()
        alone = len(target.legs) == 1 and target.legs[0].current is None
        for leg, known in zip(registration.legs, target.legs, strict=True):
            stream = state.streams[leg.stream_id]
            if stream.dropped or stream.high != known.high:
                return True
            reached = target.now if alone else known.current
            if stream.schema.ordered_by is not None and stream.reached != reached:
                return True
        return self._is_late()

    @cached_property
    def _subject(self) -> CopySubject:
        return copy_subject(self.job.question)

    def _is_late(self) -> bool:
        """Tells whether time alone may have changed the answer."""
        until = self.found.good_until if self.found else None
        return until is not None and self.core.follower.now >= until

    def _same_now(self, plan: Plan) -> bool:
        """Tells whether NOW is where the client thinks it is, or does not matter to it."""
        copy = self.job.claim.copy
        told = copy is not None and copy.now == self.job.target.now
        return told or by_clock(plan) or not by_rows(plan)

    def _open(self, plan: Plan, budget: Budget) -> tuple[Copier, Difference, Piece | None]:
        """Finds the difference, and its first piece unless removals come before it and take of the
        budget."""
        copier = copier_of(self.core.maker, plan, self.job)
        found = copier.difference()
        if not found.lacking or len(found.removed) > _FEW_REMOVED:
            return copier, found, None
        copier = copier if found.job is copier.job else copier.renewed(plan, found.job)
        return copier, found, self._make(plan, copier, BEGINNING, budget)

    async def _piece(self, copier: Copier, cursor: Cursor, budget: Budget) -> Piece | None:
        def make(plan: Plan) -> Piece | None:
            return self._make(plan, copier.renewed(plan, self.job), cursor, budget)

        return (await self._compute(make))[1]

    def _make(self, plan: Plan, copier: Copier, cursor: Cursor, budget: Budget) -> Piece | None:
        """None where the rows are gone."""
        chunk = copier.piece(cursor, self._room(budget))
        if chunk is None:
            return None
        part = row_part(chunk, plan.query.columns, self.encoding)
        return part, len(chunk.ids), chunk.cursor

    async def _move_on(self, copier: Copier, cursor: Cursor) -> tuple[Copier, Difference] | None:
        """Rows of the target have passed the retention: what is left of it at the NOW of now; None
        where a target can't move on, so that the next call begins anew."""
        if not isinstance(copier, RowCopier):
            return None
        sent = max(cursor, self.job.claim.cursor)

        def make(plan: Plan) -> tuple[Copier, Difference]:
            copier = RowCopier(self.core.maker, plan, self.job.later(plan.now, sent))
            return copier, copier.difference()

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
            async with self.core.turns.turn(CALLER.get()) as turn:
                plan = self.core.maker.plan(self.core.follower.view, self.job.question)
                return plan, await turn.run(work, plan)

        return await self.core.follower.read(attempt)

    def _write(self, claim: Claim) -> bytes:
        return self.core.tokens.write(self._subject, claim)

    async def _finish(self, plan: Plan, found: Difference) -> pb.SyncPart:
        self.done = True
        self.token = self._write(Claim(self.job.target))
        await self.core.leases.renewed(self.item.handle)
        target = self.job.target
        end = pb.SyncEnd(
            token=self.token,
            position=self.core.store.positions.encode(target.position),
            row_count=found.row_count,
            digest=found.digest,
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
    return begin
