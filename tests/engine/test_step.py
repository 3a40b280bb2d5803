"""The symmetric join, step by step, on real Spark and Delta."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import Row, SparkSession

from psoup.engine.settings import EngineSettings
from psoup.store import Renew, Store, Trigger
from psoup.store.layout import TABLES
from querystem.expressions import predicate_key
from tests.support.engine.author import READINGS, Author, above, readings, sensor_is
from tests.support.engine.pump import Pump
from tests.support.engine.reading import assert_joined, covered, matched, pieces, stem_rows

pytestmark = pytest.mark.spark


def test_rows_then_query(store: Store, author: Author, spark: SparkSession) -> None:
    stream = author.create(READINGS)
    author.publish(stream, readings([1, 2, 3], [10.0, 20.0, 30.0]))
    pump = Pump(store, spark)
    pump.step()
    _, predicate = author.register(stream, above(15.0))
    pump.step()
    assert covered(store, stream, predicate) == []
    assert matched(store, predicate) == []
    pump.run()
    assert_joined(store, stream, {predicate: lambda row: row["value"] > 15})
    assert matched(store, predicate) == [1, 2]


def test_query_then_rows(store: Store, author: Author, spark: SparkSession) -> None:
    stream = author.create(READINGS)
    _, predicate = author.register(stream, above(15.0))
    pump = Pump(store, spark)
    pump.step()
    author.publish(stream, readings([1, 2, 3], [10.0, 20.0, 30.0]))
    pump.step()
    assert_joined(store, stream, {predicate: lambda row: row["value"] > 15})


def test_rows_and_queries_in_one_step(store: Store, author: Author, spark: SparkSession) -> None:
    stream = author.create(READINGS)
    author.publish(stream, readings([1, 2], [10.0, 20.0]))
    _, high = author.register(stream, above(15.0))
    author.publish(stream, readings([2, 1], [30.0, 5.0]))
    _, first = author.register(stream, sensor_is(1))
    Pump(store, spark).step()
    assert_joined(
        store,
        stream,
        {high: lambda row: row["value"] > 15, first: lambda row: row["sensor"] == 1},
    )


def test_ids_positions_and_stamps_come_from_the_log(
    store: Store, author: Author, spark: SparkSession
) -> None:
    stream = author.create(READINGS)
    first = author.publish(stream, readings([1], [1.0]))
    second = author.publish(stream, readings([2, 3], [2.0, 3.0]))
    Pump(store, spark).step()
    rows = stem_rows(store, stream)
    assert [row["_row_id"] for row in rows] == [0, 1, 2]
    assert [row["_position"] for row in rows] == [first.packed, second.packed, second.packed]
    assert all(row["_ts"] == row["_stamp"] for row in rows)
    assert [row["_before"] for row in rows] == [None, rows[0]["_ts"], rows[0]["_ts"]]


def test_rows_that_refresh_are_matched_and_back_filled(
    store: Store, author: Author, spark: SparkSession
) -> None:
    stream, alarms = author.create(READINGS), author.create(READINGS)
    author.publish(alarms, readings([1, 1], [9.0, 1.0]))
    Pump(store, spark).step()
    trigger = author.state.next_predicate_id + 1
    where = predicate_key(above(5.0))
    handle, _ = author.register(stream, above(0.0), Trigger(alarms, trigger, where))
    pump = Pump(store, spark)
    pump.step()
    author.publish(alarms, readings([1, 1], [2.0, 8.0]))
    pump.run()
    assert matched(store, trigger) == [0, 3]
    author.unregister(handle)
    pump.step()
    author.publish(alarms, readings([1], [8.0]))
    pump.step()
    assert matched(store, trigger) == [0, 3]


def test_an_ended_predicate_matches_nothing_more(
    store: Store, author: Author, spark: SparkSession
) -> None:
    stream = author.create(READINGS)
    handle, ended = author.register(stream, above(0.0))
    _, stays = author.register(stream, above(1.0))
    author.publish(stream, readings([1], [5.0]))
    pump = Pump(store, spark)
    pump.step()
    author.unregister(handle)
    pump.step()
    author.publish(stream, readings([1], [6.0]))
    pump.step()
    assert matched(store, ended) == [0]
    assert matched(store, stays) == [0, 1]


def test_streams_do_not_mix(store: Store, author: Author, spark: SparkSession) -> None:
    left_stream, right_stream = author.create(READINGS), author.create(READINGS)
    _, on_left = author.register(left_stream, above(0.0))
    _, on_right = author.register(right_stream, above(0.0))
    author.publish(left_stream, readings([1, 1], [1.0, 2.0]))
    author.publish(right_stream, readings([2], [3.0]))
    Pump(store, spark).step()
    assert (matched(store, on_left), matched(store, on_right)) == ([0, 1], [0])
    assert {row["sensor"] for row in stem_rows(store, right_stream)} == {2}


def test_what_does_not_decode_is_a_hole_with_a_name(
    store: Store, author: Author, spark: SparkSession
) -> None:
    stream = author.create(READINGS)
    _, predicate = author.register(stream, above(0.0))
    author.publish(stream, readings([1], [1.0]))
    author.publish_bytes(stream, b"not arrow", 3, 0, 0)
    author.publish(stream, readings([2], [2.0]))
    Pump(store, spark).step()
    assert matched(store, predicate) == [0, 4]
    (hole,) = store.epochs.latest()[1].losses.holes
    assert (hole.stream_id, hole.row_lo, hole.row_hi) == (stream, 1, 4)
    assert store.log.folder.root.joinpath(hole.file.removeprefix("log/")).exists()


def test_backfill_goes_in_slices_newest_first(
    store: Store, author: Author, spark: SparkSession
) -> None:
    stream = author.create(READINGS)
    for start in range(0, 100, 20):
        values = [float(value) for value in range(start, start + 20)]
        author.publish(stream, readings([1] * 20, values))
    pump = Pump(store, spark, EngineSettings(slice_rows=30, slice_seconds=0.0, housekeeping=0.0))
    pump.step()
    _, predicate = author.register(stream, above(9.5))
    pump.step()
    assert pump.backfill.advance(pump.ledger)
    assert covered(store, stream, predicate) == [(70, 100)]
    assert matched(store, predicate) == list(range(70, 100))
    pump.run()
    assert_joined(store, stream, {predicate: lambda row: row["value"] > 9.5})
    assert pump.backfill.pending(pump.ledger) == {}


def test_a_second_cohort_catches_up_with_the_first(
    store: Store, author: Author, spark: SparkSession
) -> None:
    stream = author.create(READINGS)
    author.publish(stream, readings([1, 2] * 20, [float(value) for value in range(40)]))
    pump = Pump(store, spark, EngineSettings(slice_rows=15, slice_seconds=0.0, housekeeping=0.0))
    pump.step()
    _, first = author.register(stream, above(3.5))
    pump.step()
    pump.backfill.advance(pump.ledger)
    author.publish(stream, readings([1, 2], [40.0, 41.0]))
    _, second = author.register(stream, sensor_is(2))
    pump.step()
    pump.run()
    assert_joined(
        store,
        stream,
        {first: lambda row: row["value"] > 3.5, second: lambda row: row["sensor"] == 2},
    )


def test_rows_beyond_a_block_and_a_segment(
    store: Store, author: Author, spark: SparkSession
) -> None:
    stream = author.create(READINGS)
    _, predicate = author.register(stream, sensor_is(1))
    segment = 1 << 20
    hits = [0, 65_535, 65_536, segment - 1, segment, segment + 9]
    sensors = np.zeros(segment + 10, np.int64)
    sensors[hits] = 1
    author.publish(stream, readings(sensors.tolist(), [0.0] * len(sensors)))
    Pump(store, spark).step()
    assert matched(store, predicate) == hits
    assert {piece["segment"] for piece in pieces(store)} == {0, 1}
    assert len(store.stem_snapshot(store.epochs.latest()[1], stream).files) == 2


@pytest.mark.timeout(600)
def test_anyone_can_read_the_tables(store: Store, author: Author, spark: SparkSession) -> None:
    stream = author.create(READINGS)
    handle, predicate = author.register(stream, above(0.0))
    author.publish(stream, readings([1, 2], [1.0, -1.0]), publisher="me")
    keyed = author.create(replace(READINGS, name="latest", key=("sensor",)))
    ops = pa.array([0, 0], pa.int8())
    newer = readings([1, 1], [1.0, 2.0])
    author.publish(keyed, newer.add_column(0, pa.field("_op", pa.int8()), ops))
    author.append(Renew(handle))
    Pump(store, spark).run()

    def read(name: str) -> list[Row]:
        return spark.read.format("delta").load(str(store.root / name)).collect()

    tables = {name: read(name) for name in [*TABLES, f"stems/{stream}"]}
    empty = [name for name, rows in tables.items() if not rows]
    without = ["composites", "access", "erasures", "zones", "reached"]
    assert empty == without, "no join, grant, erasure, time zone or heartbeat came"
    assert [bytes(row["handle"]) for row in tables["leases"]] == [handle]
    assert [row["value"] for row in tables[f"stems/{stream}"]] == [1.0, -1.0]
    assert [(row["stream_id"], row["count"]) for row in tables["matches"]] == [(stream, 1)]
    closures = [(row["stream_id"], row["row_id"], row["by"]) for row in tables["closures"]]
    assert closures == [(keyed, 0, 1)]
    assert [bytes(row["handle"]) for row in tables["registrations"]] == [handle]
    assert [row["sequence"] for row in tables["publishers"]] == [1]
    assert [row["predicate_id"] for row in tables["predicates"]] == [predicate]


def test_any_spark_can_pass_a_stem_on_to_python(
    store: Store, author: Author, spark: SparkSession
) -> None:
    """Enough rows for full pages and several row groups."""
    stream = author.create(READINGS)
    count = 1 << 19
    values = np.random.default_rng(1).uniform(0, 100, count)
    author.publish(stream, readings([1] * count, values.tolist()))
    Pump(store, spark).step()

    def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]})

    stem = spark.read.format("delta").load(str(store.stem(stream).root))
    parts = stem.select("_row_id", "_ts", "value").mapInArrow(counted, "rows long").collect()
    assert sum(part["rows"] for part in parts) == count
