"""Spark sessions with an event log, and what the log says about the jobs of a session.

Python tasks run beside the JVM, so Spark does not count their processor time. Tasks of RDD jobs
report it themselves (`psoup.engine.spark.jobs.Spent`). What the workers used for DataFrames is
divided over the tasks of those by their run time.

What the JVM does beside its tasks is the driver's, but for the threads that compile and collect
garbage: they run beside everything else, and compile most while a session is new.

A session divides work for any number of cores, and runs no more tasks at a time than the machine
has cores: tasks that share a core would take each other's caches, and more processor time.
"""

from __future__ import annotations

import heapq
import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pyspark.sql import SparkSession

from benchmarks.memory import descendants, processor, seconds_of_threads
from psoup.engine.composites import boxes, growing, keeping
from psoup.engine.matching import backfill
from psoup.engine.spark import session
from psoup.engine.spark.jobs import Outcome, Spent, run_tasks
from psoup.engine.steps import step

CORES = (1, 2, 4, 8)
_NANOSECONDS = 1e9
SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
# The local property that says which call of `run_tasks` started a job.
_CALL = "psoup.benchmark.call"
# The modules that call `run_tasks` in a measured piece of work.
_CALLERS = (step, backfill, boxes, growing, keeping)
# How the names of the JVM's own threads begin: compilers and collectors.
_RUNTIME_THREADS = ("C1 Compiler", "C2 Compiler", "Sweeper", "GC Thread", "G1 ")


@dataclass(frozen=True)
class TaskTimes:
    """One task: the processor seconds of its JVM thread, and how long it ran."""

    seconds: float
    run_seconds: float


@dataclass(frozen=True)
class LoggedJob:
    """A job in the event log: when it was submitted, the call of `run_tasks` that started it, if
    one did, the tasks of its stages, and the bytes it shuffled."""

    at: float
    call: int | None
    stages: tuple[tuple[TaskTimes, ...], ...]
    shuffled: int

    @property
    def tasks(self) -> list[TaskTimes]:
        return [task for stage in self.stages for task in stage]


def makespan(tasks: tuple[float, ...], cores: int) -> float:
    """Return how long tasks take if each goes to the first core that is free."""
    ends = [0.0] * cores
    for seconds in tasks:
        heapq.heapreplace(ends, ends[0] + seconds)
    return max(ends)


@dataclass
class Measured:
    """What one piece of work took: the processor seconds of the tasks of each stage, in their
    order, the driver's beside them, those of the JVM's compilers and collectors, and the bytes
    shuffled."""

    cores: int
    stages: list[tuple[float, ...]] = field(default_factory=list)
    driver: float = 0.0
    runtime: float = 0.0
    shuffled: int = 0
    jobs: int = 0

    @property
    def tasks(self) -> float:
        return sum(map(sum, self.stages))

    @property
    def critical_path(self) -> float:
        """The longest chain: stages come one after the other, and the driver's work between
        them."""
        return self.driver + sum(makespan(stage, self.cores) for stage in self.stages)


@dataclass(frozen=True)
class _Piece:
    """A piece of work: when it ran, and the processor seconds of the JVM and of the workers."""

    measured: Measured
    begin: float
    end: float
    jvm: float
    workers: float


