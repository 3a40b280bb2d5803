"""The engine as it runs: a loop over the log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from datastem.instants import HOUR
from psoup.engine import engine as engine_module
from psoup.engine.engine import Engine
from psoup.engine.errors import EngineFailed, SecondEngine
from psoup.engine.metrics import EngineMetrics
from psoup.engine.settings import EngineSettings
from psoup.engine.steps.step import take_step
from psoup.store import Store
from tests.support.engine.author import READINGS, Author, above, readings, sensor_is, timed
from tests.support.engine.reading import assert_joined, matched, stem_rows

pytestmark = pytest.mark.spark


@contextmanager
def running(
    store: Store,
    spark: SparkSession,
    settings: EngineSettings | None = None,
    metrics: EngineMetrics | None = None,
) -> Iterator[Engine]:
    engine = Engine(store, spark, settings, metrics=metrics)
    engine.start()
    try:
        yield engine
    finally:
        engine.stop()


def test_both_orders_while_it_runs(store: Store, author: Author, spark: SparkSession) -> None:
    stream = author.create(READINGS)
    author.publish(stream, readings([1, 2], [10.0, 20.0]))
    with running(store, spark) as engine:
        _, before = author.register(stream, above(15.0))
        engine.wait_idle()
        engine.wait_for(author.publish(stream, readings([3, 1], [30.0, 1.0])))
        _, after = author.register(stream, sensor_is(1))
        engine.wait_for(author.state.position)
        engine.wait_idle()
    assert_joined(
        store,
        stream,
        {before: lambda row: row["value"] > 15, after: lambda row: row["sensor"] == 1},
    )


def test_starts_where_the_last_one_ended(store: Store, author: Author, spark: SparkSession) -> None:
    stream = author.create(READINGS)
    _, predicate = author.register(stream, above(0.0))
    with running(store, spark) as engine:
        engine.wait_for(author.publish(stream, readings([1], [1.0])))
    author.publish(stream, readings([2], [2.0]))
    with running(store, spark) as engine:
        engine.wait_for(author.publish(stream, readings([3], [3.0])))
    assert [row["sensor"] for row in stem_rows(store, stream)] == [1, 2, 3]
    assert matched(store, predicate) == [0, 1, 2]


def test_a_long_log_is_taken_in_several_steps(
    store: Store, author: Author, spark: SparkSession
) -> None:
    stream = author.create(READINGS)
    for number in range(7):
        author.publish(stream, readings([number], [1.0]))
    with running(store, spark, EngineSettings(step_commits=3)) as engine:
        engine.wait_for(author.state.position)
        assert store.epochs.latest()[1].number >= 3
    assert [row["_row_id"] for row in stem_rows(store, stream)] == list(range(7))


class StepRows(EngineMetrics):
    """The rows of each step."""

    def __init__(self) -> None:
        self.counts: list[int] = []

    def end_step(self, rows: int) -> None:
        self.counts.append(rows)


def test_a_step_that_drops_a_stream_counts_its_new_rows(
    store: Store, author: Author, spark: SparkSession
) -> None:
    metrics, eager = StepRows(), EngineSettings(housekeeping=0.0, grace=0.0)
    brief, other = author.create(timed(HOUR)), author.create(READINGS)
    at = pa.array([author.state.clock], pa.int64())
    row = pa.RecordBatch.from_pydict({"sensor": [1], "at": at.view(pa.timestamp("us", "UTC"))})
    with running(store, spark, eager, metrics) as engine:
        engine.wait_for(author.publish(brief, row.cast(timed().arrow)))
        past = author.state.clock + 3 * HOUR
        engine.wait_for(author.publish_bytes(brief, b"", 0, past, past))
        engine.wait_idle()
        assert stem_rows(store, brief) == []
        # Without files, the stream has no mark in the epoch of this step.
        author.drop(brief)
        engine.wait_for(author.publish(other, readings([1, 2], [1.0, 2.0])))
    assert sum(metrics.counts) == 3 and min(metrics.counts) == 0


def test_a_second_engine_is_refused(store: Store, spark: SparkSession) -> None:
    with running(store, spark), pytest.raises(SecondEngine, match="already runs"):
        Engine(store, spark).start()
    with running(store, spark):
        pass


def test_a_foreign_commit_is_undone_and_a_foreign_epoch_stops_it(
    store: Store, author: Author, spark: SparkSession
) -> None:
    stream = author.create(READINGS)
    with running(store, spark) as engine:
        engine.wait_for(author.state.position)
        version = engine._ledger.tables["matches"].version + 1
        store.table("matches").commit(version, operation="OTHER", sync=False)
        _, predicate = author.register(stream, above(0.0))
        engine.wait_for(author.publish(stream, readings([1], [1.0])))
        assert matched(store, predicate) == [0]
        epochs_version, epoch = store.epochs.latest()
        store.epochs.append(epochs_version + 1, replace(epoch, number=epoch.number + 1))
        position = author.publish(stream, readings([1], [1.0]))
        with pytest.raises(SecondEngine, match="another engine"):
            engine.wait_for(position)


def test_a_failing_step_is_tried_again(
    store: Store, author: Author, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = author.create(READINGS)
    failures = iter([RuntimeError("no room"), RuntimeError("no room")])

    def sometimes(*arguments: object) -> None:
        take_step(*arguments)  # type: ignore[arg-type]
        if failure := next(failures, None):
            raise failure

    monkeypatch.setattr(engine_module, "take_step", sometimes)
    with running(store, spark) as engine:
        engine.wait_for(author.publish(stream, readings([1], [1.0])))
        engine.wait_idle()
    assert len(stem_rows(store, stream)) == 1


def test_a_step_that_fails_for_good_says_why(
    store: Store, author: Author, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    author.create(READINGS)

    def never(*_: object) -> None:
        raise RuntimeError("no room on the disk")

    monkeypatch.setattr(engine_module, "take_step", never)
    with (
        running(store, spark, EngineSettings(retries=1)) as engine,
        pytest.raises(EngineFailed, match="no room on the disk"),
    ):
        engine.wait_for(author.state.position)
