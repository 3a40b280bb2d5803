"""The loop of every source: ask the store for the mark, go there, read, publish rows and mark."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from client_sdk import AsyncClient, PsoupError, PublisherRecord, Stream
from psoup.source.errors import PlaceLost, SourceAway
from psoup.source.feeding.bad_rows import BadRows
from psoup.source.feeding.batches import BATCH_BYTES, BATCH_SECONDS, Assembler, Batch, own_mark
from psoup.source.feeding.fence import CopyFence
from psoup.source.feeding.heartbeat import PartitionProgress, ReachedTime
from psoup.source.feeding.piece import REACHED, Mark, PushedReader, Reader, decode_mark
from psoup.source.feeding.publishing import MarkMoved, Publishing, is_transient
from psoup.source.feeding.queue import BatchQueue, MemoryBudget
from psoup.source.feeding.report import Report

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 30.0
# How long what is in flight may take when the feed is to stop.
STOP_SECONDS = 10.0

OpenReader = Callable[[Mark], Reader]


@dataclass
class Feed:
    """Records of one reader into one stream, each once, under one publisher.

    With `beats` the marks also have the greatest event time, which `reached` is of now.

    `open_reader` opens the place to read from at a mark. `begin` returns, in a thread, the one to
    begin with if the store has none. `lease` is how long the store remembers the
    publisher. A feed with `patience_seconds` fails if the store does not answer for that long.
    Feeds of one source share a `budget`; their batches have at most `most_bytes`. Nothing goes into
    another store than the one with `store_id`; if that is empty, the first one that answers.
    """

    client: AsyncClient
    stream: Stream
    publisher: str
    open_reader: OpenReader
    bad_rows: BadRows = field(default_factory=BadRows)
    begin: Callable[[], Mark] = dict
    lease: timedelta | None = None
    fence: CopyFence = field(default_factory=CopyFence)
    patience_seconds: float | None = None
    report: Report = field(default_factory=lambda: Report(""))
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    beats: bool = False
    budget: MemoryBudget = field(default_factory=MemoryBudget)
    most_bytes: int = BATCH_BYTES
    store_id: str = ""
    reached: ReachedTime | None = None
    # Whether the reader is open and at its end, and how many batches are read and not published.
    _at_end: bool = False
    _unpublished: int = 0
    _has_rows: bool = False

    async def run(self) -> None:
        """Feed until the reader has reached its end, or `stopping` is set. Raises SourceError, and
        PsoupError if the store refuses."""
        pause = FIRST_PAUSE_SECONDS
        while not self.stopping.is_set():
            rows = self.report.rows
            try:
                await self._run_once()
                return
            except MarkMoved as error:
                self.report.now("waiting", str(error))
                try:
                    await self._wait(self.fence.lost(self._sequence))
                    continue
                except PsoupError as failure:
                    if not is_transient(failure):
                        raise
            except SourceAway as error:
                self.report.now("waiting", str(error))
            except PsoupError as error:
                if self.patience_seconds is not None or not is_transient(error):
                    raise
                self.report.now("waiting", error.message)
            pause = FIRST_PAUSE_SECONDS if self.report.rows > rows else pause
            await self._wait(asyncio.sleep(pause))
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def progress(self) -> PartitionProgress:
        """Return whether everything is read and published, and how far the event time is."""
        is_idle = self._at_end and not self._unpublished
        return PartitionProgress(is_idle, self._has_rows or self.report.rows > 0, self.reached)

    async def record(self) -> PublisherRecord | None:
        """Return what the store knows of the publisher."""
        owner = await self.client.owner()
        async for record in self.client.publishers(owner=owner, prefix=self.publisher):
            if record.name == self.publisher:
                return record
        return None

    async def _sequence(self) -> int:
        record = await self.record()
        return record.sequence if record else 0

    async def _wait(self, waiting: Any) -> None:
        """Wait, but not longer than until the feed is to stop."""
        waiter = asyncio.ensure_future(waiting)
        stop = asyncio.ensure_future(self.stopping.wait())
        try:
            await asyncio.wait((waiter, stop), return_when=asyncio.FIRST_COMPLETED)
            if waiter.done():
                waiter.result()
        finally:
            for task in (waiter, stop):
                task.cancel()

    async def _run_once(self) -> None:
        await self._check_store()
        record = await self.record()
        mark = self._mark_of(record) if record else await asyncio.to_thread(self.begin)
        self._note_reached(record, mark)
        reader = await asyncio.to_thread(self.open_reader, own_mark(mark))
        sequence = record.sequence + 1 if record else 1
        publisher = self.client.publisher(self.publisher, next_sequence=sequence, lease=self.lease)
        publishing = Publishing(self, publisher, reader, mark)
        assembler = Assembler(reader, mark, self.stream.schema, self.most_bytes)
        queue = BatchQueue(self.budget)
        self._at_end, self._unpublished = False, 0
        reading = asyncio.create_task(self._read(reader, assembler, queue))
        self.report.now("reading")
        try:
            await self._publish(publishing, queue)
        finally:
            self._at_end = False
            reading.cancel()
            reader.interrupt()
            # A poll that is under way ends in its own thread; only then the reader is closed.
            with suppress(asyncio.CancelledError, Exception):
                await reading
            await queue.close()
            await asyncio.to_thread(reader.close)

    def _mark_of(self, record: PublisherRecord) -> Mark:
        try:
            return decode_mark(record.mark)
        except ValueError:
            raise PlaceLost(
                f"the mark of publisher {self.publisher} was not written by a source; choose "
                "another name"
            ) from None

    def _note_reached(self, record: PublisherRecord | None, mark: Mark) -> None:
        if record is not None:
            self._has_rows = record.row_count > 0
            if self.beats and REACHED in mark:
                self.reached = ReachedTime(int(mark[REACHED]), record.published_at.timestamp())

    async def _check_store(self) -> None:
        """Raise PlaceLost if another store answers than before: it has other marks."""
        store_id = (await self.client.status()).store_id
        if self.store_id not in ("", store_id):
            raise PlaceLost("another store answers at the target; nothing was published to it")
        self.store_id = store_id

    async def _read(self, reader: Reader, assembler: Assembler, queue: BatchQueue) -> None:
        polling: asyncio.Future[Batch | None] | None = None
        try:
            while True:
                if isinstance(reader, PushedReader):
                    await reader.arrival(BATCH_SECONDS)
                polling = asyncio.ensure_future(asyncio.to_thread(assembler.next))
                batch = await asyncio.shield(polling)
                self._at_end = reader.at_end
                if batch is None:
                    continue
                self._unpublished += 1
                await queue.put(batch)
                if batch.is_last:
                    return
        except Exception as error:
            await queue.fail(error)
        finally:
            if polling is not None and not polling.done():
                with suppress(Exception):
                    await polling

    async def _publish(self, publishing: Publishing, queue: BatchQueue) -> None:
        stop = asyncio.create_task(self.stopping.wait())
        taking: asyncio.Task[list[Batch]] | None = None
        try:
            while True:
                taking = asyncio.create_task(queue.take())
                await asyncio.wait((taking, stop), return_when=asyncio.FIRST_COMPLETED)
                if stop.done():
                    return
                batches = taking.result()
                await self._finish_in_time(publishing.send(batches))
                await queue.release(batches)
                self._unpublished -= len(batches)
                if batches[-1].is_last:
                    self.report.now("done")
                    return
        finally:
            for task in (taking, stop):
                if task is not None:
                    task.cancel()

    async def _finish_in_time(self, sending: Any) -> None:
        """Wait for a publish; when the feed is to stop, for STOP_SECONDS at most."""
        task = asyncio.ensure_future(sending)
        stop = asyncio.ensure_future(self.stopping.wait())
        try:
            await asyncio.wait((task, stop), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                await asyncio.wait((task,), timeout=STOP_SECONDS)
            if task.done():
                task.result()
        finally:
            stop.cancel()
            task.cancel()
