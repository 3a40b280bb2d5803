"""Publishing: single batches, or many on one call, numbered so that none is stored twice."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from client_sdk import _flows
from client_sdk._exceptions import InvalidRequest, LimitExceeded, PsoupError
from client_sdk._grpc.effects import Attempts, Finish, Flow, Open, Pause, Read, Repeat, Write
from client_sdk._session import MEBIBYTE, Session
from client_sdk._wire.ipc import payloads, row_too_large, to_ipc
from client_sdk._wire.models import Published, Stream
from client_sdk._wire.rows import EXPECTED, Rows, deletes, has_conditions, patches, to_table
from client_sdk._wire.values import duration, timestamp
from psoup.v1 import psoup_pb2 as pb

# Batches of publish_many: large enough to be worth a commit, small enough to have four in flight.
BATCH_BYTES = 4 * MEBIBYTE
BATCH_ROWS = 100_000
IN_FLIGHT = 4
# Room for the publisher's name and the sequence beside the rows.
IDENTITY_BYTES = 512

Progress = Callable[[Published], None]


@dataclass(slots=True)
class Numbering:
    """The name of a publisher, the first sequence that the store has not acknowledged, and how long
    the store remembers the name after a batch, None for ever."""

    publisher: str
    next_sequence: int
    lease: timedelta | None = None


@dataclass(frozen=True, slots=True)
class MarkedBatch:
    """A batch for `publish_many` that is never cut, and has the mark that is kept with it. It may
    have no rows.
    """

    rows: Rows
    mark: bytes


@dataclass(frozen=True, slots=True)
class PublishedMany:
    """The result of `publish_many`. All are durable; `duplicate_rows` had been accepted before."""

    batches: int
    row_count: int
    duplicate_rows: int


def identity(publisher: str | None, sequence: int | None) -> Numbering | None:
    """Return the numbering of one batch, or None if neither argument is given.

    Raises ValueError if only one of them is given, or they can't be an identity.
    """
    if publisher is None and sequence is None:
        return None
    if not publisher or sequence is None:
        raise ValueError("give publisher and sequence, or neither; publisher() counts for you")
    return make_numbering(publisher, sequence)


def make_numbering(publisher: str, sequence: int, lease: timedelta | None = None) -> Numbering:
    """Return the numbering of a publisher from `sequence` on. Raises ValueError."""
    if not publisher:
        raise ValueError("a publisher has a name")
    if sequence < 1:
        raise ValueError(f"sequences count from 1, not {sequence}")
    return Numbering(publisher, sequence, lease)


def publish(
    session: Session, stream: str, rows: Rows, numbering: Numbering | None, mark: bytes = b""
) -> Flow[Published]:
    """Publish one batch, whole or not at all; `mark` is kept with it, for the publisher's own use.

    The stream's columns are fetched once and cached. If rows do not fit them, or the server refuses
    the batch, they are fetched again: the stream may have been dropped and created again.
    """
    # Rows may be converted twice, so those of a generator are kept in a list.
    rows = rows if hasattr(rows, "columns") else _as_list(rows)
    cached = session.streams.get(stream)
    if cached is not None:
        try:
            return (yield from _publish_as(session, cached, stream, rows, numbering, mark))
        except InvalidRequest as error:
            fresh = yield from _flows.stream(session, stream)
            if _shape(fresh) == _shape(cached):
                raise error from None
    else:
        fresh = yield from _flows.stream(session, stream)
    return (yield from _publish_as(session, fresh, stream, rows, numbering, mark))


def _shape(stream: Stream) -> tuple[Any, ...]:
    """Return what decides whether rows fit the stream."""
    return stream.columns, stream.ordered_by, stream.key


def _as_list(rows: Any) -> Any:
    return rows if isinstance(rows, list | dict | str | bytes) else list(rows)


def _publish_as(
    session: Session,
    schema: Stream,
    stream: str,
    rows: Rows,
    numbering: Numbering | None,
    mark: bytes,
) -> Flow[Published]:
    payload = to_ipc(to_table(rows, schema))
    request = _request(session, stream, arrow=payload, mark=mark)
    if request.ByteSize() + IDENTITY_BYTES > session.max_message_bytes:
        raise LimitExceeded(
            f"the batch takes {len(payload):,} bytes, a message at most "
            f"{session.max_message_bytes:,}; publisher(name).publish_many(…) cuts it for you"
        )
    return (yield from _send(session, request, numbering))


def _request(session: Session, stream: str, **fields: Any) -> pb.PublishRequest:
    return pb.PublishRequest(tenant=session.tenant, owner=session.owner, stream=stream, **fields)


def heartbeat(
    session: Session, stream: str, instant: datetime, numbering: Numbering | None
) -> Flow[Published]:
    request = _request(session, stream, heartbeat=timestamp(instant))
    return (yield from _send(session, request, numbering))


def _send(
    session: Session, request: pb.PublishRequest, numbering: Numbering | None
) -> Flow[Published]:
    if numbering is not None:
        request.MergeFrom(pb.PublishRequest(**_identity_fields(numbering, numbering.next_sequence)))
    # Without an identity, the store can't recognise a batch that is sent again.
    repeat = Repeat.HARMFUL if numbering is None else Repeat.SAFE
    reply, again = yield from _flows.call(session, "Publish", request, repeat)
    session.wrote(reply.position, fresh=again or not reply.duplicate)
    # Only after the acknowledgement: after an error the same number is used again.
    if numbering is not None:
        numbering.next_sequence += 1
    return Published.from_wire(reply)


def _identity_fields(numbering: Numbering, sequence: int) -> dict[str, Any]:
    lease = None if numbering.lease is None else duration(numbering.lease)
    names = {"publisher": numbering.publisher, "sequence": sequence}
    return names | {"publisher_lease": lease}


def publish_many(
    session: Session,
    stream: str,
    batches: Iterable[Rows | MarkedBatch],
    numbering: Numbering,
    progress: Progress | None,
    in_flight: int = IN_FLIGHT,
) -> Flow[PublishedMany]:
    """Number the batches, cut large ones, keep a few in flight, and continue after a lost
    connection.
    """
    schema = yield from _flows.stream(session, stream)
    requests = _requests(session, schema, stream, batches, numbering)
    sender = _Sender(session, numbering, requests, progress, in_flight)
    yield from sender.run()
    return PublishedMany(sender.batches, sender.row_count, sender.duplicate_rows)


def _requests(
    session: Session,
    schema: Stream,
    stream: str,
    batches: Iterable[Rows | MarkedBatch],
    numbering: Numbering,
) -> Iterator[pb.PublishRequest]:
    sequence = numbering.next_sequence
    limit = min(BATCH_BYTES, session.max_message_bytes - IDENTITY_BYTES)
    for batch in split(batches):
        if isinstance(batch, MarkedBatch):
            payload = _marked_payload(session, to_table(batch.rows, schema), batch.mark)
            fields = _identity_fields(numbering, sequence)
            yield _request(session, stream, arrow=payload, mark=batch.mark, **fields)
            sequence += 1
            continue
        table = to_table(batch, schema)
        for payload in _cut(session, table, limit) if table.num_rows else ():
            identity_fields = _identity_fields(numbering, sequence)
            yield _request(session, stream, arrow=payload, **identity_fields)
            sequence += 1


def _marked_payload(session: Session, table: pa.Table, mark: bytes) -> bytes:
    payload, limit = to_ipc(table), session.max_message_bytes - IDENTITY_BYTES - len(mark)
    if len(payload) > limit:
        raise row_too_large(len(payload), limit)
    return payload


def _cut(session: Session, table: pa.Table, limit: int) -> Iterator[bytes]:
    """Yield the payloads of a table; a single one if rows of it expect others, since all of its
    rows are accepted or none. Raises LimitExceeded."""
    if has_conditions(table):
        yield _whole(session, table)
    else:
        yield from payloads(table, limit, BATCH_ROWS)


def _whole(session: Session, table: pa.Table) -> bytes:
    """Return a table as one payload. Raises LimitExceeded."""
    payload, limit = to_ipc(table), session.max_message_bytes - IDENTITY_BYTES
    if len(payload) > limit:
        raise LimitExceeded(
            f"a batch with {EXPECTED} takes {len(payload):,} bytes, a message at most {limit:,}; "
            "it is not cut, since all of its rows are accepted or none"
        )
    return payload


def count_batches(session: Session, stream: str, batches: Rows | Iterable[Rows]) -> Flow[int]:
    """Return how many sequences `publish_many` would use for these batches."""
    schema = yield from _flows.stream(session, stream)
    counted = _requests(session, schema, stream, batches, Numbering("", 1))
    return sum(1 for _ in counted)


def split(batches: Rows | Iterable[Rows | MarkedBatch]) -> Iterator[Any]:
    """Yield the batches of an iterable; also of rows in one of the forms that `publish` takes.

    Rows that are dicts are taken as they come, BATCH_ROWS at a time, so that there may be no end of
    them.
    """
    if hasattr(batches, "columns"):
        yield batches
        return
    if isinstance(batches, Mapping | str | bytes):
        raise TypeError("give rows, or an iterable of batches of rows")
    source = iter(batches)
    # A dict is the first row of a batch; anything else is a batch by itself.
    for first in source:
        if not isinstance(first, Mapping):
            yield first
            continue
        yield [first, *itertools.islice(source, BATCH_ROWS - 1)]


class _Sender:
    """A sender of numbered requests in order, over one PublishStream after another.

    A call is used until it is cut or old. `_waiting` are the requests that were sent and not
    acknowledged. After a cut they are sent again first: they have an identity, so the store takes
    each once.
    """

    def __init__(
        self,
        session: Session,
        numbering: Numbering,
        source: Iterator[pb.PublishRequest],
        progress: Progress | None,
        in_flight: int = IN_FLIGHT,
    ) -> None:
        self._session = session
        self._in_flight = in_flight
        self._numbering = numbering
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
                yield from self._send_on_one_call()
            except PsoupError as error:
                yield Pause(self._attempts.pause_after(error))
        if self._failure is not None:
            raise self._failure

    def _send_on_one_call(self) -> Flow[None]:
        """Send until the source ends, or a quarter of the call's time has passed.

        After a cut only one request is sent until it is acknowledged. Otherwise a refusal could be
        lost in the failure to send the next request.
        """
        timeout = self._attempts.remaining()
        # The rest of the call's time is for the acknowledgements of what is in flight.
        until = time.monotonic() + (timeout or 60.0) / 4
        in_flight = 1 if self._attempts.count else self._in_flight
        # `sent` counts the requests at the head of `_waiting` that were written to this call.
        # `resent` counts those that an earlier call may have delivered.
        sent, resent = 0, len(self._waiting)
        yield Open(timeout)
        while True:
            while sent < in_flight and (sent < len(self._waiting) or self._pull(until)):
                yield Write(self._waiting[sent])
                sent += 1
            if not self._waiting:
                break
            reply = yield Read()
            self._acknowledge(reply, again=resent > 0)
            sent, resent, in_flight = sent - 1, resent - 1, self._in_flight
        yield Finish()

    def _pull(self, until: float) -> bool:
        """Take one request from the source, and return whether there was one.

        An error of the source is raised only when all requests before it are acknowledged.
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
        self._numbering.next_sequence = self._waiting.popleft().sequence + 1
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
    """A publisher, which numbers its batches from `next_sequence` on. It is for one thread at a
    time.

    The store takes each number once, until the publisher's lease ends. So after an error, whatever
    it was, publish the same rows again: the number stays the same until the store has acknowledged
    it. A program that starts again publishes everything from sequence 1; batches that the store has
    are acknowledged as duplicates.
    """

    def __init__(self, run: Run, session: Session, numbering: Numbering) -> None:
        self._run = run
        self._session = session
        self._numbering = numbering

    @property
    def name(self) -> str:
        """The name of the publisher."""
        return self._numbering.publisher

    @property
    def next_sequence(self) -> int:
        """The first number that is not acknowledged yet."""
        return self._numbering.next_sequence

    def publish(self, stream: str, rows: Rows, *, mark: bytes = b"") -> Published:
        """Publish one batch, whole or not at all.

        `mark` is kept with the batch, in one commit: for example how far you have read elsewhere.
        `Client.publishers` returns that of the last batch. A batch without rows moves it, too.
        """
        flow = publish(self._session, stream, rows, self._numbering, mark)
        published: Published = self._run(flow)
        return published

    def publish_many(
        self,
        stream: str,
        batches: Rows | Iterable[Rows | MarkedBatch],
        *,
        progress: Progress | None = None,
        in_flight: int = IN_FLIGHT,
    ) -> PublishedMany:
        """Publish batches in order, several in flight, and cut large ones to what the server
        accepts.

        `batches` is an iterable of batches, or rows as `publish` takes them, however many. A
        `MarkedBatch` has a mark, and is refused instead of cut.
        `progress` is called with each acknowledged batch. If this raises, acknowledged batches
        stay, and `next_sequence` is the first that is not acknowledged.
        """
        many: PublishedMany = self._run(
            publish_many(self._session, stream, batches, self._numbering, progress, in_flight)
        )
        return many

    def count_batches(self, stream: str, batches: Rows | Iterable[Rows]) -> int:
        """Return how many sequences `publish_many` would use for these batches. Publishes
        nothing.
        """
        count: int = self._run(count_batches(self._session, stream, batches))
        return count

    def patch(self, stream: str, rows: Iterable[Mapping[str, Any]]) -> Published:
        """Publish one batch that sets some columns of keys, given as for `Client.patch`."""
        return self.publish(stream, patches(rows))

    def delete(self, stream: str, keys: Iterable[Mapping[str, Any]]) -> Published:
        """Publish one batch that deletes keys of a keyed stream, given as for `Client.delete`."""
        return self.publish(stream, deletes(keys))

    def heartbeat(self, stream: str, instant: datetime) -> Published:
        """Move NOW of an event-time stream to `instant`, if that is later."""
        published: Published = self._run(heartbeat(self._session, stream, instant, self._numbering))
        return published


