"""Spark sessions with an event log, and what the log says about the jobs of a session.

Python tasks run beside the JVM, so Spark does not count their processor time: tasks report it
themselves (`psoup.engine.spark.jobs.Spent`), and both are added.
"""

from __future__ import annotations

import heapq
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pyspark.sql import SparkSession

from benchmarks.memory import processor
from psoup.engine.matching import backfill
from psoup.engine.spark.jobs import Outcome, Spent, run_tasks
from psoup.engine.spark.session import open_session
from psoup.engine.steps import step

CORES = (1, 2, 4, 8)
_NANOSECONDS = 1e9
SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"


@dataclass(frozen=True)
class JobTimes:
    """The processor seconds of each task of a job, in their order, and the bytes it shuffled."""

    tasks: tuple[float, ...]
    shuffled: int

    def makespan(self, cores: int) -> float:
        """Return how long the tasks take if each goes to the first core that is free."""
        ends = [0.0] * cores
        for seconds in self.tasks:
            heapq.heapreplace(ends, ends[0] + seconds)
        return max(ends)


@dataclass
class Measured:
    """What one piece of work took: its jobs, and the driver's processor seconds beside them."""

    cores: int
    jobs: list[JobTimes] = field(default_factory=list)
    driver: float = 0.0

    @property
    def tasks(self) -> float:
        return sum(sum(job.tasks) for job in self.jobs)

    @property
    def critical_path(self) -> float:
        """The longest chain: jobs come one after the other, and the driver's work between them."""
        return self.driver + sum(job.makespan(self.cores) for job in self.jobs)

    @property
    def shuffled(self) -> int:
        return sum(job.shuffled for job in self.jobs)


class Cluster:
    """A session. Work done in `measuring` is measured once the session has ended."""

    def __init__(self, spark: SparkSession, cores: int) -> None:
        self.spark, self.cores = spark, cores
        # The Python seconds of the tasks of each job so far.
        self.python: list[list[float]] = []
        self.pieces: list[tuple[Measured, int, int, float]] = []
        # Python's gateway is a child of this process: the JVM.
        self._jvm = int(spark._jvm.ProcessHandle.current().pid())  # type: ignore[union-attr]

    @contextmanager
    def measuring(self) -> Iterator[Measured]:
        measured, first = Measured(self.cores), len(self.python)
        jvm, driver = processor([self._jvm]), time.process_time()
        yield measured
        driver, jvm = time.process_time() - driver, processor([self._jvm]) - jvm
        measured.driver = driver
        self.pieces.append((measured, first, len(self.python), jvm))

    def run_tasks(self, *arguments: Any, **options: Any) -> list[Outcome]:
        outcomes = run_tasks(*arguments, **options)
        if arguments[3]:
            self.python.append([part.seconds for part in outcomes if isinstance(part, Spent)])
        return outcomes

    def settle(self, log: list[JobTimes]) -> None:
        """Add what the event log says, job by job, to the pieces of work."""
        assert len(log) == len(self.python), (len(log), len(self.python))
        for measured, first, last, jvm in self.pieces:
            for python, job in zip(self.python[first:last], log[first:last], strict=True):
                tasks = tuple(a + b for a, b in zip(python, job.tasks, strict=True))
                measured.jobs.append(JobTimes(tasks, job.shuffled))
            in_tasks = sum(sum(job.tasks) for job in log[first:last])
            # What the JVM did beside its tasks is the driver's: it schedules and collects.
            measured.driver += max(jvm - in_tasks, 0.0)


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
        """Open a session. When it ends, everything that was measured in it is complete."""
        spark = open_session(self._folder / f"scratch-{cores}", master=f"local[{cores}]")
        name = spark.sparkContext.applicationId
        cluster = Cluster(spark, cores)
        try:
            with (
                patch.object(step, "run_tasks", cluster.run_tasks),
                patch.object(backfill, "run_tasks", cluster.run_tasks),
            ):
                yield cluster
        finally:
            spark.stop()
        cluster.settle(read_events(self._events / name))


def read_events(path: Path) -> list[JobTimes]:
    """Return the jobs of an event log, in order, with the JVM seconds of their tasks."""
    jobs: dict[int, list[int]] = {}
    tasks: dict[int, dict[int, float]] = {}
    shuffled: dict[int, int] = {}
    with path.open() as lines:
        for line in lines:
            event = json.loads(line)
            if event["Event"] == "SparkListenerJobStart":
                jobs[event["Job ID"]] = event["Stage IDs"]
            elif event["Event"] == "SparkListenerTaskEnd":
                stage, metrics = event["Stage ID"], event["Task Metrics"]
                seconds = metrics["Executor CPU Time"] / _NANOSECONDS
                tasks.setdefault(stage, {})[event["Task Info"]["Index"]] = seconds
                written = metrics["Shuffle Write Metrics"]["Shuffle Bytes Written"]
                shuffled[stage] = shuffled.get(stage, 0) + written
    return [
        JobTimes(
            tuple(
                seconds for stage in stages for _, seconds in sorted(tasks.get(stage, {}).items())
            ),
            sum(shuffled.get(stage, 0) for stage in stages),
        )
        for _, stages in sorted(jobs.items())
    ]
