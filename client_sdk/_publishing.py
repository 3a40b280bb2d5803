"""Publishing: one batch by itself, or many on one line, numbered so that none is taken twice."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from client_sdk import _flows
from client_sdk._exceptions import InvalidRequest, LimitExceeded, PsoupError
from client_sdk._grpc.effects import Attempts, Finish, Flow, Open, Pause, Read, Repeat, Write
from client_sdk._session import MEBIBYTE, Session
from client_sdk._wire.ipc import payloads, to_ipc
from client_sdk._wire.models import Published, Stream
from client_sdk._wire.rows import Rows, deletes, to_table
from client_sdk._wire.values import timestamp
from psoup.v1 import psoup_pb2 as pb

# A batch of publish_many: large enough to be worth a commit, small enough to be four in flight.
BATCH_BYTES = 4 * MEBIBYTE
BATCH_ROWS = 100_000
IN_FLIGHT = 4
# Room for the publisher's name and the sequence beside the rows.
IDENTITY_BYTES = 512

Progress = Callable[[Published], None]


@dataclass(slots=True)
class Numbering:
    """A numbering is who publishes, and the first sequence the store has not acknowledged."""

    publisher: str
    next_sequence: int


@dataclass(frozen=True, slots=True)
class PublishedMany:
    """All of the batches are durable. `duplicate_rows` of the rows had been accepted before."""

    batches: int
    row_count: int
    duplicate_rows: int


def identity(publisher: str | None, sequence: int | None) -> Numbering | None:
    """Makes a numbering of both, or None of neither.

    Raises ValueError where only one of the two is given, or they can't be an identity.
    """
    if publisher is None and sequence is None:
        return None
    if not publisher or sequence is None:
        raise ValueError("give publisher and sequence, or neither; publisher() counts for you")
    return numbering(publisher, sequence)


def numbering(publisher: str, sequence: int) -> Numbering:
    if not publisher:
        raise ValueError("a publisher has a name")
    if sequence < 1:
        raise ValueError(f"sequences count from 1, not {sequence}")
    return Numbering(publisher, sequence)


def publish(
    session: Session, stream: str, rows: Rows, numbered: Numbering | None
) -> Flow[Published]:
    """Publishes one batch, whole or not at all.

    The stream's columns are fetched once and kept. Where rows do not fit them, or the server
    refuses the batch, they are fetched again: the stream may have been made anew.
    """
    rows = rows if hasattr(rows, "columns") else _listed(rows)
    known = session.streams.get(stream)
    if known is not None:
        try:
            return (yield from _publish_as(session, known, stream, rows, numbered))
        except InvalidRequest as error:
            fresh = yield from _flows.stream(session, stream)
            if _shape(fresh) == _shape(known):
                raise error from None
    else:
        fresh = yield from _flows.stream(session, stream)
    return (yield from _publish_as(session, fresh, stream, rows, numbered))


def _shape(stream: Stream) -> tuple[Any, ...]:
    """Gives what decides whether rows fit the stream."""
    return stream.columns, stream.ordered_by, stream.key


def _listed(rows: Any) -> Any:
    return rows if isinstance(rows, list | dict | str | bytes) else list(rows)


def _publish_as(
    session: Session, schema: Stream, stream: str, rows: Rows, numbered: Numbering | None
) -> Flow[Published]:
    payload = to_ipc(to_table(rows, schema))
    request = _request(session, stream, arrow=payload)
    if request.ByteSize() + IDENTITY_BYTES > session.max_message_bytes:
        raise LimitExceeded(
            f"the batch takes {len(payload):,} bytes, a message at most "
            f"{session.max_message_bytes:,}; publisher(name).publish_many(…) cuts it for you"
        )
    return (yield from _send(session, request, numbered))


def _request(session: Session, stream: str, **fields: Any) -> pb.PublishRequest:
    return pb.PublishRequest(tenant=session.tenant, owner=session.owner, stream=stream, **fields)


def heartbeat(
    session: Session, stream: str, instant: datetime, numbered: Numbering | None
) -> Flow[Published]:
    request = _request(session, stream, heartbeat=timestamp(instant))
    return (yield from _send(session, request, numbered))


def _send(
    session: Session, request: pb.PublishRequest, numbered: Numbering | None
) -> Flow[Published]:
    if numbered is not None:
        request.publisher, request.sequence = numbered.publisher, numbered.next_sequence
    repeat = Repeat.HARMFUL if numbered is None else Repeat.SAFE
    reply, again = yield from _flows.call(session, "Publish", request, repeat)
    session.wrote(reply.position, fresh=again or not reply.duplicate)
    if numbered is not None:
        numbered.next_sequence += 1
    return Published.from_wire(reply)


def publish_many(
    session: Session,
    stream: str,
    batches: Iterable[Rows],
    numbered: Numbering,
    progress: Progress | None,
) -> Flow[PublishedMany]:
    """Numbers the batches, cuts large ones, keeps a few in flight, and carries on after a cut."""
    schema = yield from _flows.stream(session, stream)
    line = _Line(session, numbered, _requests(session, schema, stream, batches, numbered), progress)
    yield from line.run()
    return PublishedMany(line.batches, line.row_count, line.duplicate_rows)


def _requests(
    session: Session, schema: Stream, stream: str, batches: Iterable[Rows], numbered: Numbering
) -> Iterator[pb.PublishRequest]:
    sequence = numbered.next_sequence
    limit = min(BATCH_BYTES, session.max_message_bytes - IDENTITY_BYTES)
    for rows in split(batches):
        table = to_table(rows, schema)
        for payload in payloads(table, limit, BATCH_ROWS) if table.num_rows else ():
            names = {"publisher": numbered.publisher, "sequence": sequence}
            yield _request(session, stream, arrow=payload, **names)
            sequence += 1


def count_batches(session: Session, stream: str, batches: Rows | Iterable[Rows]) -> Flow[int]:
    """Count the sequences that publish_many uses for these batches."""
    schema = yield from _flows.stream(session, stream)
    counted = _requests(session, schema, stream, batches, Numbering("", 1))
    return sum(1 for _ in counted)


def split(given: Rows | Iterable[Rows]) -> Iterator[Rows]:
    """Yield the batches of an iterable; also of rows in one of the forms that `publish` takes.

    Rows that are dicts are taken as they come, so many at a time that they may be without end.
    """
    if hasattr(given, "columns"):
        yield given
        return
    if isinstance(given, Mapping | str | bytes):
        raise TypeError("give rows, or an iterable of batches of rows")
    source = iter(given)
    for first in source:
        if not isinstance(first, Mapping):
            yield first
            continue
        yield [first, *itertools.islice(source, BATCH_ROWS - 1)]


class _Line:
    """A line sends requests in order over one PublishStream after another, each until it is cut or
    old.

    `_waiting` are the requests sent and not acknowledged. After a cut they are sent again first:
    they have an identity, so the store takes each once.
    """

    def __init__(
        self,
        session: Session,
        numbered: Numbering,
        source: Iterator[pb.PublishRequest],
        progress: Progress | None,
    ) -> None:
        self._session = session
        self._numbered = numbered
        self._source = source
        self._progress = progress
        self._waiting: deque[pb.PublishRequest] = deque()
        self._attempts = Attempts(session.retry, Repeat.SAFE, session.timeout)
        self._ended = False
        self._failure: Exception | None = None
        self.batches = self.row_count = self.duplicate_rows = 0

    def run(self) -> Flow[None]:
        while not self._ended or self._waiting:
            try:
                yield from self._one_call()
            except PsoupError as error:
                yield Pause(self._attempts.pause_after(error))
        if self._failure is not None:
            raise self._failure

    def _one_call(self) -> Flow[None]:
        """Sends until the source ends, or a quarter of the call's time has gone by.

        After a cut only one request is sent until it is acknowledged, so that a refusal is read as
        such and not lost in the failure to send the next.
        """
        timeout = self._attempts.remaining()
        old = time.monotonic() + (timeout or 60.0) / 4
        room = 1 if self._attempts.made else IN_FLIGHT
        sent, resent = 0, len(self._waiting)
        yield Open(timeout)
        while True:
            while sent < room and (sent < len(self._waiting) or self._pull(old)):
                yield Write(self._waiting[sent])
                sent += 1
            if not self._waiting:
                break
            reply = yield Read()
            self._acknowledge(reply, again=resent > 0)
            sent, resent, room = sent - 1, resent - 1, IN_FLIGHT
        yield Finish()

    def _pull(self, until: float) -> bool:
        """Takes one request from the source. An error of the source waits until all requests before
        it are acknowledged.
        """
        if self._ended or time.monotonic() >= until:
            return False
        try:
            self._waiting.append(next(self._source))
        except StopIteration:
            self._ended = True
        except Exception as error:
            self._ended, self._failure = True, error
        return not self._ended

    def _acknowledge(self, reply: pb.PublishResponse, *, again: bool) -> None:
        self._numbered.next_sequence = self._waiting.popleft().sequence + 1
        self._attempts.reset()
        self._session.wrote(reply.position, fresh=again or not reply.duplicate)
        published = Published.from_wire(reply)
        self.batches += 1
        self.row_count += published.row_count
        self.duplicate_rows += published.row_count if published.duplicate else 0
        if self._progress is not None:
            self._progress(published)


Run = Callable[[Any], Any]
AsyncRun = Callable[[Any], Awaitable[Any]]


class Publisher:
    """A publisher numbers its batches from `next_sequence` on. It is for one thread at a time.

    The store takes each number once, for ever. So after an error, whatever it was, publish the same
    rows again: the number is kept until the store has acknowledged it. A program that starts over
    publishes everything from sequence 1; what is there already is acknowledged as duplicate.
    """

    def __init__(self, run: Run, session: Session, numbering: Numbering) -> None:
        self._run = run
        self._session = session
        self._numbering = numbering

    @property
    def name(self) -> str:
        return self._numbering.publisher

    @property
    def next_sequence(self) -> int:
        """The first number not acknowledged yet."""
        return self._numbering.next_sequence

    def publish(self, stream: str, rows: Rows) -> Published:
        """Publishes one batch, whole or not at all."""
        published: Published = self._run(publish(self._session, stream, rows, self._numbering))
        return published

    def publish_many(
        self, stream: str, batches: Rows | Iterable[Rows], *, progress: Progress | None = None
    ) -> PublishedMany:
        """Publishes every batch in order, several in flight, large ones cut to what the server
        takes. `batches` may also be rows as `publish` takes them, however many.

        `progress` is called for each acknowledged batch. When this raises, what had been
        acknowledged stays, and `next_sequence` is the first that was not.
        """
        many: PublishedMany = self._run(
            publish_many(self._session, stream, batches, self._numbering, progress)
        )
        return many

    def count_batches(self, stream: str, batches: Rows | Iterable[Rows]) -> int:
        """Counts the numbers that `publish_many` uses for these batches; publishes nothing."""
        count: int = self._run(count_batches(self._session, stream, batches))
        return count

    def delete(self, stream: str, keys: Iterable[Mapping[str, Any]]) -> Published:
        """Publishes one batch that deletes keys of a keyed stream, given as for `Client.delete`."""
        return self.publish(stream, deletes(keys))

    def heartbeat(self, stream: str, instant: datetime) -> Published:
        published: Published = self._run(heartbeat(self._session, stream, instant, self._numbering))
        return published


class AsyncPublisher:
    """An async publisher is a `Publisher` with `await`, for one task at a time."""

    def __init__(self, run: AsyncRun, session: Session, numbering: Numbering) -> None:
        self._run = run
        self._session = session
        self._numbering = numbering

    @property
    def name(self) -> str:
        return self._numbering.publisher

    @property
    def next_sequence(self) -> int:
        return self._numbering.next_sequence

    async def publish(self, stream: str, rows: Rows) -> Published:
        published: Published = await self._run(
            publish(self._session, stream, rows, self._numbering)
        )
        return published

    async def publish_many(
        self, stream: str, batches: Rows | Iterable[Rows], *, progress: Progress | None = None
    ) -> PublishedMany:
        many: PublishedMany = await self._run(
            publish_many(self._session, stream, batches, self._numbering, progress)
        )
        return many

    async def count_batches(self, stream: str, batches: Rows | Iterable[Rows]) -> int:
        count: int = await self._run(count_batches(self._session, stream, batches))
        return count

    async def delete(self, stream: str, keys: Iterable[Mapping[str, Any]]) -> Published:
        return await self.publish(stream, deletes(keys))

    async def heartbeat(self, stream: str, instant: datetime) -> Published:
        published: Published = await self._run(
            heartbeat(self._session, stream, instant, self._numbering)
        )
        return published
