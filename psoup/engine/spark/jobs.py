"""Spark jobs: a function and its units of work, a task for each core, and the tasks' outcomes.

They are RDD jobs: a job took 80 ms of processor time, and 160 ms through a DataFrame
(docs/explanation/decisions/engine.md). There is nothing for a planner to plan.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from datastem.schema import Column, StreamSchema
from psoup.engine.ledger import Ledger
from psoup.engine.matching.predicates import forget_predicates
from psoup.engine.repair.culprits import causes_of, result_or_reason
from psoup.store.delta.files import DataFile
from psoup.store.delta.reading import NO_COLUMNS, DataFileGone
from psoup.store.errors import CorruptStore
from psoup.store.state.losses import Hole
from psoup.store.state.quarantine import QuarantineEntry

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SparkJob:
    """The parameters of a job: the store's folder, the version of its predicates table, and the
    predicates to leave out (`excluded`). A `trial` removes nothing. `altered` has the schemas of
    the streams with columns that older files lack."""

    root: str
    predicates: int
    sync: bool
    excluded: tuple[int, ...] = ()
    trial: bool = False
    altered: Mapping[int, StreamSchema] = field(default_factory=dict)

    def optional(self, stream_id: int) -> Mapping[str, Column]:
        """Return the columns that files of a stream may lack."""
        schema = self.altered.get(stream_id)
        return NO_COLUMNS if schema is None else schema.with_dropped.optional


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
    """A unit of work that raised an error twice, and the predicates or the composite that cause
    it, as far as they are known."""

    problem: str
    causes: tuple[QuarantineEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class SearchedFile:
    """A file that was searched for rows to remove. One that `changed` had some: what remains of it,
    if anything, was written to another file."""

    table: str
    path: str
    changed: bool


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


@dataclass(frozen=True, slots=True)
class IntakeJoin:
    """What a task that takes in new rows wrote of them for a composite: the outcomes of their join,
    or without `is_complete` only their rows of `joins/<id>`."""

    composite_id: int
    outcomes: tuple[Written | CompositeOutcome, ...]
    is_complete: bool


@dataclass(frozen=True, slots=True)
class Estimated:
    """The combinations of a composite that an average new row brings, and an average one that is
    admitted; and the share of them that a predicate over the composite matches."""

    composite_id: int
    per_row: float
    per_admitted_row: float
    wanted_share: float


@dataclass(frozen=True, slots=True)
class Spent:
    """The processor time of one task of Spark."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Probed:
    """What it took to match rows of a stream with the predicates whose ids are at least `lo`: the
    processor time, and the part of it that each group of predicates `repeated`.

    `graph` of the predicates are not hashed; `sample` are some of those, evenly spaced, or none if
    it took little time.
    """

    stream_id: int
    lo: int
    rows: int
    seconds: float
    repeated: float = 0.0
    graph: int = 0
    sample: tuple[int, ...] = ()


Outcome = (
    Written
    | SearchedFile
    | Hole
    | Damaged
    | Failed
    | CompositeOutcome
    | IntakeJoin
    | Estimated
    | Spent
    | Probed
)


class TaskFailed(Exception):
    """Units of work failed, because of the predicates or composites in `causes` if there are
    any."""

    def __init__(self, problem: str, causes: Iterable[QuarantineEntry] = ()) -> None:
        super().__init__(problem)
        self.causes = tuple(causes)


class WorkerDied(Exception):
    """A worker crashed or had too little memory while a job ran `work(job, unit)` for `units`."""

    def __init__(
        self,
        problem: str,
        work: Callable[[SparkJob, Any], list[Outcome]],
        job: SparkJob,
        units: Sequence[Any],
    ) -> None:
        super().__init__(problem)
        self.work, self.job, self.units = work, job, units


# What the messages of Spark say of a worker that died, and how that is reported.
_DEATHS = {
    "Python worker exited unexpectedly": "the worker process died",
    "ExecutorLostFailure": "the executor was lost",
    "MemoryError": "the worker process had too little memory",
}


def _death_in(error: Exception) -> str | None:
    """Return how a worker died, by the error of a job; None if none did."""
    message = str(error)
    return next((death for text, death in _DEATHS.items() if text in message), None)


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
    most: int | None = None,
) -> list[Outcome]:
    """Run `work(job, unit)` for every unit and return the outcomes, with what each task `Spent`.

    There are at most `most` tasks, by default as many as there are cores: units that take long are
    worth a task each, so that Spark gives the next one to the first core that is free.

    Raise CorruptStore if a file that one of them reads is damaged or missing, TaskFailed if a
    unit fails for a reason other than its machine, and WorkerDied if a worker died.
    """

    # Errors are returned as outcomes: Spark does not retry them, and they carry their unit.
    def task(partition: Iterable[Unit]) -> list[Outcome]:
        outcomes, started = list[Outcome](), time.process_time()
        for unit in partition:
            result = _run(job, work, unit)
            if isinstance(result, Damaged | Failed):
                # All units run again after a repair, so the outcomes so far are not needed.
                return [result]
            outcomes += result
        return [*outcomes, Spent(time.process_time() - started)]

    if not units:
        return []
    context = spark.sparkContext
    tasks = min(len(units), most or context.defaultParallelism)
    outcomes: list[Outcome]
    try:
        outcomes = context.parallelize(units, tasks).mapPartitions(task).collect()
    except Exception as error:
        if (death := _death_in(error)) is None:
            raise
        raise WorkerDied(death, work, job, units) from error
    for outcome in outcomes:
        if isinstance(outcome, Damaged):
            raise CorruptStore(outcome.problem, outcome.file)
    failures = [outcome for outcome in outcomes if isinstance(outcome, Failed)]
    if failures:
        # Several tasks may have failed, some with the same cause.
        causes = {cause.name: cause for failure in failures for cause in failure.causes}
        raise TaskFailed(failures[0].problem, causes.values())
    return outcomes


def _run(
    job: SparkJob, work: Callable[[SparkJob, Unit], list[Outcome]], unit: Unit
) -> list[Outcome] | Damaged | Failed:
    """Return the outcomes of a unit, in a task.

    Unless it is a trial, a unit that raises an error is tried once more, with the predicates read
    again: an index that is damaged in this process is no predicate's fault. If it raises an error
    again, the cause is searched for.
    """
    try:
        result = result_or_reason(work, job, unit)
        if isinstance(result, str) and not job.trial:
            log.error("a task failed (%s); trying it again with new indexes", result)
            forget_predicates(job.root)
            result = result_or_reason(work, job, unit)
        if not isinstance(result, str):
            return result
        return Failed(result, () if job.trial else tuple(causes_of(work, job, unit, result)))
    except (CorruptStore, DataFileGone) as error:
        return Damaged(error.file, str(error))


def job_of(ledger: Ledger) -> SparkJob:
    """Return the parameters of a job over the tables as the ledger has them now."""
    store = ledger.store
    excluded = tuple(sorted(ledger.state.quarantine.predicates))
    altered = {
        stream.id: stream.schema
        for stream in ledger.state.streams.values()
        if (stream.schema.optional or stream.schema.dropped) and not stream.dropped
    }
    version = ledger.tables["predicates"].version
    return SparkJob(str(store.root), version, store.sync, excluded, altered=altered)
