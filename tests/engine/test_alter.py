"""Columns added to a stream, on real Spark and Delta: no file is written again, back-fill and
merges see the default, and every reader of the stem sees the column."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import deltalake
import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from datastem.schema import Column
from datastem.types import BIGINT, BOOLEAN, DOUBLE, TEXT
from psoup.engine.settings import EngineSettings
from psoup.store import Store
from querystem.expressions import TRUE, Call, ColumnRef, Op
from tests.support.engine.author import (
    OTHER,
    READINGS,
    Author,
    above,
    add_column,
    fee_is,
    readings,
)
from tests.support.engine.composites import combinations, register_join
from tests.support.engine.pump import Pump
from tests.support.engine.reading import matched, stem_rows

pytestmark = pytest.mark.spark

EAGER = EngineSettings(housekeeping=0.0, grace=0.0, merge_files=3, checkpoint_commits=2)


def wider(sensors: list[int], values: list[float], **columns: pa.Array) -> pa.RecordBatch:
    batch = readings(sensors, values)
    arrays, names = [*batch.columns, *columns.values()], [*batch.schema.names, *columns]
    return pa.RecordBatch.from_arrays(arrays, names=names)


def files(store: Store, stream: int) -> set[str]:
    _, epoch = store.epochs.latest()
    return set(store.stem_snapshot(epoch, stream).files)


def test_added_columns_are_filled_for_old_rows_and_by_merges(
    store: Store, author: Author, spark: SparkSession
) -> None:
    stream = author.create(READINGS)
    pump = Pump(store, spark)
    for number in range(3):
        author.publish(stream, readings([1, 2], [float(number), 5.0]))
        pump.step()
    before = files(store, stream)
    author.publish(stream, readings([3], [6.0]))
    add_column(author, stream, Column("fee", DOUBLE, default=1.5))
    add_column(author, stream, Column("venue", TEXT))
    # Rows before and after the alterations in one step, with and without the columns.
    author.publish(stream, readings([4], [7.0]))
    author.publish(stream, wider([5], [8.0], fee=pa.array([2.5])))
    author.publish(stream, wider([6], [9.0], fee=pa.array([1.5]), venue=pa.array(["x"])))
    pump.step()
    assert before < files(store, stream) and len(files(store, stream)) == len(before) + 1
    _, usual = author.register(stream, fee_is(1.5))
    _, dear = author.register(stream, fee_is(2.5))
    _, high = author.register(stream, above(5.5))
    pump.run()
    assert matched(store, usual) == [0, 1, 2, 3, 4, 5, 6, 7, 9]
    assert matched(store, dear) == [8]
    assert matched(store, high) == [6, 7, 8, 9]
    _check_readers(store, stream, spark, old_files=True)
    # A merge writes the default into the files.
    merging = Pump(store, spark, EAGER)
    for number in range(4):
        author.publish(stream, readings([1], [float(number)]))
        merging.step()
    merging.run()
    assert not before & files(store, stream)
    _check_readers(store, stream, spark, old_files=False)
    assert matched(store, usual) == [0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13]


def _check_readers(store: Store, stream: int, spark: SparkSession, old_files: bool) -> None:
    """deltalake, Spark and DuckDB read the stem alike; NULL stands where a file lacks a column."""
    root = store.root / "stems" / str(stream)
    fees = {row["_row_id"]: row["fee"] for row in stem_rows(store, stream)}
    table = deltalake.DeltaTable(root).to_pyarrow_table().sort_by("_row_id")
    assert table.schema.field("fee").type == pa.float64()
    assert (
        dict(zip(*(table.column(name).to_pylist() for name in ("_row_id", "fee")), strict=True))
        == fees
    )
    by_spark = (
        spark.read.format("delta").load(str(root)).select("_row_id", "fee", "venue").collect()
    )
    assert {row["_row_id"]: row["fee"] for row in by_spark} == fees
    assert {row["_row_id"]: row["venue"] for row in by_spark}[9] == "x"
    assert _by_duckdb(root) == fees
    assert [fees[number] for number in range(6)] == [None if old_files else 1.5] * 6
    assert (fees[6], fees[7], fees[8], fees[9]) == (1.5, 1.5, 2.5, 1.5)


def _by_duckdb(root: Path) -> dict[int, float | None]:
    """Read the files that the table names, by name, as DuckDB does."""
    paths = deltalake.DeltaTable(root).file_uris()
    relation = duckdb.read_parquet(paths, union_by_name=True)
    return dict(relation.select("_row_id, fee").fetchall())


def test_an_alteration_between_any_two_steps(
    store: Store, author: Author, spark: SparkSession
) -> None:
    """Also of a stream that was created in the same step, and of one that is dropped in it."""
    first = author.create(READINGS)
    add_column(author, first, Column("fee", DOUBLE, default=0.0))
    author.publish(first, readings([1], [1.0]))
    dropped = author.create(READINGS)
    add_column(author, dropped, Column("fee", DOUBLE))
    author.drop(dropped)
    _, free = author.register(first, fee_is(0.0))
    pump = Pump(store, spark)
    pump.step()
    author.publish(first, wider([2], [1.0], fee=pa.array([3.0])))
    pump.run()
    assert matched(store, free) == [0]
    assert [row["fee"] for row in stem_rows(store, first)] == [0.0, 3.0]
    assert store.state(store.epochs.latest()[1]).streams[first].version == 2


ARROW_JOIN = EngineSettings(housekeeping=0.0, slice_rows=16, slice_seconds=0.0)
SPARK_JOIN = replace(ARROW_JOIN, spark_join_factor=0, spark_slice_rows=64)


@pytest.mark.parametrize("settings", [ARROW_JOIN, SPARK_JOIN], ids=["tasks", "spark"])
def test_a_join_by_an_added_column_finds_old_rows(
    store: Store, author: Author, spark: SparkSession, settings: EngineSettings
) -> None:
    orders, right = author.create(READINGS), author.create(OTHER)
    author.publish(orders, readings([1] * 20, [0.0] * 20))
    author.publish(right, readings([2, 5] * 10, [0.0] * 20))
    pump = Pump(store, spark, settings)
    pump.step()
    add_column(author, orders, Column("part", BIGINT, default=5))
    author.publish(orders, wider([1, 1], [0.0, 0.0], part=pa.array([2, 7])))
    sides = ColumnRef("0.part", BIGINT), ColumnRef("1.sensor", BIGINT)
    factor = Call(Op.EQ, sides, BOOLEAN)
    joined = register_join(author, [(orders, TRUE), (right, TRUE)], [factor])
    pump.run()
    fives, twos = range(1, 20, 2), range(0, 20, 2)
    expected = {(old, five) for old in range(20) for five in fives} | {(20, two) for two in twos}
    assert set(combinations(store, joined.composite_id).values()) == expected
