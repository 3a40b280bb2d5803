"""Spark jobs: a function and units of work, a task for each core; what they wrote comes back.

They are jobs of the RDD kind: such a job took 80 ms of processor time where the same one through
a DataFrame took 160 (docs/architecture.md), and there is nothing here for a planner to plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from pyspark.sql import SparkSession

from psoup.engine.outcome import Damaged, Outcome
from psoup.engine.worker import Job
from psoup.store.delta.reading import DataFileGone
from psoup.store.errors import CorruptStore

Unit = TypeVar("Unit")


def spread(
    spark: SparkSession,
    job: Job,
    work: Callable[[Job, Unit], list[Outcome]],
    units: Sequence[Unit],
) -> list[Outcome]:
    """Runs `work(job, unit)` for every unit.

    Raises CorruptStore where a file that one of them reads is damaged or gone.
    """

    def task(mine: Iterable[Unit]) -> list[Outcome]:
        try:
            return [outcome for unit in mine for outcome in work(job, unit)]
        except (CorruptStore, DataFileGone) as error:
            # As an outcome it does not cost Spark's retries, and comes back with its name.
            return [Damaged(error.file, str(error))]

    if not units:
        return []
    context = spark.sparkContext
    tasks = min(len(units), context.defaultParallelism)
    outcomes: list[Outcome] = context.parallelize(units, tasks).mapPartitions(task).collect()
    for outcome in outcomes:
        if isinstance(outcome, Damaged):
            raise CorruptStore(outcome.problem, outcome.file)
    return outcomes
