"""Spark jobs: a function and its units of work, a task for each core, and the tasks' outcomes.

They are RDD jobs: a job took 80 ms of processor time, and 160 ms through a DataFrame
(docs/explanation/decisions/engine.md). There is nothing for a planner to plan.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from psoup.engine.ledger import Ledger
from psoup.store.delta.files import DataFile
from psoup.store.delta.reading import DataFileGone
from psoup.store.errors import CorruptStore
from psoup.store.state.losses import Hole
from psoup.store.state.quarantine import MACHINE_ERRORS, reason_of

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SparkJob:
    """The parameters of a job: the store's folder, the version of its predicates table, and the
    predicates to leave out (`excluded`). A `trial` removes nothing."""

    root: str
    predicates: int
    sync: bool
    excluded: tuple[int, ...] = ()
    trial: bool = False


@dataclass(frozen=True, slots=True)
class Written:
    """A file that was written and synced, to be committed. `table` is a name in the ledger."""

    table: str
    file: DataFile


@dataclass(frozen=True, slots=True)
class Damaged:
    """A file that is damaged or missing, by its path in the store."""

    file: str
    problem: str


@dataclass(frozen=True, slots=True)
class Failed:
    """A unit of work that raised an error, maybe because of a predicate or a composite."""

    unit: Any
    problem: str


@dataclass(frozen=True, slots=True)
class CompositeOutcome:
    """The outcome of a task over a composite: it found `count` combinations.

    `fanouts` are (side, probed rows, combinations). `draft` is the file in the composite's folder
    that holds the combinations until they get ids. `too_many` is True if the task gave up.
    """

    composite_id: int
    count: int = 0
    fanouts: tuple[tuple[int, int, int], ...] = ()
    draft: str = ""
    too_many: bool = False


Outcome = Written | Hole | Damaged | Failed | CompositeOutcome


class TaskFailed(Exception):
    """A unit of work failed. Another process can try it again with `work(job, unit)`."""

    def __init__(
        self, problem: str, work: Callable[[SparkJob, Any], list[Outcome]], job: SparkJob, unit: Any
    ) -> None:
        super().__init__(problem)
        self.work, self.job, self.unit = work, job, unit


def by_table(outcomes: Iterable[Outcome]) -> dict[str, list[DataFile]]:
    """Return the files that tasks wrote, by the table to commit them to."""
    files: dict[str, list[DataFile]] = {}
    for outcome in outcomes:
        if isinstance(outcome, Written):
            files.setdefault(outcome.table, []).append(outcome.file)
    return files


Unit = TypeVar("Unit")


def run_tasks(
    spark: SparkSession,
    job: SparkJob,
    work: Callable[[SparkJob, Unit], list[Outcome]],
    units: Sequence[Unit],
) -> list[Outcome]:
    """Run `work(job, unit)` for every unit and return the outcomes.

    Raise CorruptStore if a file that one of them reads is damaged or missing, and TaskFailed if a
    unit fails for a reason other than its machine (memory, files, lost workers).
    """

    # Errors are returned as outcomes: Spark does not retry them, and they carry their unit.
    def task(partition: Iterable[Unit]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for unit in partition:
            try:
                outcomes += work(job, unit)
            except (CorruptStore, DataFileGone) as error:
                # All units run again after the repair, so the outcomes so far are not needed.
                return [Damaged(error.file, str(error))]
            except MACHINE_ERRORS:
                raise
            except Exception as error:
                log.exception("a task failed")
                return [Failed(unit, reason_of(error))]
        return outcomes

    if not units:
        return []
    context = spark.sparkContext
    tasks = min(len(units), context.defaultParallelism)
    outcomes: list[Outcome] = context.parallelize(units, tasks).mapPartitions(task).collect()
    for outcome in outcomes:
        if isinstance(outcome, Damaged):
            raise CorruptStore(outcome.problem, outcome.file)
        if isinstance(outcome, Failed):
            raise TaskFailed(outcome.problem, work, job, outcome.unit)
    return outcomes


def job_of(ledger: Ledger) -> SparkJob:
    """Return the parameters of a job over the tables as the ledger has them now."""
    store = ledger.store
    excluded = tuple(sorted(ledger.state.quarantine.predicates))
    return SparkJob(str(store.root), ledger.tables["predicates"].version, store.sync, excluded)
