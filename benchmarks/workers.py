"""A new Python worker of Spark: what its first task costs, by the daemon that forks it."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.report import Report

# What a task of the engine imports if its worker does not have it yet.
MODULES = ("psoup.engine.steps.worker", "psoup.engine.composites.worker")
DAEMONS = {"psoup.engine.daemon": "modules loaded before the fork", "pyspark.daemon": "pyspark's"}

# Process id, seconds of processor time, bytes resident, and bytes of its share of the memory.
Cost = tuple[int, float, int, int]


def run(folder: Path, quick: bool) -> Report:
    rounds = 3 if quick else 10
    os.environ["PYSPARK_PYTHON"] = sys.executable
    report = Report("workers", f"the first task of a new Python worker, least of {rounds}")
    for module, text in DAEMONS.items():
        spark = _session(folder, module)
        try:
            bare = _least(spark, _measured(()), rounds)
            loaded = _least(spark, _measured(MODULES), rounds)
        finally:
            spark.stop()
        report.add(f"processor time, an empty task, daemon: {text}", 1000 * bare[1], "ms")
        report.add(f"processor time, a task of the engine, daemon: {text}", 1000 * loaded[1], "ms")
        report.add(f"resident memory, daemon: {text}", loaded[2] / 2**20, "MiB")
        report.add(f"memory, shared pages divided, daemon: {text}", loaded[3] / 2**20, "MiB")
    return report


def _session(folder: Path, daemon: str) -> SparkSession:
    return (
        SparkSession.builder.master("local[1]")
        .config("spark.python.daemon.module", daemon)
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.executorEnv.PYTHONPATH", str(Path(__file__).parents[1]))
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.local.dir", str(folder))
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )


def _least(spark: SparkSession, task: Callable[[Iterable[int]], list[Cost]], rounds: int) -> Cost:
    """Return the cheapest of some first tasks, each in a worker of its own."""
    costs = []
    for _ in range(rounds):
        (cost,) = spark.sparkContext.parallelize([0], 1).mapPartitions(task).collect()
        # The worker may have ended by itself after a task.
        with contextlib.suppress(ProcessLookupError):
            os.kill(cost[0], signal.SIGKILL)
        # Spark notices the end of an idle worker when it looks for one.
        time.sleep(0.5)
        costs.append(cost)
    return min(costs, key=lambda cost: cost[1])


def _measured(modules: tuple[str, ...]) -> Callable[[Iterable[int]], list[Cost]]:
    # Defined here, so that Spark sends the function itself and the worker needs no module of ours.
    def task(_: Iterable[int]) -> list[Cost]:
        for module in modules:
            import_module(module)
        with open("/proc/self/smaps_rollup") as lines:
            kilobytes = {line.split()[0]: int(line.split()[1]) for line in lines if " kB" in line}
        return [
            (os.getpid(), time.process_time(), kilobytes["Rss:"] << 10, kilobytes["Pss:"] << 10)
        ]

    return task
