"""The parts of one item: begin, what is removed, rows piece by piece, end."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

from psoup.answers import Plan, Question
from psoup.answers.at_once import AtOnce
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
from psoup.answers.difference.nothing_new import nothing_new
from psoup.answers.planning.lookback import lookback
from psoup.answers.planning.question import RegisteredQuery
from psoup.server.call import Call
from psoup.server.calls.sending import Stalls, weighed
from psoup.server.core import Core
from psoup.server.permission import Acting
from psoup.server.sharing.room import SMALL_BYTES, Hold
from psoup.server.sharing.turns import TURN_UNITS
from psoup.server.wire.copies import (
    CopySubject,
    reason_message,
    removed_piece,
    row_part,
    skipped_message,
)
from psoup.server.wire.values import columns_message, from_instant, pattern_message
from psoup.server.wire.zones import zone_message
from psoup.store import Position, State
from psoup.v1 import psoup_pb2 as pb
from psoup.write.interest import Lookback

T = TypeVar("T")

# The next rows, how many they are, and the cursor after them.
Piece: TypeAlias = tuple[pb.SyncPart, int, Cursor]

# What a message costs beside its content.
_FRAME_BYTES = 5
_MAX_REMOVED_WITH_ROWS = 1000


@dataclass(slots=True)
class Budget:
    """Bytes that may still be sent."""

    remaining: int

    @property
    def spent(self) -> bool:
        return self.remaining <= 0

    def spend(self, part: pb.SyncPart) -> None:
        self.remaining -= part.ByteSize() + _FRAME_BYTES


@dataclass(frozen=True, slots=True)
class _Opened:
    """A difference that is about to be sent: the `rows` that must be kept until they are sent, and
    the first piece of rows, if it was made already."""

    difference: Difference
    rows: CopyChunk | None = None
    first: Piece | None = None

    @property
    def nbytes(self) -> int:
        """The bytes that are kept while it is sent, if those are many."""
        difference = self.difference
        ids = int(difference.removed.nbytes) + int(difference.ended.nbytes)
        rows = 0 if self.rows is None else self.rows.nbytes
        piece = 0 if self.first is None else self.first[0].ByteSize()
        nbytes = ids + rows + piece
        return nbytes if nbytes > SMALL_BYTES else 0


@dataclass
class Transfer:
    """One item on its way. `token` is the newest the client was given. Once the registration has
    another query, whatever computes raises TextReplaced.

    `difference` is set once it is computed, and so is the `plan` that it was computed by; before
    that, `plan` is the one that the job was just made with, if any. A transfer is `done` when all
    of it was sent, `interrupted` when it ended before, and `quiet` when it has nothing new for the
    client. One that was `resumed` has the position it was begun with, however much the store has
    taken since.
    """

    core: Core
    call: Call
    encoding: int
    item: pb.SyncItem
    job: CopyJob
    acting: Acting
    subject: CopySubject
    token: bytes = b""
    difference: Difference | None = None
    done: bool = False
    quiet: bool = False
    plan: Plan | None = None
    interrupted: bool = False
    # The rows to send, if they can't be found again piece by piece.
    _kept_rows: CopyChunk | None = None

    async def parts(self, budget: Budget) -> AsyncGenerator[pb.SyncPart, None]:
        """Yield the parts of the item. End after a resume token when the budget is spent. Raise
        what Invoke raises."""
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

    @property
    def more(self) -> bool:
        """Whether the client is to get later refresh points than the one of this transfer."""
        return self.job.more

    def next_point(self) -> Transfer:
        """Return the transfer to the next refresh point, of the copy that this one makes."""
        return replace(
            self, job=self.job.next_point(), difference=None, done=False, quiet=False, plan=None
        )

    def describe(self, attributes: dict[str, str | int]) -> None:
        """Fill in what a trace says of an item."""
        if self.difference is not None:
            attributes["mode"] = "whole" if self.difference.whole else "changes"
            attributes["reason"] = self.difference.reason.name.lower()

    def _drop(self) -> None:
        self._kept_rows = None

    async def _parts(self, budget: Budget, hold: Hold) -> AsyncGenerator[pb.SyncPart, None]:
        async def attempt() -> tuple[Plan, _Opened]:
            quick = self._open_at_once()
            return quick or await self._compute(lambda plan: self._open(plan, budget))

        plan, opened = await weighed(self.call, hold, attempt, lambda computed: computed[1].nbytes)
        difference, first, self._kept_rows = opened.difference, opened.first, opened.rows
        self.difference, self.job = difference, difference.job
        if self.item.window:
            self.core.interest.request(
                (Lookback(*rows) for rows in lookback(plan)), self.call.actor
            )
        self.quiet = difference.nothing and not self.job.claim.target and self._same_now(plan)
        # After a point that others follow, the client waits for the last one.
        self.quiet = self.quiet and (self.more or not self.job.following)
        begin = _begin(plan, difference)
        # A client may take long to read: nothing is kept that pins rows in memory.
        self.plan = plan = plan.released()
        del opened
        labels = "whole" if difference.whole else "changes", difference.reason.name.lower()
        self.core.metrics.begin_sync(*labels)
        yield pb.SyncPart(begin=begin)
        for part in self._removals(difference, budget):
            yield part
        if not self.interrupted:
            async with aclosing(self._rows(first, budget)) as parts:
                async for part in parts:
                    self.core.metrics.send_copy(*labels, part.ByteSize())
                    yield part
        if not self.interrupted:
            yield await self._finish(plan, self.difference)

    def _removals(self, difference: Difference, budget: Budget) -> Iterator[pb.SyncPart]:
        """Ids to remove, with a resume token after each message but the last."""
        removed = difference.removed
        while len(removed):
            part, count = removed_piece(removed, difference.ended, self._room(budget))
            # The ids ascend, so the next one says how many were sent; negative cursors are of
            # removals.
            next_id, removed = int(removed[count - 1]) + 1, removed[count:]
            yield part
            if len(removed) or (difference.lacking and budget.spent):
                yield self._resume(Cursor(-next_id))
                if budget.spent:
                    self.interrupted = True
                    return

    async def _rows(self, first: Piece | None, budget: Budget) -> AsyncGenerator[pb.SyncPart, None]:
        """Yield the lacking rows, with a resume token after each message but the last.

        `first` is the first piece, if it was made with the difference.
        """
        assert self.difference is not None
        remaining, cursor = self.difference.lacking, BEGINNING
        while remaining:
            piece = first or await self._piece(cursor, budget)
            first = None
            if piece is None:
                moved = await self._move_on(cursor)
                # The client was given the mode with `begin`, and can't be given another in the
                # middle.
                if moved is None or moved.whole != self.difference.whole:
                    self.interrupted = True
                    return
                self.difference, self.job, remaining, cursor = (
                    moved,
                    moved.job,
                    moved.lacking,
                    BEGINNING,
                )
                continue
            part, count, cursor = piece
            del piece
            remaining -= count
            yield part
            # A token at or before the client's own cursor would take it back.
            if remaining and cursor > self.job.claim.cursor:
                yield self._resume(cursor)
                if budget.spent:
                    self.interrupted = True
                    return

    def _resume(self, cursor: Cursor) -> pb.SyncPart:
        self.token = self._write(Claim(self.job.claim.copy, self.job.target, cursor))
        return pb.SyncPart(resume=self.token)

    def _room(self, budget: Budget) -> int:
        """Return the bytes of the next message."""
        return max(1, min(self.core.settings.sync_bytes, budget.remaining))

    async def hold_target(self) -> pb.SyncPart:
        """Return a token that keeps the target; if a part of it was sent, the token that says how
        much."""
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
        return self.subject.text

    def _same_now(self, plan: Plan) -> bool:
        """Return whether the client has the present NOW, or does not need it."""
        copy = self.job.claim.copy
        is_current = copy is not None and copy.now == self.job.target.now
        return is_current or by_clock(plan) or not by_rows(plan)

    def _open_at_once(self) -> tuple[Plan, _Opened] | None:
        """Find here that there is nothing new; None if there is, or if that takes a thread."""
        if self.item.every_point:
            self.plan = None
            return None
        at_once = AtOnce()
        plan, self.plan = self.plan, None
        if plan is None:
            plan = self.core.maker.plan(self.core.follower.view, self.job.question)
        difference = nothing_new(self.core.maker, plan, self.job, at_once)
        if at_once.units:
            # Work on the event loop has no turn that would charge it.
            self.core.charge_work(self.call, TURN_UNITS + at_once.units)
        return None if difference is None else (plan, _Opened(difference))

    def _open(self, plan: Plan, budget: Budget) -> _Opened:
        """Find the difference, and its first piece unless removals come before it and take of the
        budget."""
        copier = copier_of(self.core.maker, plan, self.job)
        difference = copier.difference()
        if not difference.lacking:
            return _Opened(difference)
        # Computing the difference may have changed the job, for example to a whole answer.
        copier = copier if difference.job is copier.job else copier.renewed(plan, difference.job)
        rows = copier.buffered()
        # Many removals are sent first and may spend the budget that the piece is cut by.
        if len(difference.removed) > _MAX_REMOVED_WITH_ROWS:
            return _Opened(difference, rows)
        chunk = copier.piece(BEGINNING, self._room(budget))
        return _Opened(difference, rows, self._message(plan, chunk))

    async def _piece(self, cursor: Cursor, budget: Budget) -> Piece | None:
        """Return the next piece, or None if its rows are gone."""
        rows = self._kept_rows

        def make(plan: Plan) -> Piece | None:
            if rows is not None:
                return self._message(plan, rows.after(cursor).cut(self._room(budget)))
            copier = copier_of(self.core.maker, plan, self.job)
            return self._message(plan, copier.piece(cursor, self._room(budget)))

        return (await self._compute(make))[1]

    def _message(self, plan: Plan, chunk: CopyChunk | None) -> Piece | None:
        if chunk is None:
            return None
        part = row_part(chunk, plan.query.columns, self.encoding)
        return part, len(chunk.ids), chunk.cursor

    async def _move_on(self, cursor: Cursor) -> Difference | None:
        """Return the rest of a target at the present NOW, after some of its rows have passed the
        retention. None if a target can't move on; then the next call begins again."""
        sent = max(cursor, self.job.claim.cursor)

        def make(plan: Plan) -> Difference | None:
            if not isinstance(copier_of(self.core.maker, plan, self.job), RowCopier):
                return None
            return RowCopier(self.core.maker, plan, self.job.later(plan.now, sent)).difference()

        return (await self._compute(make))[1]

    async def _compute(self, work: Callable[[Plan], T]) -> tuple[Plan, T]:
        """Do the work in a thread when it is its turn, with a plan of now."""
        first = True

        async def attempt() -> tuple[Plan, T]:
            nonlocal first
            if not first:
                # Its files are gone.
                self.job = replace(self.job, moment=None)
            first = False
            async with self.core.turns.turn(self.call) as turn:
                # Planned once the turn is granted: a plan made before the wait may name files that
                # are gone.
                plan = self.core.maker.plan(self.core.follower.view, self.job.question)
                return plan, await turn.run(work, plan)

        return await self.core.follower.read(attempt)

    def _write(self, claim: Claim) -> bytes:
        return self.core.tokens.write(self.subject, claim, self.acting.binding)

    async def _finish(self, plan: Plan, difference: Difference) -> pb.SyncPart:
        self.done = True
        self.token = self._write(Claim(self.job.target))
        await self.core.leases.renewed(self.item.handle)
        target = self.job.target
        end = pb.SyncEnd(
            token=self.token,
            position=self.core.positions.encode(target.position),
            row_count=difference.row_count,
            digest=difference.digest,
            store_now=from_instant(self.core.follower.now),
            notes=(*plan.notes, *plan.losses) if difference.whole else plan.losses,
            more_points=self.more,
            skipped_points=skipped_message(target.skipped),
        )
        if target.now is not None:
            end.now.CopyFrom(from_instant(target.now))
        lease_until = self.core.leases.until(self.item.handle)
        if lease_until is not None:
            end.lease_until.CopyFrom(from_instant(lease_until))
        if difference.good_until is not None:
            end.good_until.CopyFrom(from_instant(difference.good_until))
        return pb.SyncPart(end=end)


