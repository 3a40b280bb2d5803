"""Empty jobs keep Python workers alive while a store is in use, and only then."""

from __future__ import annotations

import os
import time
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from psoup.engine.engine import Engine
from psoup.engine.settings import EngineSettings
from psoup.engine.spark import keep_alive
from psoup.engine.spark.keep_alive import KeepAlive
from psoup.store import Store, Tick
from tests.support.engine.author import READINGS, Author, above, readings
from tests.support.engine.pump import QUIET, Pump

pytestmark = pytest.mark.spark

# Spark's own limit, and how often it looks.
IDLE_SECONDS, LOOK_SECONDS = 60, 10


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


def job_count(spark: SparkSession) -> int:
    return max(spark.sparkContext.statusTracker().getJobIdsForGroup(), default=-1) + 1


def test_a_job_every_40_seconds_until_ten_minutes_after_the_last_row_or_query(
    store: Store, author: Author, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, times = Clock(), list[float]()
    monkeypatch.setattr(keep_alive, "time", clock)
    run_empty_job = keep_alive.run_empty_job

    def run_and_note(session: SparkSession) -> None:
        times.append(clock.now)
        run_empty_job(session)

    # Asking Spark for its jobs each second would take minutes.
    monkeypatch.setattr(keep_alive, "run_empty_job", run_and_note)
    stream = author.create(READINGS)
    author.publish(stream, readings([1], [1.0]))
    pump, alive = Pump(store, spark), KeepAlive(spark, EngineSettings())
    pump.step()

    def jobs(seconds: int) -> list[int]:
        """Let time pass as the engine's loop does; return the seconds at which jobs ran."""
        start = clock.now
        times.clear()
        for _ in range(seconds):
            alive.advance(pump.ledger)
            clock.now += 1
        return [int(at - start) for at in times]

    alive.advance(pump.ledger)
    clock.now += 601
    assert jobs(100) == [] and alive.due_in() == float("inf"), "an earlier engine's work"
    author.append(Tick())
    pump.step()
    assert jobs(10) == [], "servers tick by themselves"
    for use in (
        lambda: author.publish(stream, readings([2], [2.0])),
        lambda: author.register(stream, above(1.0)),
    ):
        use()
        pump.step()
        assert jobs(700) == list(range(0, 601, 40))
        assert alive.due_in() == float("inf")


def test_every_core_gets_a_task(store: Store, author: Author, spark: SparkSession) -> None:
    stream = author.create(READINGS)
    pump = Pump(store, spark)
    alive = KeepAlive(spark, replace(QUIET, keep_alive=0.0))
    alive.advance(pump.ledger)
    author.publish(stream, readings([2], [2.0]))
    pump.step()
    before = job_count(spark)
    alive.advance(pump.ledger)
    tracker = spark.sparkContext.statusTracker()
    job = tracker.getJobInfo(before)
    assert job is not None
    (stage,) = job.stageIds
    info = tracker.getStageInfo(stage)
    assert info is not None and info.numTasks == spark.sparkContext.defaultParallelism


@pytest.mark.long
@pytest.mark.parametrize("in_use", [600.0, 0.0])
def test_spark_ends_workers_of_an_idle_store_only(
    store: Store, author: Author, spark: SparkSession, in_use: float
) -> None:
    def workers() -> set[int]:
        """The processes whose parent is the daemon."""

        def task(_: int) -> int:
            # Long enough that no worker runs two of them.
            time.sleep(0.5)
            return os.getpid()

        cores = spark.sparkContext.defaultParallelism
        tasks = spark.sparkContext.parallelize(range(cores), cores)
        return set(tasks.map(task).collect())

    stream = author.create(READINGS)
    engine = Engine(store, spark, EngineSettings(in_use=in_use))
    engine.start()
    try:
        engine.wait_for(author.publish(stream, readings([1], [1.0])))
        before = workers()
        time.sleep(IDLE_SECONDS + 2 * LOOK_SECONDS)
        assert workers().isdisjoint(before) == (in_use == 0)
    finally:
        engine.stop()
