"""The running of sources: one task for each partition of each source, in one process."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from client_sdk import (
    AsyncClient,
    Conflict,
    NotFound,
    PreconditionFailed,
    PsoupError,
    Stream,
)
from psoup.source.connectors.partition import Connector, Context, Partition, Records
from psoup.source.connectors.registry import make_connector
from psoup.source.errors import BadSettings, NoMark, PlaceLost, SourceAway, SourceError
from psoup.source.feeding.bad_rows import ASIDE_COLUMNS
from psoup.source.feeding.feed import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, Feed
from psoup.source.feeding.fence import CopyFence
from psoup.source.feeding.heartbeat import heartbeat_instant
from psoup.source.feeding.piece import REPLAY, encode_mark
from psoup.source.feeding.publishing import SEQUENCE_REASONS, is_transient
from psoup.source.feeding.queue import MemoryBudget, batch_bytes
from psoup.source.feeding.report import Report
from psoup.source.settings import SourceSettings
from psoup.source.status import StatusFile

Notice = Callable[[str], None]
_SHOWN_CHARACTERS = 300
_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


async def source_records(client: AsyncClient, name: str) -> Records:
    """Return what the store knows of the publishers of a source."""
    owner = await client.owner()
    publishers = client.publishers(owner=owner, prefix=f"{name}/")
    return {record.name: record async for record in publishers}


async def source_stream(
    client: AsyncClient, settings: SourceSettings, *, validate_only: bool = False
) -> Stream:
    """Return the stream of a source; create it if it is missing and the settings say how. With
    `validate_only` return the one that would be created, whose id is 0.
    """
    try:
        return await client.stream(settings.stream)
    except NotFound:
        if not settings.create:
            raise SourceError(
                f"there is no stream {settings.stream}: create it, or let the source do so with "
                'create = "CREATE STREAM …"'
            ) from None
    if validate_only:
        planned = (await client.define(settings.create, validate_only=True)).stream
        if planned is None or planned.name != settings.stream:
            raise BadSettings(f"create: the statement does not create {settings.stream}")
        return planned
    try:
        await client.define(settings.create)
    except Conflict as error:
        # Another copy of the source creates it at the same time.
        if error.reason != "STREAM_EXISTS":
            raise
    return await client.stream(settings.stream)


def check_heartbeat(settings: SourceSettings, stream: Stream) -> None:
    """Raise BadSettings for heartbeats into a stream whose NOW is the clock."""
    if settings.heartbeat_seconds and stream.now_is_clock:
        time = "ORDERED BY … CLOCK" if stream.by_clock else "no ORDERED BY"
        raise BadSettings(
            f"idle_heartbeat: stream {stream.name} has {time}, so its NOW is the clock and needs "
            "no heartbeats; leave it out"
        )


async def check_aside(client: AsyncClient, settings: SourceSettings) -> None:
    """Raise BadSettings if the aside stream can't take bad rows."""
    if not settings.aside:
        return
    stream = await client.stream(settings.aside)
    columns = tuple((column.name, column.type) for column in stream.columns)
    if columns != tuple((name, "TEXT") for name in ASIDE_COLUMNS) or stream.key:
        raise BadSettings(
            f"aside: stream {settings.aside} must have the columns {', '.join(ASIDE_COLUMNS)}, all "
            "TEXT, and no KEY"
        )