def copy_subject(question: Question, state: State) -> CopySubject:
    """Return the copy of the answer to a question about a registration whose texts were read."""
    source = question.source
    assert isinstance(source, RegisteredQuery) and source.text is not None
    assert question.prepared is not None
    streams = [state.streams[stream_id] for stream_id in question.prepared.stream_ids]
    retained_since = max(stream.retained_since for stream in streams)
    return CopySubject.of(source.handle, source.text, question, retained_since)


def _begin(plan: Plan, difference: Difference) -> pb.SyncBegin:
    begin = pb.SyncBegin(
        continued=difference.job.continued, reason=reason_message(difference.reason)
    )
    if not difference.whole:
        return begin
    begin.mode = pb.SYNC_MODE_WHOLE
    if difference.job.continued:
        return begin
    rows = by_rows(plan)
    begin.columns.extend(columns_message(plan.query.columns))
    begin.pattern = pattern_message(plan.query, plan.schema_of)
    begin.digest_of = pb.DIGEST_OF_UNSPECIFIED if rows else pb.DIGEST_OF_CHECKSUMS
    begin.slides = rows and by_clock(plan)
    begin.keyed = difference.job.question.changes and has_keys(plan)
    begin.combined = difference.job.question.changes and is_combined(plan)
    prepared = difference.job.question.prepared
    begin.zones.extend(map(zone_message, () if prepared is None else prepared.zones))
    return begin
