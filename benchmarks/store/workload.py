"""The workload of `benchmarks/run store`: a stream, queries and rows, made up or the user's."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from client_sdk import Stream
from psoup.cli.output import counted, note
from psoup.cli.problems import fail
from psoup.source.readers import Options, read

LANES, STATIONS = 8, 82
BATCH_ROWS = 20_000
_CREATE_STREAM = re.compile(r"\s*create\s+stream\s+([a-z][a-z0-9_]*)", re.IGNORECASE)
# A semicolon ends a query only at the end of a line: others may be part of a text.
_QUERY_END = re.compile(r";[ \t]*(?:\n|\Z)")


@dataclass(frozen=True, slots=True)
class Workload:
    """A stream, its queries and its rows. If `data` is None, traffic is made up."""

    definition: str
    queries: tuple[str, ...]
    data: Path | None = None

    @property
    def stream(self) -> str:
        match = _CREATE_STREAM.match(self.definition)
        if match is None:
            fail("--stream: write CREATE STREAM name (…), or the name of a file with it")
        return match[1].lower()

    def rows(self, stream: Stream, limit: int) -> pa.Table:
        """Return at most `limit` rows, in memory: reading a file is not to be measured."""
        return _traffic(limit) if self.data is None else _read(self.data, stream, limit)


def traffic(count: int) -> Workload:
    """Return speeds of cars by lane and station, and queries of one lane at one station each."""
    name = f"psoup_bench_{secrets.token_hex(4)}"
    definition = (
        f"CREATE STREAM {name} (lane BIGINT, station BIGINT, speed DOUBLE, at TIMESTAMP) "
        "ORDERED BY at RETAIN 1 DAY"
    )
    return Workload(definition, tuple(_query(name, number) for number in range(count)))


def user_workload(stream: str | None, queries: Path | None, data: Path | None) -> Workload:
    """Return the user's own workload; raise a Problem unless all three parts are given."""
    if not stream or queries is None or data is None:
        fail("--stream, --queries and --data belong together: give all three, or none")
    texts = (text.strip() for text in _QUERY_END.split(queries.read_text("utf-8")))
    statements = tuple(text for text in texts if text)
    if not statements:
        fail(f"{queries.name} has no query in it")
    path = Path(stream)
    looks_like_sql = _CREATE_STREAM.match(stream) is not None
    definition = stream if looks_like_sql or not path.is_file() else path.read_text("utf-8")
    return Workload(definition, statements, data)


def batches(table: pa.Table) -> Iterator[pa.Table]:
    for start in range(0, table.num_rows, BATCH_ROWS):
        yield table.slice(start, BATCH_ROWS)


def _query(stream: str, number: int) -> str:
    lane, station = number % LANES + 1, number // LANES % STATIONS + 1
    return (
        f"SELECT lane, station, speed, at FROM {stream} WHERE lane = {lane} "
        f"AND station = {station} AND speed >= {number % 10} RANGE 1 MINUTE"
    )


def _traffic(count: int) -> pa.Table:
    """Return a row for each millisecond; the last one is of now."""
    start = datetime.now(UTC) - timedelta(milliseconds=count)
    first = pa.scalar(start, pa.timestamp("us", tz="UTC")).cast(pa.int64())
    steps = pa.array(range(0, count * 1000, 1000), pa.int64())
    return pa.table(
        {
            "lane": _whole(count, LANES, 1),
            "station": _whole(count, STATIONS, 2),
            "speed": pc.multiply(pc.random(count, initializer=3), 100.0),
            "at": pc.add(steps, first).cast(pa.timestamp("us", tz="UTC")),
        }
    )


def _whole(count: int, top: int, seed: int) -> pa.Array:
    """Return random whole numbers from 1 to `top`."""
    drawn = pc.floor(pc.multiply(pc.random(count, initializer=seed), float(top)))
    return pc.add(drawn.cast(pa.int64()), 1)


def _read(path: Path, stream: Stream, limit: int) -> pa.Table:
    tables, bad, count = [], 0, 0
    for chunk in read(path, stream, Options(), lambda _: None):
        tables.append(chunk.table)
        bad += len(chunk.bad)
        count += chunk.table.num_rows
        if count >= limit:
            break
    if bad:
        note(f"left out of {path.name}: {counted(bad, 'bad line')}; `psoup publish` names them")
    if not count:
        fail(f"{path.name} has no row for {stream.name}")
    return pa.concat_tables(tables).slice(0, limit)
