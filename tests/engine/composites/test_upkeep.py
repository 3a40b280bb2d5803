"""Limits, retention, damage and ends of composites."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from datastem.codec import INSTANT
from psoup.engine.composites import growing
from psoup.engine.repair.mend import mend
from psoup.engine.repair.recover import open_ledger
from psoup.engine.settings import EngineSettings
from psoup.store import Store
from querystem.expressions import TRUE
from tests.damage import tear_commit
from tests.support.engine.author import OTHER, READINGS, Author, above, readings, sensor_is, timed
from tests.support.engine.composites import (
    assert_complete,
    combinations,
    equal,
    join_of,
    mark_of,
    register_join,
)
from tests.support.engine.pump import Pump
from tests.support.engine.reading import pieces

pytestmark = pytest.mark.spark

SMALL = EngineSettings(housekeeping=0.0, slice_rows=8, slice_seconds=0.0, merge_files=3)


def test_a_worker_that_may_keep_nothing(store: Store, author: Author, spark: SparkSession) -> None:
    left_stream, right_stream = author.create(READINGS), author.create(OTHER)
    join = register_join(author, [(left_stream, TRUE), (right_stream, above(1.0))], [equal(0, 1)])
    pump = Pump(store, spark, replace(SMALL, worker_bytes=1))
    for number in range(3):
        author.publish(left_stream, readings(list(range(20)), [float(number)] * 20))
        author.publish(right_stream, readings(list(range(20)), [float(n) for n in range(20)]))
        pump.run()
    assert_complete(store, join)
    assert len(combinations(store, join.composite_id)) == 3 * 3 * 18


def test_a_composite_that_explodes_is_suspended(
    store: Store, author: Author, spark: SparkSession
) -> None:
    left_stream, right_stream = author.create(READINGS), author.create(OTHER)
    join = register_join(author, [(left_stream, TRUE), (right_stream, TRUE)], [equal(0, 1)])
    pump = Pump(store, spark, replace(SMALL, max_combinations=4))
    pump.run()
    for _ in range(10):
        assert not mark_of(store, join.composite_id).suspended
        author.publish(left_stream, readings([1, 1], [1.0, 1.0]))
        author.publish(right_stream, readings([1, 1], [1.0, 1.0]))
        pump.step()
    for _ in range(2):
        mark = mark_of(store, join.composite_id)
        assert mark.suspended and mark.since is None
        assert not combinations(store, join.composite_id)
        author.publish(left_stream, readings([1, 1], [1.0, 1.0]))
        pump.run()


@pytest.mark.parametrize("old", [True, False])
def test_more_candidates_than_a_task_may_look_at(
    store: Store, author: Author, spark: SparkSession, old: bool
) -> None:
    left_stream, right_stream = author.create(READINGS), author.create(OTHER)
    pump = Pump(store, spark, replace(SMALL, max_candidates=30))
    join = register_join(author, [(left_stream, TRUE), (right_stream, TRUE)], [equal(0, 1)])
    if not old:
        pump.run()
    author.publish(left_stream, readings([1] * 40, [1.0] * 40))
    author.publish(right_stream, readings([1] * 40, [1.0] * 40))
    pump.run()
    assert mark_of(store, join.composite_id).suspended
    assert not combinations(store, join.composite_id)


def test_a_composite_that_fails_again_and_again_is_suspended(
    store: Store, author: Author, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_stream, right_stream = author.create(READINGS), author.create(OTHER)
    join = register_join(author, [(left_stream, TRUE), (right_stream, TRUE)], [equal(0, 1)])
    author.publish(left_stream, readings([1], [1.0]))
    pump = Pump(store, spark, SMALL)
    pump.step()

    def fail(*_: object) -> None:
        raise RuntimeError("no memory")

    monkeypatch.setattr(growing, "find_combinations", fail)
    failures = 0
    while not pump.ledger.composites[join.composite_id].suspended:
        try:
            pump.growing.advance(pump.ledger)
        except RuntimeError:
            failures += 1
            pump.ledger = open_ledger(store)
    assert failures == 2
    pump.run()
    assert mark_of(store, join.composite_id).suspended


def test_combinations_leave_with_their_rows(
    store: Store, author: Author, spark: SparkSession
) -> None:
    minute = 60_000_000
    left_schema, right_schema = (
        replace(timed(retain=10 * minute), name="one"),
        replace(timed(), name="two"),
    )
    left_stream, right_stream = author.create(left_schema), author.create(right_schema)
    join = register_join(author, [(left_stream, TRUE), (right_stream, TRUE)], [equal(0, 1)])
    pump = Pump(store, spark, replace(SMALL, grace=0.0))
    for number in range(8):
        at = pa.array([number * 5 * minute] * 2, pa.int64()).view(INSTANT)
        rows = pa.RecordBatch.from_arrays([pa.array([1, 2]), at], schema=left_schema.arrow)
        author.publish(left_stream, rows)
        author.publish(right_stream, rows)
        pump.run()
    floor = pump.ledger.floor(left_stream)
    assert floor > 0
    stored = set(combinations(store, join.composite_id).values())
    expected = join_of(store, join.composite_id).keys()
    assert {left_id for left_id, _ in expected} == set(range(floor, 16))
    assert expected <= stored and len(stored) < 2 * 8 * 8


@pytest.mark.parametrize("table", ["stems", "joins"])
def test_what_is_damaged_is_found_again(
    store: Store, author: Author, spark: SparkSession, table: str
) -> None:
    left_stream, right_stream = author.create(READINGS), author.create(OTHER)
    join = register_join(author, [(left_stream, TRUE), (right_stream, TRUE)], [equal(0, 1)])
    author.publish(left_stream, readings([1, 2], [1.0, 1.0]))
    author.publish(right_stream, readings([1, 2], [1.0, 1.0]))
    pump = Pump(store, spark, SMALL)
    pump.run()
    before = combinations(store, join.composite_id)
    name = f"{table}/{join.composite_id}"
    path = next(iter(pump.ledger.tables[name].files))
    (store.root / name / path).unlink()
    mend(pump.ledger, f"{name}/{path}")
    assert mark_of(store, join.composite_id).since is None
    pump.run()
    assert_complete(store, join)
    after = combinations(store, join.composite_id)
    assert set(before.values()) == set(after.values()) and not before.keys() & after.keys()


@pytest.mark.parametrize("table", ["stems", "joins"])
@pytest.mark.parametrize("is_running", [True, False])
def test_a_table_whose_log_can_t_be_read_is_derived_again(
    store: Store, author: Author, spark: SparkSession, table: str, is_running: bool
) -> None:
    left_stream, right_stream = author.create(READINGS), author.create(OTHER)
    join = register_join(author, [(left_stream, TRUE), (right_stream, TRUE)], [equal(0, 1)])
    author.publish(left_stream, readings([1, 2], [1.0, 1.0]))
    author.publish(right_stream, readings([1, 2], [1.0, 1.0]))
    pump = Pump(store, spark, SMALL)
    pump.run()
    before = combinations(store, join.composite_id)
    folder = store.table(f"{table}/{join.composite_id}")
    commit = tear_commit(store, f"{table}/{join.composite_id}")
    if is_running:
        mend(pump.ledger, f"{table}/{join.composite_id}/_delta_log/{commit.name}")
    else:
        pump = Pump(store, spark, SMALL)
    assert mark_of(store, join.composite_id).since is None
    author.publish(left_stream, readings([1], [1.0]))
    pump.run()
    assert_complete(store, join)
    after = combinations(store, join.composite_id)
    assert set(before.values()) < set(after.values()) and not before.keys() & after.keys()
    folder.checkpoint()


def test_a_composite_ends_with_its_last_registration(
    store: Store, author: Author, spark: SparkSession
) -> None:
    left_stream, right_stream = author.create(READINGS), author.create(OTHER)
    joins = [
        register_join(author, [(left_stream, sensor_is(n)), (right_stream, TRUE)], [equal(0, 1)])
        for n in (1, 2)
    ]
    author.publish(left_stream, readings([1, 2], [1.0, 1.0]))
    author.publish(right_stream, readings([1, 2], [1.0, 1.0]))
    pump = Pump(store, spark, replace(SMALL, grace=0.0))
    pump.run()
    for join in joins:
        assert_complete(store, join, exact=False)
        author.unregister(join.handle)
        author.publish(left_stream, readings([1, 2], [1.0, 1.0]))
        pump.run()
    composite_id = joins[0].composite_id
    assert composite_id not in pump.ledger.composites
    assert not any(piece["stream_id"] == composite_id for piece in pieces(store))
    assert not _data_files(store.root / f"stems/{composite_id}")
    assert not _data_files(store.root / f"joins/{composite_id}")


def _data_files(root: Path) -> list[Path]:
    return [path for path in root.glob("*.parquet")]