class Cluster:
    """A session. Work done in `measuring` is measured once the session has ended."""

    def __init__(self, spark: SparkSession, cores: int) -> None:
        self.spark, self.cores = spark, cores
        # The Python seconds of the tasks of each call of `run_tasks` so far.
        self._python: list[list[float]] = []
        self._pieces: list[_Piece] = []
        # Python's gateway is a child of this process: the JVM.
        self._jvm = int(spark._jvm.ProcessHandle.current().pid())  # type: ignore[union-attr]

    @contextmanager
    def measuring(self) -> Iterator[Measured]:
        measured, begin = Measured(self.cores), time.time()
        driver, jvm, workers = time.process_time(), processor([self._jvm]), self._workers()
        runtime = seconds_of_threads(self._jvm, _RUNTIME_THREADS)
        yield measured
        measured.driver = time.process_time() - driver
        runtime = seconds_of_threads(self._jvm, _RUNTIME_THREADS) - runtime
        measured.runtime = max(runtime, 0.0)
        jvm, workers = processor([self._jvm]) - jvm, self._workers() - workers
        self._pieces.append(_Piece(measured, begin, time.time(), jvm, workers))

    def _workers(self) -> float:
        return processor({*descendants()} - {os.getpid(), self._jvm})

    def run_tasks(self, spark: SparkSession, *arguments: Any, **options: Any) -> list[Outcome]:
        """Run tasks in the place of the engine's function, and note what they spent."""
        call, context = len(self._python), spark.sparkContext
        self._python.append([])
        context.setLocalProperty(_CALL, str(call))
        try:
            outcomes = run_tasks(spark, *arguments, **options)
        finally:
            context.setLocalProperty(_CALL, None)  # type: ignore[arg-type]
        self._python[call] += [part.seconds for part in outcomes if isinstance(part, Spent)]
        return outcomes

    def settle(self, log: list[LoggedJob]) -> None:
        """Add what the event log says to the pieces of work."""
        for piece in self._pieces:
            self._settle(piece, [job for job in log if piece.begin <= job.at < piece.end])

    def _settle(self, piece: _Piece, jobs: list[LoggedJob]) -> None:
        measured, python = piece.measured, self._python
        reported = sum(sum(python[job.call]) for job in jobs if job.call is not None)
        frames = [task for job in jobs if job.call is None for task in job.tasks]
        run_seconds = sum(task.run_seconds for task in frames)
        share = max(piece.workers - reported, 0.0) / run_seconds if run_seconds else 0.0
        for job in jobs:
            if job.call is not None:
                (stage,) = job.stages
                pairs = zip(python[job.call], stage, strict=True)
                measured.stages.append(tuple(spent + task.seconds for spent, task in pairs))
            else:
                measured.stages += [
                    tuple(task.seconds + share * task.run_seconds for task in stage)
                    for stage in job.stages
                ]
            measured.shuffled += job.shuffled
        measured.jobs = len(jobs)
        # What the JVM did beside its tasks is the driver's: it schedules, and takes their results.
        in_tasks = sum(task.seconds for job in jobs for task in job.tasks)
        measured.driver += max(piece.jvm - in_tasks - measured.runtime, 0.0)


class Clusters:
    """Sessions with any number of cores, one at a time; all write event logs into one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._events = folder / "events"
        self._events.mkdir(parents=True)
        options = {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": self._events.as_uri(),
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
        }
        settings = " ".join(f"--conf {name}={value}" for name, value in options.items())
        os.environ[SUBMIT_ARGUMENTS] = f"{settings} pyspark-shell"

    @contextmanager
    def open(self, cores: int) -> Iterator[Cluster]:
        """Open a session that divides work for some cores. When it ends, everything that was
        measured in it is complete."""
        settings = {"spark.default.parallelism": str(cores)}
        master = f"local[{min(cores, os.cpu_count() or 1)}]"
        with patch.dict(session._SETTINGS, settings):
            spark = session.open_session(self._folder / f"scratch-{cores}", master=master)
        name, cluster = spark.sparkContext.applicationId, Cluster(spark, cores)
        assert spark.sparkContext.defaultParallelism == cores
        try:
            with ExitStack() as patches:
                for module in _CALLERS:
                    patches.enter_context(patch.object(module, "run_tasks", cluster.run_tasks))
                yield cluster
        finally:
            spark.stop()
        cluster.settle(read_events(self._events / name))


def read_events(path: Path) -> list[LoggedJob]:
    """Return the jobs of an event log, in order."""
    jobs: dict[int, tuple[float, int | None, list[int]]] = {}
    tasks: dict[int, dict[int, TaskTimes]] = {}
    shuffled: dict[int, int] = {}
    with path.open() as lines:
        for line in lines:
            event = json.loads(line)
            if event["Event"] == "SparkListenerJobStart":
                call = event["Properties"].get(_CALL)
                begin = event["Submission Time"] / 1e3
                number = None if call is None else int(call)
                jobs[event["Job ID"]] = begin, number, event["Stage IDs"]
            elif event["Event"] == "SparkListenerTaskEnd":
                stage, metrics = event["Stage ID"], event["Task Metrics"]
                spent = metrics["Executor CPU Time"] + metrics["Executor Deserialize CPU Time"]
                tasks.setdefault(stage, {})[event["Task Info"]["Index"]] = TaskTimes(
                    spent / _NANOSECONDS, metrics["Executor Run Time"] / 1e3
                )
                written = metrics["Shuffle Write Metrics"]["Shuffle Bytes Written"]
                shuffled[stage] = shuffled.get(stage, 0) + written
    logged, counted = [], set[int]()
    for begin, call, stages in (jobs[number] for number in sorted(jobs)):
        # A stage that an earlier job has run is skipped in a later one that needs it, too.
        ids = [stage for stage in sorted(stages) if stage in tasks and stage not in counted]
        counted.update(ids)
        times = (tuple(tasks[stage][place] for place in sorted(tasks[stage])) for stage in ids)
        logged.append(LoggedJob(begin, call, tuple(times), sum(shuffled[stage] for stage in ids)))
    return logged
