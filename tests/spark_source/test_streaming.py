"""Streaming reads: the planning of batches against a real server, and queries of real Spark."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.datasource import EqualTo, In
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from client_sdk import Client, QueryProblem
from psoup.spark import streaming
from psoup.spark.options import SparkOptions
from psoup.spark.reading import AnswerReader
from psoup.spark.streaming import DataLoss, StreamReader
from tests.spark_source.streaming_program import begin
from tests.support.server.process import ServerProcess
from tests.support.system.processes import Process

pytestmark = pytest.mark.process

WAIT_SECONDS = 300.0
ALL = ReadAllAvailable()
START = datetime(2026, 1, 5, 9, tzinfo=UTC)
MakeReader = Callable[..., StreamReader]


@pytest.fixture
def client(shared_server: ServerProcess, tenant: str) -> Iterator[Client]:
    with Client(shared_server.address, tenant=tenant) as client:
        yield client


@pytest.fixture
def make_reader(
    shared_server: ServerProcess, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[MakeReader]:
    monkeypatch.setattr(streaming, "LATEST_SECONDS", 0.0)
    readers = list[StreamReader]()

    def make(names: str = "k", **options: str) -> StreamReader:
        place = {"target": shared_server.address, "tenant": tenant}
        reader = StreamReader(SparkOptions.of({"stream": "s", **place, **options}), names.split())
        readers.append(reader)
        return reader

    yield make
    for reader in readers:
        reader.stop()


def publish(client: Client, *keys: int, at: timedelta | None = None) -> None:
    extra = {} if at is None else {"at": START + at}
    client.publish("s", [{"k": k, **extra} for k in keys])


def batch(reader: StreamReader, start: Any, end: Any) -> list[int]:
    tables = [
        pa.Table.from_batches(list(reader.read(part)), pa.schema([("k", pa.int64())]))
        for part in reader.partitions(start, end)
    ]
    return [k for table in tables for k in table.column("k").to_pylist()]


def test_batches_between_row_ids(
    client: Client, make_reader: MakeReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.define("CREATE STREAM s (k BIGINT)")
    reader = make_reader()
    start = reader.initialOffset()
    assert reader.latestOffset(start, ALL) == start and not reader.partitions(start, start)
    publish(client, *range(10))
    middle = reader.latestOffset(start, ALL)
    publish(client, *range(10, 25))
    end = reader.latestOffset(middle, ALL)
    assert batch(reader, start, middle) == list(range(10))
    monkeypatch.setattr(streaming, "TASK_ROWS", 4)
    again = make_reader()
    assert len(again.partitions(middle, end)) == 5
    assert batch(again, middle, end) == list(range(10, 25))
    # A restart without a checkpoint, at other places.
    assert make_reader(**{"from": "latest"}).initialOffset()["row"] == 25
    late = make_reader(**{"from": "20"})
    offset = late.initialOffset()
    assert batch(late, offset, late.latestOffset(offset, ALL)) == list(range(20, 25))


def test_a_column_that_is_renamed_while_a_query_runs(
    client: Client, make_reader: MakeReader
) -> None:
    """The query has the name that Spark saw when it began; what it planned is read with it."""
    client.define("CREATE STREAM s (k BIGINT, v TEXT)")
    publish_both = [{"k": k, "v": "x"} for k in range(3)]
    client.publish("s", publish_both)
    reader = make_reader("k")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    (task,) = reader.partitions(start, end)
    client.define("ALTER STREAM s RENAME COLUMN k TO id")
    client.define("ALTER STREAM s RENAME COLUMN id TO number")
    assert batch(reader, start, end) == [0, 1, 2]
    assert [b.schema.names for b in reader.read(task)] == [["k"]]
    client.publish("s", publish_both)
    assert batch(reader, end, reader.latestOffset(end, ALL)) == [0, 1, 2]
    options = reader._options
    frame = AnswerReader(options, ["k", "v"])
    assert not [*frame.pushFilters([EqualTo(("k",), 1), In(("v",), ("x",))])]
    (rows,) = frame.read(frame.partitions()[0])
    assert rows.to_pylist() == [{"k": 1, "v": "x"}] * 2
    client.define("ALTER STREAM s DROP COLUMN number CASCADE")
    with pytest.raises(QueryProblem, match="k") as dropped:
        list(reader.read(task))
    assert dropped.value.detail.hint == "k was dropped from s"


def test_late_rows_that_leave_unread_are_counted(client: Client, make_reader: MakeReader) -> None:
    client.define("CREATE STREAM s (k BIGINT, at TIMESTAMP) ORDERED BY at RETAIN 1 HOUR")
    publish(client, 0, at=timedelta(minutes=60))
    reader = make_reader()
    start = reader.initialOffset()
    first = reader.latestOffset(start, ALL)
    assert batch(reader, start, first) == [0]
    # It is late, and in answers; then it leaves, before NOW has moved by RETAIN.
    publish(client, 1, at=timedelta(minutes=30))
    assert len(client.ask("SELECT k FROM s").rows) == 2
    publish(client, 2, at=timedelta(minutes=100))
    second = reader.latestOffset(first, ALL)
    assert batch(reader, first, second) == [2] and second["missing"] == 1
    publish(client, 3, at=timedelta(minutes=101))
    assert reader.latestOffset(second, ALL)["missing"] == 1
    # A checkpoint of an earlier version does not count.
    del second["missing"]
    assert make_reader().latestOffset(second, ALL)["missing"] == 0


def test_limits_and_what_is_available(client: Client, make_reader: MakeReader) -> None:
    client.define("CREATE STREAM s (k BIGINT)")
    publish(client, *range(10))
    reader = make_reader(maxRowsPerTrigger="4")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(4)
    reader.prepareForTriggerAvailableNow()
    publish(client, 10)
    offset, rows = reader.initialOffset(), list[list[int]]()
    while (end := reader.latestOffset(offset, limit)) != offset:
        rows.append(batch(reader, offset, end))
        offset = end
    assert rows == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_a_look_within_a_moment_is_no_call(
    client: Client, make_reader: MakeReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.define("CREATE STREAM s (k BIGINT)")
    reader = make_reader()
    monkeypatch.setattr(streaming, "LATEST_SECONDS", 1e9)
    start = reader.initialOffset()
    assert reader.latestOffset(start, ALL) == start
    publish(client, 1)
    assert reader.latestOffset(start, ALL) == start
    monkeypatch.setattr(streaming, "LATEST_SECONDS", 0.0)
    assert reader.latestOffset(start, ALL)["row"] == 1


def test_rows_that_left_stop_the_query(client: Client, make_reader: MakeReader) -> None:
    client.define("CREATE STREAM s (k BIGINT, at TIMESTAMP) ORDERED BY at RETAIN 1 HOUR")
    publish(client, 0, 1, at=timedelta())
    reader, loose = make_reader(), make_reader(failOnDataLoss="false")
    start = reader.initialOffset()
    planned = reader.latestOffset(start, ALL)
    # A row that is too late for RETAIN was in no answer ever: it is not missed.
    publish(client, 2, at=timedelta(hours=-2))
    publish(client, 3, at=timedelta(minutes=1))
    late = reader.latestOffset(planned, ALL)
    assert batch(reader, planned, late) == [3]
    assert (planned["missing"], late["missing"]) == (0, 1)
    (task,) = reader.partitions(start, planned)
    # The query is away: 4 comes and leaves, and what was planned leaves, too.
    publish(client, 4, at=timedelta(minutes=2))
    publish(client, 5, at=timedelta(hours=3))
    with pytest.raises(DataLoss, match=r"rows 4 to 5: 1 left by RETAIN.*failOnDataLoss"):
        make_reader().latestOffset(late, ALL)
    with pytest.raises(DataLoss, match="0 of 2 rows are left"):
        list(reader.read(task))
    with pytest.raises(DataLoss, match="0 of 1 rows are left"):
        make_reader().partitions(planned, {**late, "rows": 1})
    assert batch(loose, late, loose.latestOffset(late, ALL)) == [5]
    # Who begins now misses nothing.
    fresh = make_reader()
    offset = fresh.initialOffset()
    assert batch(fresh, offset, fresh.latestOffset(offset, ALL)) == [5]


def test_erased_rows_are_in_no_batch(client: Client, make_reader: MakeReader) -> None:
    """A batch that was planned before the erasure counts the row, and stops the query."""
    client.define("CREATE STREAM s (k BIGINT) RETAIN 1 DAY")
    publish(client, *range(4))
    reader, loose = make_reader(), make_reader(failOnDataLoss="false")
    start = reader.initialOffset()
    planned = reader.latestOffset(start, ALL)
    publish(client, *range(4, 8))
    client.define("ERASE FROM s WHERE k = 1")
    client.define("ERASE FROM s WHERE k = 6")
    # It was away: the row that it never planned is not missed.
    end = make_reader().latestOffset(planned, ALL)
    assert batch(make_reader(), planned, end) == [4, 5, 7] and end["missing"] == 1
    with pytest.raises(DataLoss, match="3 of 4 rows are left.*failOnDataLoss"):
        batch(make_reader(), start, planned)
    assert batch(loose, start, planned) == [0, 2, 3]


def test_a_slow_query_notices_what_left(client: Client, make_reader: MakeReader) -> None:
    client.define("CREATE STREAM s (k BIGINT, at TIMESTAMP) ORDERED BY at RETAIN 1 HOUR")
    for k in range(6):
        publish(client, k, at=timedelta(minutes=20 * k))
    reader = make_reader()
    offset = reader.initialOffset()
    assert offset["row"] == 3  # the first that is retained
    offset = reader.latestOffset(offset, ReadMaxRows(1))
    publish(client, 6, at=timedelta(minutes=150))
    with pytest.raises(DataLoss, match="left by RETAIN"):
        reader.latestOffset(offset, ALL)


def test_other_streams_are_refused(client: Client, make_reader: MakeReader) -> None:
    client.define("CREATE STREAM s (k BIGINT)")
    publish(client, 1, 2)
    reader = make_reader()
    offset = reader.latestOffset(reader.initialOffset(), ALL)
    client.define("DROP STREAM s")
    client.define("CREATE STREAM s (k BIGINT)")
    with pytest.raises(ValueError, match="dropped and made again"):
        reader.latestOffset(offset, ALL)
    with pytest.raises(ValueError, match="not one of a stream of psoup"):
        reader.latestOffset({"offset": 3}, ALL)
    client.define("DROP STREAM s")
    client.define("CREATE STREAM s (k BIGINT) KEY (k)")
    with pytest.raises(ValueError, match=r"has a KEY.*--changes-to"):
        reader.initialOffset()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key": "dear"}, "reads a stream"),
        ({"stream": ""}, 'option."stream", NAME'),
        ({"maxRowsPerTrigger": "0"}, "1 or more"),
        ({"maxRowsPerTrigger": "-4"}, "1 or more"),
    ],
)
def test_options_are_checked(options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StreamReader(SparkOptions.of({"stream": "s", **options}), ["k"])


def _commits(folder: Path) -> int:
    return len(list((folder / "checkpoint" / "commits").glob("[0-9]*")))


@pytest.mark.long
def test_a_query_that_is_killed_goes_on_at_its_checkpoint(
    spark: Any, client: Client, shared_server: ServerProcess, tenant: str, tmp_path: Path
) -> None:
    client.define("CREATE STREAM s (k BIGINT)")
    publish(client, *range(100))
    options = ["-m", "tests.spark_source.streaming_program", shared_server.address, tenant]
    process = Process([*options, str(tmp_path)], tmp_path / "log")
    try:
        deadline = time.monotonic() + WAIT_SECONDS
        while _commits(tmp_path) < 2:
            assert process.alive and time.monotonic() < deadline, process.text()
            time.sleep(0.05)
    finally:
        # Spark's JVM would end by itself a moment later.
        children = process.children()
        process.kill()
        for pid in children:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert _commits(tmp_path) < 9
    publish(client, *range(100, 120))
    query = begin(spark, shared_server.address, tenant, tmp_path, availableNow=True)
    query.awaitTermination()
    rows = spark.read.parquet(str(tmp_path / "rows")).collect()
    assert sorted(row["k"] for row in rows) == list(range(120))
    # Nothing is new: the next run reads nothing.
    count = _commits(tmp_path)
    begin(spark, shared_server.address, tenant, tmp_path, availableNow=True).awaitTermination()
    assert _commits(tmp_path) == count


@pytest.mark.long
def test_a_query_says_what_is_missing(
    spark: Any, client: Client, shared_server: ServerProcess, tenant: str, tmp_path: Path
) -> None:
    client.define("CREATE STREAM s (k BIGINT, at TIMESTAMP) ORDERED BY at RETAIN 1 HOUR")
    publish(client, 0, at=timedelta())
    begin(spark, shared_server.address, tenant, tmp_path, availableNow=True).awaitTermination()
    publish(client, 1, at=timedelta(minutes=1))
    publish(client, 2, at=timedelta(hours=3))
    query = begin(spark, shared_server.address, tenant, tmp_path, availableNow=True)
    with pytest.raises(StreamingQueryException, match="1 left by RETAIN"):
        query.awaitTermination()
