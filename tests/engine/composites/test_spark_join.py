"""Tasks with Arrow and Spark's join find the same old combinations."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from datastem.schema import Column, StreamSchema
from datastem.types import BIGINT, BOOLEAN, DOUBLE, TEXT, decimal_type
from psoup.engine.composites import growing, spark_join
from psoup.engine.composites.spark_join import SparkJoin
from psoup.engine.jobs import CompositeOutcome
from psoup.engine.settings import EngineSettings
from psoup.store import Store
from querystem.expressions import TRUE, Call, ColumnRef, Expression, Literal, Op
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
SPARK = replace(ARROW, arrow_join_rows=0, spark_slice_rows=64)


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
        def find(self, session: SparkSession) -> list[CompositeOutcome]:
            outcomes.extend(drafts := SparkJoin.find(self, session))
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


def test_spark_reads_only_the_files_it_needs(store: Store, spark: SparkSession) -> None:
    """Delta passes over files by their bounds, since they say that none is NULL."""
    author = Author(store)
    stream = author.create(LEFT)
    pump = Pump(store, spark, ARROW)
    for first in range(4):
        author.publish(stream, rows_of(LEFT, first))
        pump.step()
    stem = spark.read.format("delta").load(str(store.root / f"stems/{stream}"))
    part = stem.where("_row_id >= 30 AND _row_id < 60")
    assert part.count() == 30
    assert len(part.inputFiles()) == 1 and len(stem.inputFiles()) == 4
