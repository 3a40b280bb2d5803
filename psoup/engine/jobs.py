"""Spark jobs: a function and units of work, a task for each core; what the tasks wrote comes back.

They are jobs of the RDD kind: such a job took 80 ms of processor time where the same one through a
DataFrame took 160 (docs/decisions/engine.md), and there is nothing here for a planner to plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pyspark.sql import SparkSession

from psoup.engine.ledger import Ledger
from psoup.store.delta.files import DataFile
from psoup.store.delta.reading import DataFileGone
from psoup.store.errors import CorruptStore
from psoup.store.state.losses import Hole


@dataclass(frozen=True, slots=True)
class SparkJob:
    """The terms of a job: the store's folder, the version of its predicates table to match with,
    and the version from which on that table has checksums (`checked`)."""

    root: str
    predicates: int
    sync: bool
    checked: int = 0


@dataclass(frozen=True, slots=True)
class Written:
    """A file, synced and waiting for its commit. `table` is a name as the ledger has it."""

    table: str
    file: DataFile


@dataclass(frozen=True, slots=True)
class Damaged:
    """A file that is damaged or gone, by its path in the store."""

    file: str
    problem: str


@dataclass(frozen=True, slots=True)
class CompositeOutcome:
    """What came of a task over a composite: it has found `count` combinations.

    `fanouts` are (side, probes, found). `draft` is the file in the composite's folder that holds
    the combinations while they have no ids; `too_many` says that they were not found.
    """

    composite_id: int
    count: int = 0
    fanouts: tuple[tuple[int, int, int], ...] = ()
    draft: str = ""
    too_many: bool = False


Outcome = Written | Hole | Damaged | CompositeOutcome


def by_table(outcomes: Iterable[Outcome]) -> dict[str, list[DataFile]]:
    """Groups the files that tasks wrote by the table to commit them to."""
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


def job_of(ledger: Ledger) -> SparkJob:
    """The terms of a job over the tables as the ledger has them now."""
    store = ledger.store
    folder = ledger.folder("predicates")
    return SparkJob(
        str(store.root), ledger.tables["predicates"].version, store.sync, folder.checked
    )
