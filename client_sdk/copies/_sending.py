"""Sending the queue: each batch exactly once, in order, whatever breaks meanwhile.

One batch is on its way at a time. It keeps its sequence until the store has acknowledged it, and
the note of that and the batch's end in the queue are one transaction. So after any crash, and for
any number of processes at once, the same batch is sent with the same sequence, and the store takes
it once.

Where the store refuses a batch for good it is put aside, and its sequence goes to the next. Should
the store have taken it after all, under an earlier sending whose answer was lost, the sequence is
used up, and the store says so. Then, and whenever else the numbers are not what the file thinks
(another store, a store or a file from a backup), the queue goes on under a new name from 1.
"""

from __future__ import annotations

from dataclasses import replace

from client_sdk import _flows
from client_sdk._effects import Flow
from client_sdk._exceptions import (
    ErrorDetail,
    InvalidRequest,
    LimitExceeded,
    NotFound,
    PreconditionFailed,
    PsoupError,
)
from client_sdk._models import Stream
from client_sdk._retry import Repeat
from client_sdk._session import Session
from client_sdk.copies import _batches
from client_sdk.copies._file import CopyFile
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
        while (waiting := self._queue.first()) is not None:
            yield from self._one(waiting)
        return self.sent

    def _one(self, waiting: Waiting) -> Flow[None]:
        try:
            if not waiting.whole:
                raise _damaged(waiting)
            if waiting.piece.checked:
                yield from self._publish(waiting)
            else:
                yield from self._check(waiting)
        except PsoupError as error:
            if error.reason in _NUMBERS:
                self._rename(waiting, error)
            elif _is_final(error):
                self._reject(waiting, error)
            else:
                raise

    def _check(self, waiting: Waiting) -> Flow[None]:
        """Rows that were queued before their stream was known."""
        stream = yield from learn(self._session, self._file, waiting.stream)
        self._queue.replace(waiting, _batches.checked(_batches.rows_of(waiting.piece), stream))

    def _publish(self, waiting: Waiting) -> Flow[None]:
        request = pb.PublishRequest(
            tenant=self._session.tenant,
            stream=waiting.stream,
            publisher=waiting.publisher,
            sequence=waiting.sequence,
        )
        _batches.fill(request, waiting.piece)
        reply, again = yield from _flows.call(self._session, "Publish", request, Repeat.SAFE)
        if reply.duplicate and reply.first_row_id < 0 and not (waiting.tried or again):
            raise _used_up(waiting)
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
        case LimitExceeded():
            return not error.reason
    return error.reason == "DAMAGED"


def _used_up(waiting: Waiting) -> PsoupError:
    detail = ErrorDetail("SEQUENCE_REUSED", got=str(waiting.sequence))
    return PsoupError(f"the store is past sequence {waiting.sequence} already", detail=detail)


def _damaged(waiting: Waiting) -> PsoupError:
    return PsoupError(
        f"batch {waiting.batch} is not what was queued: the file was damaged",
        detail=ErrorDetail("DAMAGED"),
    )
