"""The table `reached`: heartbeats that moved NOW are retained as long as rows of their ts."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from datastem.instants import HOUR, SECOND, to_micros
from psoup.engine.settings import EngineSettings
from psoup.store import Store
from psoup.store.layout import REACHED
from psoup.store.tables import read_files
from tests.support.engine.author import Author, timed
from tests.support.engine.pump import Pump

pytestmark = pytest.mark.spark

NOON = to_micros(datetime(2026, 11, 16, 12, tzinfo=UTC))
EAGER = EngineSettings(housekeeping=0.0, grace=1.0, compact_files=2)
LAZY = EngineSettings(housekeeping=0.0, compact_files=100)


def beat(author: Author, stream: int, at: int) -> int:
    """The packed position of a heartbeat."""
    return author.publish_bytes(stream, b"", 0, at, at).packed


def row(author: Author, stream: int, at: int) -> None:
    columns = {"sensor": [1], "at": pa.array([at], pa.int64()).view(pa.timestamp("us", "UTC"))}
    schema = author.state.streams[stream].schema.arrow
    author.publish(stream, pa.RecordBatch.from_pydict(columns).cast(schema))


def stored(store: Store) -> list[tuple[int, int, int]]:
    """The stream, the instant and the position of each heartbeat that the last epoch names."""
    _, epoch = store.epochs.latest()
    table = read_files(store.table("reached"), store.snapshot(epoch, "reached"), REACHED)
    columns = [table.column(name).cast(pa.int64()) for name in ("stream_id", "reached", "position")]
    return sorted(zip(*(column.to_pylist() for column in columns), strict=True))


def test_heartbeats_that_move_now_are_kept(
    store: Store, author: Author, spark: SparkSession
) -> None:
    pump, stream = Pump(store, spark, LAZY), author.create(timed())
    first = beat(author, stream, NOON)
    beat(author, stream, NOON - SECOND)
    pump.run()
    row(author, stream, NOON + 5 * SECOND)
    beat(author, stream, NOON + 5 * SECOND)
    second = beat(author, stream, NOON + 6 * SECOND)
    pump.run()
    expected = [(stream, NOON, first), (stream, NOON + 6 * SECOND, second)]
    assert stored(store) == expected
    assert stored(Pump(store, spark, LAZY).store) == expected


def test_heartbeats_leave_with_the_rows_of_their_time(
    store: Store, author: Author, spark: SparkSession
) -> None:
    pump, unbounded = Pump(store, spark, EAGER), author.create(timed())
    brief = author.create(timed(HOUR))
    dropped = author.create(timed())
    for second in range(4):
        at = NOON + second * SECOND
        for stream in (unbounded, brief, dropped):
            beat(author, stream, at)
        pump.step()
    author.drop(dropped)
    last = beat(author, brief, NOON + HOUR + 3 * SECOND)
    pump.run()
    assert len(store.snapshot(store.epochs.latest()[1], "reached").files) <= 2
    assert [row[1] - NOON for row in stored(store) if row[0] == unbounded] == [0, 1e6, 2e6, 3e6]
    retained = [row for row in stored(store) if row[0] == brief]
    assert [row[1] - NOON for row in retained] == [3 * SECOND, HOUR + 3 * SECOND]
    assert retained[-1][2] == last and not [row for row in stored(store) if row[0] == dropped]
