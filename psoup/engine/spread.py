"""Spark jobs: a function and units of work, a task for each core; what they wrote comes back.

They are jobs of the RDD kind: such a job took 80 ms of processor time where the same one through
a DataFrame took 160 (docs/architecture.md), and there is nothing here for a planner to plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from pyspark.sql import SparkSession

from psoup.engine.outcome import Outcome
from psoup.engine.worker import Job

Unit = TypeVar("Unit")


def spread(
    spark: SparkSession,
    job: Job,
    work: Callable[[Job, Unit], list[Outcome]],
    units: Sequence[Unit],
) -> list[Outcome]:
    """Runs `work(job, unit)` for every unit."""

    def task(mine: Iterable[Unit]) -> list[Outcome]:
        return [outcome for unit in mine for outcome in work(job, unit)]

    if not units:
        return []
    context = spark.sparkContext
    tasks = min(len(units), context.defaultParallelism)
    return context.parallelize(units, tasks).mapPartitions(task).collect()
