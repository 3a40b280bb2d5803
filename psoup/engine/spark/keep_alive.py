"""The empty job that keeps Python workers alive while a store is in use.

Spark ends the Python workers of an executor that ran no Python task for 60 s, which is a constant
of Spark. The next step would start workers again, and each would read predicates and build its
index again. A store is in use if rows arrived or queries were registered in the last minutes. After
that the workers end, and an idle engine costs nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from pyspark.sql import SparkSession

from psoup.engine.ledger import Ledger
from psoup.engine.settings import EngineSettings


class KeepAlive:
    """The schedule of empty jobs."""

    def __init__(self, spark: SparkSession, settings: EngineSettings) -> None:
        self._spark = spark
        self._interval = settings.keep_alive
        self._in_use = settings.in_use
        self._usage: tuple[int, int] | None = None
        self._used_at = self._ran_at = time.monotonic()

    def advance(self, ledger: Ledger) -> None:
        """Run an empty job if one is due."""
        now, usage = time.monotonic(), _usage(ledger)
        if usage != self._usage:
            # The first usage is what an earlier engine has seen.
            if self._usage is not None:
                self._used_at = now
            self._usage = usage
        if self.due_in() <= 0:
            self._ran_at = now
            run_empty_job(self._spark)

    def due_in(self) -> float:
        """Return the seconds until the next empty job; infinity if the store is not in use."""
        now = time.monotonic()
        if now - self._used_at > self._in_use:
            return float("inf")
        return self._ran_at + self._interval - now


def run_empty_job(spark: SparkSession) -> None:
    """Run a task for each core, so that every executor gets some. A step may have a single task."""
    context = spark.sparkContext
    tasks = context.defaultParallelism
    context.parallelize(range(tasks), tasks).foreachPartition(_nothing)


def _usage(ledger: Ledger) -> tuple[int, int]:
    """Return numbers that grow with new rows and new predicates, but not with servers' ticks."""
    state = ledger.state
    return sum(stream.high for stream in state.streams.values()), state.next_predicate_id


def _nothing(_: Iterable[int]) -> None:
    pass