class AsyncPublisher:
    """A `Publisher` with `await`, for one task at a time."""

    def __init__(self, run: AsyncRun, session: Session, numbering: Numbering) -> None:
        self._run = run
        self._session = session
        self._numbering = numbering

    @property
    def name(self) -> str:
        """The name of the publisher."""
        return self._numbering.publisher

    @property
    def next_sequence(self) -> int:
        """The first number that is not acknowledged yet."""
        return self._numbering.next_sequence

    async def publish(self, stream: str, rows: Rows, *, mark: bytes = b"") -> Published:
        """Publish one batch, whole or not at all.

        `mark` is kept with the batch, in one commit: for example how far you have read elsewhere.
        `Client.publishers` returns that of the last batch. A batch without rows moves it, too.
        """
        flow = publish(self._session, stream, rows, self._numbering, mark)
        published: Published = await self._run(flow)
        return published

    async def publish_many(
        self,
        stream: str,
        batches: Rows | Iterable[Rows | MarkedBatch],
        *,
        progress: Progress | None = None,
        in_flight: int = IN_FLIGHT,
    ) -> PublishedMany:
        """Publish batches in order, several in flight, and cut large ones to what the server
        accepts.

        `batches` is an iterable of batches, or rows as `publish` takes them, however many. A
        `MarkedBatch` has a mark, and is refused instead of cut.
        `progress` is called with each acknowledged batch. If this raises, acknowledged batches
        stay, and `next_sequence` is the first that is not acknowledged.
        """
        many: PublishedMany = await self._run(
            publish_many(self._session, stream, batches, self._numbering, progress, in_flight)
        )
        return many

    async def count_batches(self, stream: str, batches: Rows | Iterable[Rows]) -> int:
        """Return how many sequences `publish_many` would use for these batches. Publishes
        nothing.
        """
        count: int = await self._run(count_batches(self._session, stream, batches))
        return count

    async def patch(self, stream: str, rows: Iterable[Mapping[str, Any]]) -> Published:
        """Publish one batch that sets some columns of keys, given as for `Client.patch`."""
        return await self.publish(stream, patches(rows))

    async def delete(self, stream: str, keys: Iterable[Mapping[str, Any]]) -> Published:
        """Publish one batch that deletes keys of a keyed stream, given as for `Client.delete`."""
        return await self.publish(stream, deletes(keys))

    async def heartbeat(self, stream: str, instant: datetime) -> Published:
        """Move NOW of an event-time stream to `instant`, if that is later."""
        published: Published = await self._run(
            heartbeat(self._session, stream, instant, self._numbering)
        )
        return published
