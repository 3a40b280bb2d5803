"""Sources: the processor time of a row from where it is to the store's acknowledgement."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa

from benchmarks import sources_live
from benchmarks.report import Report
from benchmarks.source_rows import STREAM, json_row, processor_seconds
from client_sdk import AsyncClient, Client, Stream
from psoup.source.connectors.delta import DeltaReader
from psoup.source.connectors.delta_log import DeltaLog
from psoup.source.connectors.kafka.decoding import MessageDecoder
from psoup.source.connectors.pipe import PipeReader
from psoup.source.feeding.feed import Feed
from psoup.source.feeding.piece import Mark, Piece
from psoup.source.mapping import RowMapping
from psoup.source.readers import Options
from tests.support.server.process import ServerProcess

AIM_ROWS = 20_000
AIM_COMMIT_MS = 20.0
AIM_IDLE_SHARE = 0.01


def run(folder: Path, quick: bool) -> Report:
    rows = 50_000 if quick else 400_000
    report = Report("sources", f"{rows:,} rows of four columns into a server of its own")
    server = ServerProcess(folder / "store")
    try:
        with Client(server.address) as client:
            client.define(STREAM)
            stream = client.stream("s")
        # The first source of a process imports what it needs.
        with _pipe(_csv(1000)) as descriptor:
            reader = PipeReader(descriptor, "first", "csv", stream, Options())
            asyncio.run(_feed(server.address, stream, "first", partial(_same, reader)))
        for name, form, content in (
            ("CSV in a pipe", "csv", _csv(rows)),
            ("lines of JSON in a pipe", "jsonl", _json_lines(rows)),
        ):
            with _pipe(content) as descriptor:
                reader = PipeReader(descriptor, name, form, stream, Options())
                _measure(report, name, server, stream, partial(_same, reader), rows)
        messages = _messages(rows)
        _measure(
            report,
            "messages of JSON, one partition of Kafka without its broker",
            server,
            stream,
            lambda mark: _MessageReader(stream, messages),
            rows,
        )
        _measure_delta(report, folder, stream, 5 if quick else 20)
        _measure_idle(report, folder, server, stream, 3.0 if quick else 20.0)
    finally:
        server.stop()
    sources_live.measure(report, folder / "live", quick)
    return report


def _same(reader: PipeReader, mark: Mark) -> PipeReader:
    return reader


def _measure(
    report: Report,
    name: str,
    server: ServerProcess,
    stream: Stream,
    open_reader: Callable[[Mark], Any],
    rows: int,
) -> None:
    before, server_before = time.process_time(), processor_seconds([server.pid])
    asyncio.run(_feed(server.address, stream, name, open_reader))
    seconds = time.process_time() - before
    server_seconds = processor_seconds([server.pid]) - server_before
    rate = rows / seconds
    aim = f"≥ {AIM_ROWS:,} rows/s"
    report.add(f"{name}: the source", rate, "rows/s", aim=aim, met=rate >= AIM_ROWS)
    report.add(f"{name}: the server", rows / server_seconds, "rows/s")


async def _feed(
    target: str,
    stream: Stream,
    name: str,
    open_reader: Callable[[Mark], Any],
    seconds: float | None = None,
) -> None:
    async with AsyncClient(target) as client:
        feed = Feed(client, stream, name, open_reader)
        if seconds is not None:
            asyncio.get_running_loop().call_later(seconds, feed.stopping.set)
        await feed.run()


def _measure_delta(report: Report, folder: Path, stream: Stream, commits: int) -> None:
    path = str(folder / "table")
    table = pa.table({"symbol": ["IBM"], "price": [1.5], "size": [1], "at": _instants(1)})
    deltalake.write_deltalake(path, table)
    log = DeltaLog(path)
    mark = {"table": log.table_id, "version": 0}
    reader = DeltaReader(log, stream, Options(lenient=True), False, mark)
    for _ in range(commits):
        deltalake.write_deltalake(path, table, mode="append")
    before = time.process_time()
    _drain(reader)
    milliseconds = (time.process_time() - before) / commits * 1e3
    aim = f"≤ {AIM_COMMIT_MS:g} ms"
    report.add(
        "a commit of a Delta table", milliseconds, "ms", aim=aim, met=milliseconds <= AIM_COMMIT_MS
    )


def _drain(reader: DeltaReader) -> None:
    waits = 0
    while waits < 2:
        waits = waits + 1 if reader.poll(1.5) is None else 0


def _measure_idle(
    report: Report, folder: Path, server: ServerProcess, stream: Stream, seconds: float
) -> None:
    log = DeltaLog(str(folder / "table"))

    def open_reader(mark: Mark) -> DeltaReader:
        newest = {"table": log.table_id, "version": log.latest()}
        return DeltaReader(log, stream, Options(lenient=True), False, mark or newest)

    asyncio.run(_feed(server.address, stream, "idle", open_reader, 2.0))
    before = time.process_time()
    asyncio.run(_feed(server.address, stream, "idle", open_reader, seconds))
    share = (time.process_time() - before) / seconds
    report.add(
        "an idle Delta source", 100 * share, "% of a core", aim="≤ 1 %", met=share <= AIM_IDLE_SHARE
    )


def _instants(count: int) -> pa.Array:
    begin = 1_700_000_000_000_000
    return pa.array(range(begin, begin + count), pa.timestamp("us", tz="UTC"))


def _csv(rows: int) -> bytes:
    lines = (f"S{n % 500},{n % 997 / 4},{n},2023-11-14T22:13:20.{n:06}Z\n" for n in range(rows))
    return ("symbol,price,size,at\n" + "".join(lines)).encode()


def _json_lines(rows: int) -> bytes:
    return "".join(f"{json_row(number)}\n" for number in range(rows)).encode()


@contextmanager
def _pipe(content: bytes) -> Iterator[int]:
    read_end, write_end = os.pipe()

    def write() -> None:
        with os.fdopen(write_end, "wb") as sink:
            sink.write(content)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield read_end
    finally:
        os.close(read_end)
        thread.join()


@dataclass(slots=True)
class _Message:
    """A message as librdkafka hands it over."""

    number: int
    content: bytes

    def value(self) -> bytes:
        return self.content

    def offset(self) -> int:
        return self.number


def _messages(rows: int) -> list[_Message]:
    return [_Message(number, json_row(number).encode()) for number in range(rows)]


class _MessageReader:
    """Messages in the sizes in which a consumer hands them over."""

    can_seek = False
    at_end = False

    def __init__(self, stream: Stream, messages: list[_Message]) -> None:
        self._decoder = MessageDecoder(stream, RowMapping(stream, {}), "json")
        self._empty = stream.schema.empty_table()
        self._messages = messages
        self._at = 0

    def poll(self, seconds: float) -> Piece | None:
        messages = self._messages[self._at : self._at + 10_000]
        self._at += len(messages)
        if not messages:
            return Piece(self._empty, is_last=True)
        pieces = self._decoder.pieces(
            messages, lambda offset: {"offset": offset}, lambda *_: iter(())
        )
        return next(pieces)

    def acknowledge(self, mark: Mark) -> None:
        pass

    def interrupt(self) -> None:
        pass

    def close(self) -> None:
        pass
