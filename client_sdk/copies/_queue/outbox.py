"""The outbox: batches published offline wait in the file, and are sent exactly once, in order.

One batch is sent at a time. It keeps its sequence until the store has acknowledged it; the
acknowledgement and the batch's end in the queue are one transaction. So after any crash, and for
any number of processes at once, the same batch is sent with the same sequence, and the store takes
it once.

If the store refuses a batch for good it is put aside, and its sequence goes to the next. Only the
store the file belongs to can do that, and its refusals carry its id: whatever else answers, the
batch keeps waiting. If the store has taken it after all, in an earlier attempt whose answer was
lost, the sequence is used up, and the store says so. Then, and whenever else the numbers are not
what the file expects (a store or a file from a back-up), the queue continues under a new name from
1.

A batch is doubtful if the store may have taken it and can't be asked: it took the sequence but no
longer knows with which rows, or the batch may have been sent for another owner, or with a sequence
that the store does not know any more. A repeat under one identity never is: the next batch is sent
only when this one is acknowledged, and the store always knows the rows of a publisher's last
sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Literal, TypeAlias

from client_sdk import _flows
from client_sdk._async_client import AsyncClient
from client_sdk._client import Client
from client_sdk._exceptions import (
    ConnectionFailed,
    CopyError,
    InvalidRequest,
    NotFound,
    PreconditionFailed,
    PsoupError,
    RowConflict,
    RowProblem,
    Timeout,
)
from client_sdk._grpc.effects import Flow, Repeat
from client_sdk._session import Session
from client_sdk._wire.models import Stream, is_unverified
from client_sdk._wire.rows import Rows, deletes, patches, to_table
from client_sdk._wire.status import StoreLimits
from client_sdk.copies._file.clock import DeviceClock
from client_sdk.copies._file.file import CopyFile
from client_sdk.copies._file.home import Home, cached_stream, home_of, learn, visit
from client_sdk.copies._queue import batches, conflicts, erased, problems
from client_sdk.copies._queue.aside import PutAside
from client_sdk.copies._queue.batches import Doubtful, Queued, Rejected, Room, Sent
from client_sdk.copies._queue.conflicts import EditConflict
from client_sdk.copies._queue.queue import QUEUE_BYTES, Queue
from client_sdk.copies._queue.table import Waiting
from psoup.v1 import psoup_pb2 as pb


class Outbox:
    """The half of Copies that publishes. Only methods that take a client need a connection."""

    def __init__(
        self, file: CopyFile, queue_bytes: int = QUEUE_BYTES, clock: DeviceClock | None = None
    ) -> None:
        self._file = file
        self._clock = clock or DeviceClock()
        self._queue = Queue(file, queue_bytes)
        self._put_aside = PutAside(file)
        self._asked_at: int | None = None

    def publish(
        self, stream: str, rows: Rows, *, expected: Literal["seen"] | None = None
    ) -> int | None:
        """Queue one batch, and return its number, or None if it has no rows. It is on the disk
        then.

        Rows are as for `Client.publish`. If the stream is known from the last contact they are
        checked at once, otherwise when they are sent. A row of a stream with arrival time gets its
        ts when the store takes it. Until then, and until the next sync, no copy has the rows.

        With `expected="seen"` each row may replace only the row of its key that the copies show
        now; if the store has another one, the batch becomes one of `conflicts`. This needs a copy
        of the stream that was kept with `edits` and synced. A row may also have an `_expected` of
        its own: a row id, or -1 for none. A batch that expects rows is never cut.
        """
        if expected not in (None, "seen"):
            raise ValueError(f"expected is 'seen' or None, not {expected!r}")
        with self._file.reading() as connection:
            description, home = cached_stream(connection, stream), home_of(connection)
        # Tables and frames have columns. Other rows may come from a generator, which can be read
        # only once.
        if not hasattr(rows, "columns"):
            rows = rows if isinstance(rows, Mapping | str | bytes) else list(rows)
        if description is None and expected:
            raise ValueError(
                f"the columns of {stream} are not known: sync a copy of it, or learn it"
            )
        if description is None:
            return self._queue.put(stream, batches.unchecked(rows))
        limits = StoreLimits() if home is None else home.limits
        room = Room.of(limits, limits.message_bytes)
        if expected:
            return self._queue.put_as_seen(description, to_table(rows, description), room)
        pieces = batches.checked(rows, description, room)
        batches.require_room(pieces, room)
        return self._queue.put(stream, pieces)

    def patch(
        self,
        stream: str,
        rows: Iterable[Mapping[str, Any]],
        *,
        expected: Literal["seen"] | None = None,
    ) -> int | None:
        """Queue a batch that sets some columns of keys, given as for `Client.patch`.

        The other columns are those of the row that is current when the store takes the batch. So
        two devices that patch different columns of a row offline both have their way.
        """
        return self.publish(stream, patches(rows), expected=expected)

    def delete(self, stream: str, keys: Iterable[Mapping[str, Any]]) -> int | None:
        """Queue a batch that deletes keys of a keyed stream, given as for `Client.delete`."""
        return self.publish(stream, deletes(keys))

    def heartbeat(self, stream: str, instant: datetime) -> int | None:
        """Queue a heartbeat: NOW of an event-time stream moves to `instant`, if that is later."""
        return self._queue.put(stream, [batches.heartbeat(instant)])

    @property
    def queued(self) -> Queued:
        """Counts of what waits."""
        return self._queue.state()

    @property
    def rejected(self) -> list[Rejected]:
        """The batches that the store refused for good. They stay until requeued or discarded."""
        return self._put_aside.rejected()

    @property
    def conflicts(self) -> list[EditConflict]:
        """The edits that would have replaced a row which their editor has not seen.

        They are among `rejected`, and stay until they are resolved, dropped or requeued.
        """
        return conflicts.conflicts(self._file)

    def resolve(self, batch: int, rows: Rows) -> int:
        """Queue rows in the place of a conflict, which may replace `theirs` of it. Return the
        number of the new batch.

        If the store has yet another row when it is sent, it is a conflict again. Edits that wait
        behind the conflict are queued again, and become conflicts by themselves: they were made
        without a look at these rows. Raises ValueError if that batch is no conflict.
        """
        with self._file.reading() as connection:
            home = home_of(connection)
        limits = StoreLimits() if home is None else home.limits
        room = Room.of(limits, limits.message_bytes)
        with self._file.writing(durable=True) as connection:
            return conflicts.resolve(connection, batch, rows, room)

    def take_theirs(self, batch: int) -> None:
        """Drop the edits of a conflict, and leave the row that is in the store.

        Edits that wait behind it are queued again, and become conflicts by themselves. Raises
        ValueError if that batch is no conflict.
        """
        with self._file.writing(durable=True) as connection:
            conflicts.take_theirs(connection, batch)

    @property
    def doubtful(self) -> list[Doubtful]:
        """The batches that may be in the store or not. They stay until resent or discarded."""
        return self._put_aside.doubtful()

    def requeue(self, batch: int | None = None) -> int:
        """Put a refused batch, or with None all, at the end of the queue. Return the number of
        pieces.

        Raises ValueError if that batch was not refused.
        """
        return self._put_aside.requeue(batch)

    def resend(self, batch: int | None = None) -> int:
        """Put a doubtful batch, or with None all, at the end of the queue. Return the number of
        pieces.

        It is sent like one that was never sent: if it is in the store, it will be there twice.
        Raises ValueError if that batch is not doubtful.
        """
        return self._put_aside.resend(batch)

    def discard(self, batch: int | None = None) -> int:
        """Delete a refused or doubtful batch, or with None all refused ones. Return the number of
        pieces.

        Raises ValueError if that batch is neither.
        """
        return self._put_aside.discard(batch)

    def send(self, client: Client, *, on_conflict: OnConflict | None = None) -> Sent:
        """Send what waits, in order, each batch exactly once.

        Batches that are refused for good are put aside and named in the result. Any other error is
        raised; batches sent before it are out of the queue, the rest keeps waiting.

        `on_conflict` is called with each conflict. The rows that it returns are queued in its place
        as by `resolve`; no rows, an empty list, drop it as `take_theirs` does; None leaves it in
        `conflicts`.
        """
        return client._run(self._sending(client._session, on_conflict))

    async def send_async(
        self, client: AsyncClient, *, on_conflict: OnConflict | None = None
    ) -> Sent:
        """Send with an AsyncClient, as `send` does."""
        return await client._run(self._sending(client._session, on_conflict))

    def learn(self, client: Client, stream: str) -> Stream:
        """Return the description of a stream, and note it, so that rows are checked as they are
        queued.
        """
        return client._run(learn(client._session, self._file, stream))

    async def learn_async(self, client: AsyncClient, stream: str) -> Stream:
        """Learn a stream with an AsyncClient, as `learn` does."""
        return await client._run(learn(client._session, self._file, stream))

    @property
    def store_id(self) -> str | None:
        """The id of the store the file belongs to; None before the first contact."""
        with self._file.reading() as connection:
            home = home_of(connection)
        return None if home is None else home.store_id

    def move(self, client: Client) -> str:
        """Make the file belong to the store of `client`, and return the id of that store.

        Waiting batches are sent there from now on, under a new name, also those that the store
        before may have taken without an acknowledgement. The next sync replaces the copies.
        """
        return client._run(visit(client._session, self._file, move=True)).store_id

    async def move_async(self, client: AsyncClient) -> str:
        """Move the file with an AsyncClient, as `move` does."""
        home = await client._run(visit(client._session, self._file, move=True))
        return home.store_id

    def known_stream(self, stream: str) -> Stream | None:
        """Return a stream as it was at the last contact; None if there was none."""
        with self._file.reading() as connection:
            return cached_stream(connection, stream)

    def _sending(self, session: Session, on_conflict: OnConflict | None) -> Flow[Sent]:
        return self._run(session, on_conflict).all()

    def _run(self, session: Session, on_conflict: OnConflict | None) -> Sending:
        decide = None if on_conflict is None else partial(self._decide, on_conflict)
        return Sending(session, self._file, self._queue, self._clock, decide)

    def _decide(self, on_conflict: OnConflict, batch: int) -> bool:
        """Ask what to do about the conflict of a batch, and do it; return False if it stays."""
        [conflict] = [conflict for conflict in self.conflicts if conflict.batch == batch]
        rows = on_conflict(conflict)
        if rows is None:
            return False
        if len(rows):
            self.resolve(batch, rows)
        else:
            self.take_theirs(batch)
        return True

    def _sent(self, session: Session, on_conflict: OnConflict | None) -> Flow[Sent]:
        """Send in a sync, which continues if the store answers but does not take a batch."""
        run = self._run(session, on_conflict)
        try:
            sent = yield from run.all()
        except (ConnectionFailed, Timeout, CopyError):
            # With these the sync itself can't continue either.
            raise
        except PsoupError as error:
            return replace(run.sent, error=error)
        yield from self._forgetting(run)
        return sent

    def _forgetting(self, run: Sending) -> Flow[None]:
        """Ask at times about what was put aside before. Only a sync does: it needs the store
        anyway."""
        now = self._clock.micros()
        if not erased.is_due(self._file, self._asked_at, now):
            return
        try:
            yield from run.forgetting()
        except (ConnectionFailed, Timeout, CopyError):
            raise
        except PsoupError:
            # The next sync asks again.
            return
        self._asked_at = now


_SEQUENCE_GAP = "SEQUENCE_GAP"
_SEQUENCE_REASONS = frozenset({_SEQUENCE_GAP, "SEQUENCE_REUSED"})
# Returns what to do about a conflict: rows in its place, no rows to drop it, None to leave it.
OnConflict: TypeAlias = Callable[[EditConflict], Rows | None]

# Refusals by the state of the store that do not pass by themselves.
_FINAL_REASONS = frozenset(
    {
        "UNKNOWN_STREAM",
        "STREAM_DROPPED",
        "CONFLICT_ROW",
        "NOT_CURRENT",
        "NO_CURRENT_ROW",
        "ERASED",
    }
)
# Refusals of the publisher's name, not of the batch.
_SENDER_REASONS = frozenset({"BAD_NAME", "NAME_TOO_LONG"})
# Conflicts of one send that the application is asked about. A row that others edit all the time
# must not keep a send from ending.
_MOST_DECISIONS = 1000
# A store that already has sequences of each new random name is broken.
_MOST_NEW_NAMES = 3


class Sending:
    """One send. `sent` counts what it has done so far.

    `decide` is called with the batch of a conflict, and returns whether it was decided.
    """

    def __init__(
        self,
        session: Session,
        file: CopyFile,
        queue: Queue,
        clock: DeviceClock,
        decide: Callable[[int], bool] | None = None,
    ) -> None:
        self._clock = clock
        self._decide = decide
        self._decisions = 0
        self._streams: dict[str, Stream] = {}
        self._session = session
        self._file = file
        self._queue = queue
        self._names = 0
        self.sent = Sent()

    def all(self) -> Flow[Sent]:
        """Send until nothing waits. Raises the error of a batch that can't be sent; it keeps
        waiting.
        """
        home = None
        while (waiting := self._queue.first()) is not None:
            # The store is asked only if something waits, and only once.
            home = home or (yield from visit(self._session, self._file))
            yield from self._send_piece(waiting, home)
        return self.sent

    def forgetting(self) -> Flow[None]:
        """Ask the store which keys of what was put aside were erased, and forget their values."""
        home = yield from visit(self._session, self._file)
        yield from erased.asking(self._session, self._file, home)

    def _send_piece(self, waiting: Waiting, home: Home) -> Flow[None]:
        room = Room.of(home.limits, self._session.max_message_bytes)
        if not waiting.whole:
            self._reject(waiting, problems.damaged(waiting))
            return
        if waiting.tried_otherwise:
            self._doubt(waiting, problems.sent_otherwise(waiting))
            return
        if waiting.piece.is_conditional and (held := self._queue.hold_back(waiting)):
            self._note_rejected(held)
            return
        try:
            if not waiting.piece.checked:
                yield from self._check(waiting, room)
            elif room.holds(waiting.piece):
                yield from self._publish(waiting, home)
            else:
                self._cut(waiting, room)
        except PsoupError as error:
            # A proxy or another store must not decide what happens to a batch.
            is_own_store = error.detail.store_id == home.store_id
            if is_own_store and error.reason == _SEQUENCE_GAP and waiting.tried:
                # The store does not know how far this publisher was: it is from a back-up and has
                # not taken the batch, or the publisher was forgotten and it may have.
                self._doubt(waiting, error)
            elif is_own_store and error.reason in _SEQUENCE_REASONS:
                self._rename(waiting, error)
            elif is_own_store and _is_final(error):
                self._reject(waiting, error)
            else:
                raise

    def _check(self, waiting: Waiting, room: Room) -> Flow[None]:
        """Check rows that were queued before their stream was known."""
        stream = yield from learn(self._session, self._file, waiting.stream)
        try:
            pieces = batches.checked(batches.rows_of(waiting.piece), stream, room)
        except RowProblem as problem:
            self._reject(waiting, problem)
        else:
            self._queue.replace(waiting, pieces)

    def _cut(self, waiting: Waiting, room: Room) -> None:
        """Cut a batch because the store takes less than when it was queued."""
        if waiting.tried:
            self._doubt(waiting, problems.too_large_now(waiting, room))
        elif waiting.piece.row_count <= 1 or waiting.piece.is_conditional:
            self._reject(waiting, batches.too_large(waiting.piece, room))
        else:
            table = batches.rows_of(waiting.piece)
            self._queue.replace(waiting, batches.fitted(table, room))

    def _publish(self, waiting: Waiting, home: Home) -> Flow[None]:
        if waiting.piece.is_conditional:
            stream = yield from self._learn(waiting.stream)
            if self._queue.void(waiting, (home.store_id, stream.id)):
                return
        if not self._queue.trying(waiting):
            return
        # Tenant and owner are named: a credential that changes now must not make it another's.
        request = pb.PublishRequest(
            tenant=home.tenant,
            owner=home.owner,
            stream=waiting.stream,
            publisher=waiting.publisher,
            sequence=waiting.sequence,
        )
        batches.fill(request, waiting.piece)
        reply, again = yield from _flows.call(self._session, "Publish", request, Repeat.SAFE)
        if is_unverified(reply):
            self._doubt(waiting, problems.forgotten(waiting))
            return
        at = self._clock.micros()
        self._queue.acknowledge(waiting, reply.position, reply.first_row_id, at)
        self._session.wrote(reply.position, fresh=again or not reply.duplicate)
        self._session.acknowledge(reply.position)
        self.sent = replace(
            self.sent,
            batches=self.sent.batches + 1,
            rows=self.sent.rows + reply.row_count,
            duplicates=self.sent.duplicates + reply.duplicate,
        )

    def _learn(self, name: str) -> Flow[Stream]:
        """Return a stream as it is now, or was since this send began."""
        if name not in self._streams:
            self._streams[name] = yield from learn(self._session, self._file, name)
        return self._streams[name]

    def _rename(self, waiting: Waiting, error: PsoupError) -> None:
        if self._queue.rename(waiting):
            self._names += 1
            if self._names > _MOST_NEW_NAMES:
                raise error

    def _reject(self, waiting: Waiting, error: PsoupError) -> None:
        rejected = self._queue.reject(waiting, error)
        if rejected and isinstance(error, RowConflict) and self._decisions < _MOST_DECISIONS:
            self._decisions += 1
            # What was decided waits again, or is dropped.
            if self._decide is not None and self._decide(waiting.batch):
                return
        self._note_rejected(rejected)

    def _note_rejected(self, rejected: Sequence[Rejected]) -> None:
        self.sent = replace(self.sent, rejected=(*self.sent.rejected, *rejected))

    def _doubt(self, waiting: Waiting, error: PsoupError) -> None:
        doubtful = self._queue.doubt(waiting, error)
        self.sent = replace(self.sent, doubtful=(*self.sent.doubtful, *doubtful))


def _is_final(error: PsoupError) -> bool:
    """Return whether this store, as it is, would refuse the same batch again."""
    match error:
        case InvalidRequest():
            return error.reason not in _SENDER_REASONS
        case NotFound() | PreconditionFailed():
            return error.reason in _FINAL_REASONS
    return False
