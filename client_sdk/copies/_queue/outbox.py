"""The outbox: what is published while offline waits in the file, and is sent exactly once, in
order.

One batch is on its way at a time. It keeps its sequence until the store has acknowledged it, and
the note of that and the batch's end in the queue are one transaction. So after any crash, and for
any number of processes at once, the same batch is sent with the same sequence, and the store takes
it once.

If the store refuses a batch for good it is put aside, and its sequence goes to the next. Only
the store the file belongs to can do that, and its refusals carry its id: whatever else answers, the
batch waits on. Should the store have taken it after all, under an earlier sending whose answer was
lost, the sequence is used up, and the store says so. Then, and whenever else the numbers are not
what the file thinks (a store or a file from a backup), the queue goes on under a new name from 1.

A batch is doubtful if the store may have taken it and can't be asked: it took the sequence but no
longer knows with which rows, or the batch may have been sent for another owner, or with a sequence
that the store does not know any more. A repeat under one identity never is: the next is sent only
when this one is acknowledged, and what the last sequence of a publisher held is known for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from client_sdk import _flows
from client_sdk._async_client import AsyncClient
from client_sdk._client import Client
from client_sdk._exceptions import (
    ConnectionFailed,
    CopyError,
    ErrorDetail,
    InvalidRequest,
    NotFound,
    PreconditionFailed,
    PsoupError,
    RowProblem,
    Timeout,
)
from client_sdk._grpc.effects import Flow, Repeat
from client_sdk._session import Session
from client_sdk._wire.ipc import row_too_large
from client_sdk._wire.models import Stream, is_unverified
from client_sdk._wire.rows import Rows, deletes
from client_sdk._wire.status import StoreLimits
from client_sdk.copies._file.file import CopyFile
from client_sdk.copies._file.home import Home, home_of, learn, remembered, visit
from client_sdk.copies._queue import batches
from client_sdk.copies._queue.batches import Doubtful, Queued, Rejected, Room, Sent
from client_sdk.copies._queue.queue import QUEUE_BYTES, PutAside, Queue, Waiting
from psoup.v1 import psoup_pb2 as pb


class Outbox:
    """The half of Copies that publishes. Only methods that take a client need a connection."""

    def __init__(self, file: CopyFile, queue_bytes: int = QUEUE_BYTES) -> None:
        self._file = file
        self._queue = Queue(file, queue_bytes)
        self._put_aside = PutAside(file)

    def publish(self, stream: str, rows: Rows) -> int | None:
        """Queue one batch, on the disk when this returns; return its number, or None if it has
        no rows.

        Rows are as for `Client.publish`. If the stream is known from the last contact they are
        checked at once, else when they are sent. A row of a stream with arrival time gets its ts
        when the store takes it. Until then, and until the next sync, no copy has the rows.
        """
        with self._file.reading() as connection:
            known, home = remembered(connection, stream), home_of(connection)
        if not hasattr(rows, "columns"):
            rows = rows if isinstance(rows, Mapping | str | bytes) else list(rows)
        if known is None:
            return self._queue.put(stream, batches.unchecked(rows))
        limits = StoreLimits() if home is None else home.limits
        room = Room.of(limits, limits.message_bytes)
        pieces = batches.checked(rows, known, room)
        batches.require_room(pieces, room)
        return self._queue.put(stream, pieces)

    def delete(self, stream: str, keys: Iterable[Mapping[str, Any]]) -> int | None:
        """Queue a batch that deletes keys of a keyed stream, given as for `Client.delete`."""
        return self.publish(stream, deletes(keys))

    def heartbeat(self, stream: str, instant: datetime) -> int | None:
        """Queue a heartbeat: NOW of an event-time stream moves to `instant`, if that is later."""
        return self._queue.put(stream, [batches.heartbeat(instant)])

    @property
    def queued(self) -> Queued:
        """Count of what waits."""
        return self._queue.state()

    @property
    def rejected(self) -> list[Rejected]:
        """The batches that the store refused for good, here until requeued or discarded."""
        return self._put_aside.rejected()

    @property
    def doubtful(self) -> list[Doubtful]:
        """The batches that may be in the store, and may not. They stay here until resent or
        discarded.
        """
        return self._put_aside.doubtful()

    def requeue(self, batch: int | None = None) -> int:
        """Put a refused batch (None: all) at the end of the queue; return the count of pieces.

        Raises ValueError if that batch was not refused.
        """
        return self._put_aside.requeue(batch)

    def resend(self, batch: int | None = None) -> int:
        """Put a doubtful batch (None: all) at the end of the queue; return the count of pieces.

        It is sent as a batch that was never sent before: if it is in the store, it will be twice.
        Raises ValueError if that batch is not doubtful.
        """
        return self._put_aside.resend(batch)

    def discard(self, batch: int | None = None) -> int:
        """Delete a refused or a doubtful batch (None: all refused ones); return the count of
        pieces.

        Raises ValueError if that batch is neither.
        """
        return self._put_aside.discard(batch)

    def send(self, client: Client) -> Sent:
        """Send what waits, in order, each batch exactly once.

        Batches that are refused for good are put aside and named in the result. Any other error
        is raised; what has been sent is out of the queue, the rest waits on.
        """
        return client._run(self._sending(client._session))

    async def send_async(self, client: AsyncClient) -> Sent:
        return await client._run(self._sending(client._session))

    def learn(self, client: Client, stream: str) -> Stream:
        """Keep what a stream is like, so that rows are checked as they are queued."""
        return client._run(learn(client._session, self._file, stream))

    async def learn_async(self, client: AsyncClient, stream: str) -> Stream:
        return await client._run(learn(client._session, self._file, stream))

    @property
    def store_id(self) -> str | None:
        """The store the file belongs to; None before the first contact."""
        with self._file.reading() as connection:
            home = home_of(connection)
        return None if home is None else home.store_id

    def move(self, client: Client) -> str:
        """Make the file belong to the store of `client`, whose id is returned.

        What waits is sent there from now on, under a new name, also what the store before may have
        taken without saying so. The copies are replaced by the next sync.
        """
        return client._run(visit(client._session, self._file, move=True)).store_id

    async def move_async(self, client: AsyncClient) -> str:
        home = await client._run(visit(client._session, self._file, move=True))
        return home.store_id

    def known_stream(self, stream: str) -> Stream | None:
        """Return a stream as it was at the last contact; None if there was none."""
        with self._file.reading() as connection:
            return remembered(connection, stream)

    def _sending(self, session: Session) -> Flow[Sent]:
        return Sending(session, self._file, self._queue).all()

    def _sent(self, session: Session) -> Flow[Sent]:
        """Send in a sync, which goes on where the store is there but does not take a batch."""
        run = Sending(session, self._file, self._queue)
        try:
            return (yield from run.all())
        except (ConnectionFailed, Timeout, CopyError):
            raise
        except PsoupError as error:
            return replace(run.sent, error=error)


_GAP = "SEQUENCE_GAP"
_NUMBERS = frozenset({_GAP, "SEQUENCE_REUSED"})
# About who sends, not about what is sent.
_SENDER = frozenset({"BAD_NAME", "NAME_TOO_LONG"})
# A store that keeps knowing each new random name from somebody else is broken.
_MOST_NAMES = 3


class Sending:
    """A sending is one send. `sent` is as far as it has come."""

    def __init__(self, session: Session, file: CopyFile, queue: Queue) -> None:
        self._session = session
        self._file = file
        self._queue = queue
        self._names = 0
        self.sent = Sent()

    def all(self) -> Flow[Sent]:
        """Send until nothing waits. Raises what keeps the next batch from being sent; it waits
        on.
        """
        home = None
        while (waiting := self._queue.first()) is not None:
            home = home or (yield from visit(self._session, self._file))
            yield from self._one(waiting, home)
        return self.sent

    def _one(self, waiting: Waiting, home: Home) -> Flow[None]:
        room = Room.of(home.limits, self._session.max_message_bytes)
        if not waiting.whole:
            self._reject(waiting, _damaged(waiting))
            return
        if waiting.tried_otherwise:
            self._doubt(waiting, _sent_otherwise(waiting))
            return
        try:
            if not waiting.piece.checked:
                yield from self._check(waiting, room)
            elif room.holds(waiting.piece):
                yield from self._publish(waiting, home)
            else:
                self._cut(waiting, room)
        except PsoupError as error:
            ours = error.detail.store_id == home.store_id
            if ours and error.reason == _GAP and waiting.tried:
                # The store does not know how far this publisher was: it is from a back-up and has
                # not taken the batch, or the publisher was forgotten and it may have.
                self._doubt(waiting, error)
            elif ours and error.reason in _NUMBERS:
                self._rename(waiting, error)
            elif ours and _is_final(error):
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
        """Cut a batch where the store takes less than when it was queued."""
        size = len(waiting.piece.payload)
        if waiting.tried:
            self._doubt(waiting, _too_large_now(waiting, room))
        elif waiting.piece.row_count <= 1:
            self._reject(waiting, row_too_large(size, room.bytes))
        else:
            table = batches.rows_of(waiting.piece)
            self._queue.replace(waiting, batches.fitted(table, room))

    def _publish(self, waiting: Waiting, home: Home) -> Flow[None]:
        if not self._queue.trying(waiting):
            return
        # Named, so that a credential that changes meanwhile can't send it as another owner's.
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
            self._doubt(waiting, _forgotten(waiting))
            return
        self._queue.acknowledge(waiting)
        self._session.wrote(reply.position, fresh=again or not reply.duplicate)
        self.sent = replace(
            self.sent,
            batches=self.sent.batches + 1,
            rows=self.sent.rows + reply.row_count,
            duplicates=self.sent.duplicates + reply.duplicate,
        )

    def _rename(self, waiting: Waiting, error: PsoupError) -> None:
        if self._queue.rename(waiting):
            self._names += 1
            if self._names > _MOST_NAMES:
                raise error

    def _reject(self, waiting: Waiting, error: PsoupError) -> None:
        found = self._queue.reject(waiting, error)
        self.sent = replace(self.sent, rejected=(*self.sent.rejected, *found))

    def _doubt(self, waiting: Waiting, error: PsoupError) -> None:
        found = self._queue.doubt(waiting, error)
        self.sent = replace(self.sent, doubtful=(*self.sent.doubtful, *found))


def _is_final(error: PsoupError) -> bool:
    """Return whether the same batch would be refused again, by this store as it is."""
    match error:
        case InvalidRequest():
            return error.reason not in _SENDER
        case NotFound() | PreconditionFailed():
            return error.reason in ("UNKNOWN_STREAM", "STREAM_DROPPED")
    return False


def _forgotten(waiting: Waiting) -> PsoupError:
    return PsoupError(
        f"the store has had sequence {waiting.sequence} of {waiting.publisher}, and no longer "
        "knows with which rows: another copy of this file may have sent these, or others",
        detail=ErrorDetail("UNVERIFIED"),
    )


def _sent_otherwise(waiting: Waiting) -> PsoupError:
    return PsoupError(
        f"it may have been sent before as {waiting.tried}, for another tenant or owner; the store "
        "would take it once more",
        detail=ErrorDetail("OTHER_OWNER"),
    )


def _too_large_now(waiting: Waiting, room: Room) -> PsoupError:
    return PsoupError(
        f"it may have been sent before, and its {len(waiting.piece.payload):,} bytes are more than "
        f"the {room.bytes:,} the store takes now, so that it can't be asked",
        detail=ErrorDetail("TOO_LARGE_NOW"),
    )


def _damaged(waiting: Waiting) -> PsoupError:
    return PsoupError(
        f"batch {waiting.batch} is not what was queued: the file was damaged",
        detail=ErrorDetail("DAMAGED"),
    )
