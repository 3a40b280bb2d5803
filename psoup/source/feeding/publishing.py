"""The publishing of batches with their marks, several in flight."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from client_sdk import (
    AsyncPublisher,
    Conflict,
    ConnectionFailed,
    InvalidRequest,
    LimitExceeded,
    MarkedBatch,
    PreconditionFailed,
    PsoupError,
    Published,
    QuotaExceeded,
    RowProblem,
    ServerError,
    Timeout,
)
from psoup.source.errors import AnotherCopy, BadRowFound
from psoup.source.feeding.batches import Batch
from psoup.source.feeding.heartbeat import ReachedTime, greatest_instant
from psoup.source.feeding.piece import ASIDE, REACHED, Mark, Reader, encode_mark
from psoup.source.feeding.queue import IN_FLIGHT

if TYPE_CHECKING:
    from psoup.source.feeding.feed import Feed

SEQUENCE_REASONS = frozenset({"SEQUENCE_GAP", "SEQUENCE_REUSED"})
_FULL_REASONS = frozenset({"OVERLOADED", "LOG_FULL"})
# Records that go aside at once, each character up to 4 bytes: a message of the wire takes 16 MiB.
ASIDE_CHARACTERS = 2 << 20
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.2, 15.0


class MarkMoved(Exception):
    """The store has another batch under the publisher's next sequence than this process sent."""


def is_transient(error: PsoupError) -> bool:
    """Return whether the same call may succeed later, without anyone doing anything."""
    if isinstance(error, ConnectionFailed | Timeout | ServerError):
        return True
    return error.detail.retry_after is not None or error.reason in _FULL_REASONS


