"""Tasks with Arrow and Spark's join find the same old combinations."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from datastem.schema import Column, StreamSchema
from datastem.types import BIGINT, BOOLEAN, DOUBLE, TEXT, decimal_type
from psoup.engine.composites import growing, spark_join
from psoup.engine.composites.spark_join import Drafts, SparkJoin
from psoup.engine.repair.mend import mend
from psoup.engine.repair.recover import open_ledger
from psoup.engine.settings import EngineSettings
from psoup.engine.spark.jobs import CompositeOutcome
from psoup.engine.spark.scanning import StemScan
from psoup.store import CorruptStore, Store
from querystem.expressions import TRUE, Call, ColumnRef, Expression, Literal, Op
from tests.damage import flip_in_column, named_files
from tests.support.engine.author import Author
from tests.support.engine.composites import (
    Joined,
    assert_complete,
    combinations,
    register_join,
)
from tests.support.engine.pump import Pump
from tests.support.engine.reading import matched

pytestmark = pytest.mark.spark

MONEY = decimal_type(12, 2)
LEFT = StreamSchema("l", (Column("number", BIGINT), Column("word", TEXT), Column("price", MONEY)))
RIGHT = StreamSchema("r", (Column("number", DOUBLE), Column("word", TEXT), Column("price", BIGINT)))
ARROW = EngineSettings(housekeeping=0.0, slice_rows=16, slice_seconds=0.0)
SPARK = replace(ARROW, spark_join_factor=0, spark_slice_rows=64)


def equal(first: int, second: int, column: str, schemas: list[StreamSchema]) -> Expression:
    sides = (
        ColumnRef(f"{first}.{column}", schemas[first].types[column]),
        ColumnRef(f"{second}.{column}", schemas[second].types[column]),
    )
    return Call(Op.EQ, sides, BOOLEAN)


def rows_of(schema: StreamSchema, first: int) -> pa.RecordBatch:
    """Rows whose join keys are sometimes equal across types, with NULL and NaN."""
    numbers: list[float | None] = [[None, 1, 2, 3][(first + n) % 4] for n in range(30)]
    words = [[None, "a", "b"][(first + n * 7) % 3] for n in range(30)]
    prices = [[None, 1, 2][(first + n * 3) % 3] for n in range(30)]
    if schema is RIGHT:
        numbers = [float("nan") if n == 3 else n for n in numbers]
    columns = [
        pa.array(values, type_)
        for values, type_ in zip([numbers, words, prices], schema.arrow.types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema.arrow)


def word_is(text: str) -> Expression:
    return Call(Op.EQ, (ColumnRef("word", TEXT), Literal(text, TEXT)), BOOLEAN)


def build(
    store: Store, spark: SparkSession, settings: EngineSettings, legs: int, span: int | None
) -> Joined:
    author = Author(store)
    left_stream, right_stream = author.create(LEFT), author.create(RIGHT)
    for first in range(3):
        author.publish(left_stream, rows_of(LEFT, first))
        author.publish(right_stream, rows_of(RIGHT, first))
    schemas = [LEFT, RIGHT] if legs == 2 else [LEFT, LEFT, RIGHT]
    ids = [left_stream if schema is LEFT else right_stream for schema in schemas]
    factors = [equal(0, legs - 1, "number", schemas), equal(0, legs - 1, "price", schemas)]
    if legs == 3:
        factors.append(equal(0, 1, "word", schemas))
    leg_predicates = [(ids[0], word_is("a")), *((stream, TRUE) for stream in ids[1:])]
    join = register_join(author, leg_predicates, factors, span)
    pump = Pump(store, spark, settings)
    pump.run()
    author.publish(left_stream, rows_of(LEFT, 1))
    author.publish(right_stream, rows_of(RIGHT, 2))
    pump.run()
    assert_complete(store, join)
    assert matched(store, join.predicate_id) == sorted(combinations(store, join.composite_id))
    return join


@pytest.mark.long
@pytest.mark.parametrize("legs, span", [(2, None), (3, 3)])
def test_both_ways_find_the_same(
    store: Store,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    legs: int,
    span: int | None,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    outcomes: list[CompositeOutcome] = []

    class Watched(SparkJoin):
        def find(self, session: SparkSession, part_rows: int) -> Drafts:
            drafts = SparkJoin.find(self, session, part_rows)
            outcomes.extend(outcome for part in drafts.values() for outcome in part)
            return drafts

    monkeypatch.setattr(growing, "SparkJoin", Watched)
    by_arrow = build(store, spark, ARROW, legs, span)
    assert not outcomes
    other_store = Store.open(tmp_path_factory.mktemp("other") / "store", create=True, sync=False)
    # Sent to all tasks, or shuffled: a leg of three rows is too large for the first.
    monkeypatch.setattr(spark_join, "BROADCAST_ROWS", 3 if legs == 2 else 1 << 20)
    by_spark = build(other_store, spark, SPARK, legs, span)
    assert outcomes and any(outcome.count for outcome in outcomes)
    parts = set(combinations(store, by_arrow.composite_id).values())
    assert parts and parts == set(combinations(other_store, by_spark.composite_id).values())


def old_rows(store: Store, spark: SparkSession, settings: EngineSettings) -> tuple[Joined, Pump]:
    """A join whose predicates have met all rows, four files on each leg; its box is not begun."""
    author = Author(store)
    left_stream, right_stream = author.create(LEFT), author.create(RIGHT)
    pump = Pump(store, spark, settings)
    for first in range(4):
        author.publish(left_stream, rows_of(LEFT, first))
        author.publish(right_stream, rows_of(RIGHT, first))
        pump.step()
    legs = [(left_stream, word_is("a")), (right_stream, TRUE)]
    join = register_join(author, legs, [equal(0, 1, "number", [LEFT, RIGHT])])
    pump.step()
    while pump.backfill.advance(pump.ledger):
        pass
    return join, pump


def grow(pump: Pump) -> None:
    while pump.growing.advance(pump.ledger) or pump.growing.idle_in:
        pass


@pytest.mark.parametrize("lost", [False, True])
def test_a_damaged_file_is_named_and_mended(store: Store, spark: SparkSession, lost: bool) -> None:
    """Of each file that Spark's join reads, one bit of a join key is flipped."""
    join, pump = old_rows(store, spark, SPARK)
    # The legs after the first are read by tasks before the join begins.
    files = named_files(store, "stems/1")
    if lost:
        for file in store.log.folder.root.glob("*.parquet"):
            file.unlink()
    flip_in_column(files[2], "number")
    name = f"stems/1/{files[2].name}"
    with pytest.raises(CorruptStore, match=name) as raised:
        grow(pump)
    assert raised.value.file == name
    pump.ledger = open_ledger(store)
    mend(pump.ledger, name)
    grow(pump)
    stored = set(combinations(store, join.composite_id).values())
    if not lost:
        assert_complete(store, join)
        return
    # The rows of the lost file are in no combination, all others are.
    (hole,) = pump.ledger.state.losses.holes
    other_store = Store.open(store.root.parent / "other", create=True, sync=False)
    whole, other_pump = old_rows(other_store, spark, ARROW)
    grow(other_pump)
    expected = set(combinations(other_store, whole.composite_id).values())
    assert stored == {
        parts for parts in expected if not hole.row_lo <= parts[0] < hole.row_hi
    } and 0 < len(stored) < len(expected)


def test_a_missing_file_is_named(store: Store, spark: SparkSession) -> None:
    _, pump = old_rows(store, spark, SPARK)
    file = named_files(store, "stems/1")[0]
    file.unlink()
    with pytest.raises(CorruptStore, match=f"stems/1/{file.name} is gone"):
        grow(pump)


def test_a_scan_reads_only_the_files_it_needs(store: Store, spark: SparkSession) -> None:
    """The partitions of a scan have every row once, and the files of their rows only."""
    _, pump = old_rows(store, spark, ARROW)
    files = tuple(pump.ledger.files("stems/1"))
    root = str(store.root / "stems/1")
    (part,) = StemScan(root, files, 30, 60, ("_row_id",)).partitions()
    assert len(files) == 4 and len(part.files) == 1
    ids = [row_id for batch in part.batches() for row_id in batch.column(0).to_pylist()]
    assert ids == list(range(30, 60))
    assert not StemScan(root, files, 120, 200, ("_row_id",)).partitions()