@dataclass
class SourceRunner:
    """Runs one source until it stops or `stopping` is set.

    `start` is where to begin if the store has no mark: `earliest`, `latest` or a mark. If it is
    empty, a stream that has rows is not begun with.
    """

    settings: SourceSettings
    status: StatusFile
    notice: Notice
    start: str = ""
    standby: bool = False
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _feeds: dict[str, Feed] = field(default_factory=dict)
    _budget: MemoryBudget = field(default_factory=MemoryBudget)

    async def run(self) -> None:
        """Raises SourceError or PsoupError if the source can't go on; the status says why."""
        try:
            await self._run()
        except (SourceError, PsoupError) as error:
            self.status.source(self.settings.name, "stopped", str(error))
            raise
        except Exception as error:
            # A fault of this program, or of a library: the other sources run on.
            failure = SourceError(described(error))
            self.status.source(self.settings.name, "stopped", str(failure))
            raise failure from error
        self.status.source(self.settings.name, "ended")

    async def _run(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        self.status.source(self.settings.name, "starting")
        async with self.settings.store.client() as client:
            while not self.stopping.is_set():
                try:
                    await self._run_partitions(client)
                    return
                except SourceAway as error:
                    message = str(error)
                except PsoupError as error:
                    if not is_transient(error):
                        raise
                    message = error.message
                self.status.source(self.settings.name, "waiting", message)
                self.notice(f"{self.settings.name}: waiting: {message}")
                await self._sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    async def _sleep(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self.stopping.wait(), seconds)
        except TimeoutError:
            return

    async def _run_partitions(self, client: AsyncClient) -> None:
        name = self.settings.name
        store_id = (await client.status()).store_id
        self._check_store(store_id)
        stream = await source_stream(client, self.settings)
        check_heartbeat(self.settings, stream)
        await check_aside(client, self.settings)
        context = Context(self.settings, stream, client, self.notice)
        connector = make_connector(context)
        records = await source_records(client, name)
        self._check_mark(connector, records, stream)
        if self.start and await self._store_start(client, stream, connector, records):
            records = await source_records(client, name)
        tasks: dict[str, asyncio.Task[None]] = {}
        self._feeds.clear()
        self.status.source(name, "running")
        beating = asyncio.create_task(self._beat(client, stream, tasks))
        try:
            while not self.stopping.is_set():
                partitions = await asyncio.to_thread(connector.partitions, records)
                most_bytes = batch_bytes(min(len(partitions), connector.parallel))
                for partition in partitions[: connector.parallel]:
                    if partition.publisher not in tasks and len(tasks) < connector.parallel:
                        tasks[partition.publisher] = asyncio.create_task(
                            self._feed(client, stream, partition, most_bytes)
                        )
                await self._wait(tasks, connector.look_seconds)
                self.status.note_left_out(name, connector.left_out)
                for publisher in [key for key, task in tasks.items() if task.done()]:
                    tasks.pop(publisher).result()
                    self._feeds.pop(publisher, None)
                if not tasks and not connector.look_seconds:
                    return
        finally:
            beating.cancel()
            # Feeds end by themselves if the source is to stop; after an error they are cut off.
            for task in tasks.values() if not self.stopping.is_set() else ():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)

    async def _beat(
        self, client: AsyncClient, stream: Stream, tasks: Mapping[str, asyncio.Task[None]]
    ) -> None:
        """Move NOW of the stream while all partitions are at their ends, until cancelled."""
        seconds, previous = self.settings.heartbeat_seconds, 0
        while seconds:
            await asyncio.sleep(seconds)
            if not tasks or self._feeds.keys() != tasks.keys():
                continue
            progress = [feed.progress() for feed in self._feeds.values()]
            instant = heartbeat_instant(progress, time.time(), seconds)
            if instant is None or instant <= previous:
                continue
            try:
                await client.heartbeat(stream.name, _UNIX_EPOCH + timedelta(microseconds=instant))
                previous = instant
            except PsoupError as error:
                self.notice(f"{self.settings.name}: no heartbeat: {error.message}")

    def _check_store(self, store_id: str) -> None:
        """Raise PlaceLost if another store answers than in the last run: it has other marks."""
        previous = self.status.store(self.settings.name)
        if previous not in ("", store_id):
            raise PlaceLost(
                f"another store answers at {self.settings.store.target} than when the source last "
                f"ran: {store_id}, and not {previous}. It has other marks, and nothing was "
                f"published to it. If it is meant, remove {self.status.path}"
            )
        self.status.note_store(self.settings.name, store_id)

    def _check_mark(self, connector: Connector, records: Records, stream: Stream) -> None:
        # What was replayed out of the aside stream says nothing of the source itself.
        marks = records.keys() - {f"{self.settings.name}/{REPLAY}"}
        if marks or self.start or connector.fresh_partitions or not stream.row_count:
            return
        raise NoMark(
            f"stream {stream.name} has rows, and the store has no mark of {self.settings.name}: "
            "perhaps it ran as another owner. Say where to begin with --from earliest, latest or "
            "a mark"
        )

    async def _store_start(
        self, client: AsyncClient, stream: Stream, connector: Connector, records: Records
    ) -> bool:
        """Store the mark to begin with for each partition, without rows, if there is none; return
        whether there was none. So a partition that is quiet begins there after a restart, too.

        The first partition comes last: a start that was interrupted is made again.
        """
        if connector.fresh_partitions and self.start != "earliest":
            raise BadSettings(
                "--from is not for files, each of which is read once; pass over one with skip"
            )
        partitions = await asyncio.to_thread(connector.partitions, records)
        if not partitions or partitions[0].publisher in records:
            return False
        empty = stream.schema.empty_table()
        for partition in reversed(partitions):
            if partition.publisher in records:
                continue
            mark = await asyncio.to_thread(partition.begin, self.start)
            if not mark:
                continue
            publisher = client.publisher(partition.publisher, lease=partition.lease)
            try:
                await publisher.publish(stream.name, empty, mark=encode_mark(mark))
            except (Conflict, PreconditionFailed) as error:
                if error.reason not in SEQUENCE_REASONS:
                    raise
                # Another process has begun with it.
        return True

    async def _wait(self, tasks: dict[str, asyncio.Task[None]], seconds: float) -> None:
        stop = asyncio.ensure_future(self.stopping.wait())
        try:
            await asyncio.wait(
                {stop, *tasks.values()},
                timeout=seconds or None,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            stop.cancel()

    async def _feed(
        self, client: AsyncClient, stream: Stream, partition: Partition, most_bytes: int
    ) -> None:
        report = Report(partition.publisher, self.notice)
        self.status.add(self.settings.name, report)
        try:
            feed = Feed(
                client,
                stream,
                partition.publisher,
                partition.open_reader,
                self.settings.policy(),
                # A partition that is new in a source that has marks is read from its beginning.
                begin=partial(partition.begin, "earliest"),
                lease=partition.lease,
                fence=CopyFence(self.standby),
                report=report,
                stopping=self.stopping,
                beats=self.settings.heartbeat_seconds > 0,
                store_id=self.status.store(self.settings.name),
                budget=self._budget,
                most_bytes=most_bytes,
            )
            self._feeds[partition.publisher] = feed
            await feed.run()
            if report.state == "done":
                await asyncio.to_thread(partition.finished)
                self.status.remove(self.settings.name, report)
        except (SourceError, PsoupError) as error:
            report.now("stopped", str(error))
            raise
        except Exception as error:
            report.now("stopped", described(error))
            raise


def described(error: Exception) -> str:
    """Return what an unexpected error was, and the line of the program that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"unexpected {type(error).__name__}{place}: {str(error)[:_SHOWN_CHARACTERS]}"


async def run_sources(runners: list[SourceRunner]) -> dict[str, Exception | None]:
    """Run sources until all have stopped; return by name why they did."""
    results = await asyncio.gather(*(runner.run() for runner in runners), return_exceptions=True)
    outcome: dict[str, Exception | None] = {}
    for runner, result in zip(runners, results, strict=True):
        if isinstance(result, BaseException) and not isinstance(result, Exception):
            raise result
        outcome[runner.settings.name] = result
    return outcome
