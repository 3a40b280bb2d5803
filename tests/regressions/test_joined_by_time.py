"""Rows that are joined by their ts: the engine read that column twice, and failed in every step."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from datastem.schema import StreamSchema
from datastem.types import BOOLEAN, TIMESTAMP
from psoup.store import Store
from querystem.expressions import TRUE, Call, ColumnRef, Op
from tests.support.engine.author import READINGS, Author, readings
from tests.support.engine.composites import combinations, register_join
from tests.support.engine.pump import Pump

pytestmark = pytest.mark.spark


def test_a_join_by_ts(tmp_path: Path, spark: SparkSession) -> None:
    store = Store.open(tmp_path / "store", create=True, sync=False)
    author = Author(store)
    first = author.create(READINGS)
    second = author.create(StreamSchema("other", READINGS.columns))
    same_time = Call(Op.EQ, (ColumnRef("0.ts", TIMESTAMP), ColumnRef("1.ts", TIMESTAMP)), BOOLEAN)
    join = register_join(author, [(first, TRUE), (first, TRUE)], [same_time])
    join_of_two = register_join(author, [(first, TRUE), (second, TRUE)], [same_time])
    author.publish(first, readings([1, 2], [1.0, 2.0]))
    author.publish(first, readings([3], [1.0]))
    pump = Pump(store, spark)
    pump.run()
    author.publish(second, readings([3], [1.0]))
    pump.run()
    pairs = sorted(combinations(store, join.composite_id).values())
    assert pairs == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 2)]
    assert not combinations(store, join_of_two.composite_id)
