"""Sending the queue: each batch exactly once, in order, whatever breaks meanwhile.

One batch is on its way at a time. It keeps its sequence until the store has acknowledged it, and
the note of that and the batch's end in the queue are one transaction. So after any crash, and for
any number of processes at once, the same batch is sent with the same sequence, and the store takes
it once.

Where the store refuses a batch for good it is put aside, and its sequence goes to the next. Only
the store the file belongs to can do that, and its refusals carry its id: whatever else answers, the
batch waits on. Should the store have taken it after all, under an earlier sending whose answer was
lost, the sequence is used up, and the store says so. Then, and whenever else the numbers are not
what the file thinks (a store or a file from a backup), the queue goes on under a new name from 1.

Where the store has taken the sequence but no longer knows with which rows, the batch is doubtful.
A repeat of our own never is: the next is sent only when this one is acknowledged, and what the last
sequence of a publisher held is known for ever.
"""

from __future__ import annotations

from dataclasses import replace

from client_sdk import _flows
from client_sdk._exceptions import (
    ErrorDetail,
    InvalidRequest,
    NotFound,
    PreconditionFailed,
    PsoupError,
    RowProblem,
)
from client_sdk._grpc.effects import Flow, Repeat
from client_sdk._session import Session
from client_sdk._wire.ipc import row_too_large
from client_sdk._wire.models import Stream, is_unverified
from client_sdk.copies import _batches
from client_sdk.copies._batches import Room
from client_sdk.copies._file import CopyFile
from client_sdk.copies._home import Home, visit
from client_sdk.copies._queue import Queue, Waiting
from client_sdk.copies._queued import Sent
from client_sdk.copies._streams import remember
from psoup.v1 import psoup_pb2 as pb

_NUMBERS = frozenset({"SEQUENCE_GAP", "SEQUENCE_REUSED"})
# About who sends, not about what is sent.
_SENDER = frozenset({"NAME_TOO_LONG"})
# A store that keeps knowing each new random name from somebody else is broken.
_MOST_NAMES = 3


class Sending:
    """One send. `sent` is as far as it has come."""

    def __init__(self, session: Session, file: CopyFile, queue: Queue) -> None:
        self._session = session
        self._file = file
        self._queue = queue
        self._names = 0
        self.sent = Sent()

    def all(self) -> Flow[Sent]:
        """Until nothing waits. Raises what keeps the next batch from being sent; it waits on."""
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
        try:
            if not waiting.piece.checked:
                yield from self._check(waiting, room)
            elif room.holds(waiting.piece):
                yield from self._publish(waiting)
            else:
                self._cut(waiting, room)
        except PsoupError as error:
            ours = error.detail.store_id == home.store_id
            if ours and error.reason in _NUMBERS:
                self._rename(waiting, error)
            elif ours and _is_final(error):
                self._reject(waiting, error)
            else:
                raise

    def _check(self, waiting: Waiting, room: Room) -> Flow[None]:
        """Rows that were queued before their stream was known."""
        stream = yield from learn(self._session, self._file, waiting.stream)
        try:
            pieces = _batches.checked(_batches.rows_of(waiting.piece), stream, room)
        except RowProblem as problem:
            self._reject(waiting, problem)
        else:
            self._queue.replace(waiting, pieces)

    def _cut(self, waiting: Waiting, room: Room) -> None:
        """The store takes less than when it was queued."""
        size = len(waiting.piece.payload)
        if waiting.tried:
            self._doubt(waiting, _too_large_now(waiting, room))
        elif waiting.piece.row_count <= 1:
            self._reject(waiting, row_too_large(size, room.bytes))
        else:
            table = _batches.rows_of(waiting.piece)
            self._queue.replace(waiting, _batches.fitted(table, room))

    def _publish(self, waiting: Waiting) -> Flow[None]:
        if not self._queue.trying(waiting):
            return
        request = pb.PublishRequest(
            tenant=self._session.tenant,
            stream=waiting.stream,
            publisher=waiting.publisher,
            sequence=waiting.sequence,
        )
        _batches.fill(request, waiting.piece)
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


def learn(session: Session, file: CopyFile, name: str) -> Flow[Stream]:
    """Asks for a stream and keeps what it is like."""
    stream = yield from _flows.stream(session, name)
    with file.writing() as connection:
        remember(connection, stream)
    return stream


def _is_final(error: PsoupError) -> bool:
    """Whether the same batch would be refused again, by this store as it is."""
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