class Publishing:
    """Publishes the batches of one reader under one publisher, in order.

    While the store does not take them, they are sent again under the same sequences. So also a
    reader that can't go back loses nothing.
    """

    def __init__(self, feed: Feed, publisher: AsyncPublisher, reader: Reader, mark: Mark) -> None:
        self._feed = feed
        self._publisher = publisher
        self._reader = reader
        self._mark: Mark = {key: value for key, value in mark.items() if key != REACHED}

    async def send(self, batches: list[Batch]) -> None:
        """Publish batches. Returns when the store has all of them."""
        feed, ready = self._feed, list[Batch]()
        for batch in batches:
            feed.bad_rows.count(sum(not row.is_aside for row in batch.bad), batch.records)
            if not batch.records and batch.mark == self._mark:
                continue
            if batch.bad:
                await self._publish(ready)
                await self._publish_with_bad(batch)
                ready = []
            else:
                ready.append(batch)
        await self._publish(ready)

    async def _publish_with_bad(self, batch: Batch) -> None:
        fresh = [row for row in batch.bad if not row.is_aside]
        if fresh and self._feed.bad_rows.policy == "stop":
            # Everything before it goes into the store.
            if fresh[0].record:
                await self._publish([batch.head(fresh[0].record).without_bad()])
            raise BadRowFound(f"bad row at {fresh[0]}; {_way_on(batch, fresh[0].record)}")
        if fresh and self._feed.bad_rows.policy == "aside":
            size = sum(len(row.raw) + len(row.metadata) for row in fresh)
            if size > ASIDE_CHARACTERS and batch.records > 1:
                half = batch.records // 2
                await self._publish_with_bad(batch.head(half))
                await self._publish_with_bad(batch.tail(half))
                return
            # With the old mark, so that the good rows are still to come.
            table = self._feed.bad_rows.table(self._feed.publisher, fresh)
            await self._publish_aside(MarkedBatch(table, self._aside_mark(batch)))
        for row in fresh:
            self._feed.report.bad_row(row)
        await self._publish([batch.without_bad()])

    def _aside_mark(self, batch: Batch) -> bytes:
        return self._encoded({**self._mark, ASIDE: batch.records}, self._feed.reached)

    async def _publish_aside(self, batch: MarkedBatch) -> None:
        await self._retried(self._feed.bad_rows.aside, [batch], self._count_nothing)

    def _count_nothing(self, batches: int) -> None:
        """Count no batch: rows that are put aside move no mark of the reader."""

    async def _publish(self, batches: list[Batch]) -> None:
        """Publish batches without bad rows; a row that the store refuses is a bad row."""
        while batches:
            reached = self._reached(batches)
            marked = [
                MarkedBatch(batch.table, self._encoded(batch.mark, instant))
                for batch, instant in zip(batches, reached, strict=True)
            ]
            acknowledged = 0

            def count(
                number: int,
                batches: list[Batch] = batches,
                reached: list[ReachedTime | None] = reached,
            ) -> None:
                nonlocal acknowledged
                acknowledged = number
                self._feed.reached = reached[number - 1]
                self._acknowledge(batches[number - 1])

            try:
                await self._retried(self._feed.stream.name, marked, count)
                return
            except (InvalidRequest, LimitExceeded) as error:
                refused, batches = batches[acknowledged], batches[acknowledged:]
                await self._refused(refused, error)
                batches = batches[1:]

    def _reached(self, batches: list[Batch]) -> list[ReachedTime | None]:
        """Return how far the event time has come with each batch; None without heartbeats."""
        reached, latest = list[ReachedTime | None](), self._feed.reached
        column = self._feed.stream.ordered_by if self._feed.beats else None
        for batch in batches:
            instant = greatest_instant(batch.table, column)
            if instant is not None:
                past = instant if latest is None else max(instant, latest.instant)
                latest = ReachedTime(past, time.time())
            reached.append(latest)
        return reached

    @staticmethod
    def _encoded(mark: Mark, reached: ReachedTime | None) -> bytes:
        return encode_mark(mark if reached is None else {**mark, REACHED: reached.instant})

    def _acknowledge(self, batch: Batch) -> None:
        self._mark = batch.mark
        self._feed.report.published(batch.table.num_rows, dict(batch.mark))
        self._reader.acknowledge(batch.mark)

    async def _refused(self, batch: Batch, error: PsoupError) -> None:
        """Handle a batch that the store refuses because of a row. Raises `error` if it is not."""
        row, rows = error.detail.row, batch.table.num_rows
        is_too_large = isinstance(error, LimitExceeded) and not isinstance(error, QuotaExceeded)
        if is_too_large and batch.records > 1:
            half = batch.records // 2
            await self._publish([batch.head(half)])
            await self._publish([batch.tail(half)])
        elif is_too_large and rows == 1:
            await self._publish_with_bad(batch.with_bad(0, "ROW_TOO_LARGE", error.message))
        elif isinstance(error, RowProblem) and 0 <= row < rows:
            await self._publish_with_bad(batch.with_bad(row, error.reason, error.message))
        else:
            raise error

    async def _retried(self, stream: str, batches: list[MarkedBatch], count: object) -> None:
        """Publish batches, again and again while the store does not answer. Raises MarkMoved.

        `count` is called with the number of batches that are acknowledged so far.
        """
        feed, first = self._feed, self._publisher.next_sequence
        pause, since, duplicates = _FIRST_PAUSE_SECONDS, time.monotonic(), 0
        acknowledged = 0

        def progress(published: Published) -> None:
            nonlocal duplicates, acknowledged, since
            duplicates += published.duplicate
            acknowledged += 1
            since = time.monotonic()
            count(acknowledged)  # type: ignore[operator]

        while acknowledged < len(batches):
            try:
                await self._publisher.publish_many(
                    stream, batches[acknowledged:], progress=progress, in_flight=IN_FLIGHT
                )
            except (Conflict, PreconditionFailed) as error:
                if error.reason in SEQUENCE_REASONS:
                    raise self._moved(error.message) from None
                raise
            except PsoupError as error:
                waited = time.monotonic() - since
                if not is_transient(error) or waited > (feed.patience_seconds or waited):
                    raise
                feed.report.now("waiting", error.message)
                retry_after = error.detail.retry_after
                seconds = max(pause, retry_after.total_seconds() if retry_after else 0.0)
                await asyncio.sleep(seconds)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        feed.report.now("reading")
        if duplicates:
            await self._verify(first + len(batches) - 1, batches[-1].mark)

    async def _verify(self, sequence: int, mark: bytes) -> None:
        """Raise MarkMoved unless the store has this mark: a duplicate may be another copy's."""
        record = await self._feed.record()
        if record is None or (record.sequence, record.mark) != (sequence, mark):
            raise self._moved("a batch was there already")

    def _moved(self, message: str) -> Exception:
        if not self._reader.can_seek:
            return AnotherCopy(f"another process publishes as {self._feed.publisher}: {message}")
        return MarkMoved(f"another process publishes as {self._feed.publisher}")


def _way_on(batch: Batch, record: int) -> str:
    """Return how to go on after a record of a batch."""
    mark = batch.mark_after(record)
    if mark is None:
        return 'it can\'t be skipped: correct it where it is, or set bad_rows = "aside"'
    return f"the next mark is {encode_mark(mark).decode()}"
