"""A step of many rows and many interval predicates, with more and more cores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from benchmarks.cluster.session import CORES, Clusters, Measured
from benchmarks.cluster.store import BenchmarkEngine, BenchmarkStore
from benchmarks.report import Report

# Rows × predicates: what the aims name, and as much processor time as they had in mind.
SIZES = ((1_000_000, 100_000, CORES), (4_000_000, 100_000, (1, max(CORES))))
QUICK_SIZES = ((400_000, 50_000, CORES),)


def measure(clusters: Clusters, report: Report, folder: Path, quick: bool) -> None:
    for rows, predicates, cores in QUICK_SIZES if quick else SIZES:
        store = BenchmarkStore(folder / str(rows))
        store.register_intervals(predicates)
        by_cores = {count: _measure(clusters, store, rows, count) for count in cores}
        what = f"step of {rows:,} rows × {predicates:,} intervals"
        report_division(report, what, by_cores)
        assert not by_cores[max(cores)].shuffled


def report_division(
    report: Report, what: str, by_cores: Mapping[int, Measured], *, judge: bool = True
) -> None:
    """Report how a piece of work was divided; if asked, judge it by the aims of a large step."""
    alone, most = by_cores[1], by_cores[max(by_cores)]
    for cores, measured in by_cores.items():
        last = judge and measured is most
        ratio = measured.critical_path / alone.critical_path
        goal = {"aim": "≤ 0.167 ×", "met": ratio <= 1 / 6} if last else {}
        report.add(
            f"{what}, {cores} cores: critical path", measured.critical_path, "s",
            ratio=ratio, beside="1 core", **goal,
        )  # fmt: skip
        ratio = measured.tasks / alone.tasks
        goal = {"aim": "≤ 1.2 ×", "met": ratio <= 1.2} if last else {}
        report.add(
            "  processor time of all tasks", measured.tasks, "s",
            ratio=ratio, beside="1 core", **goal,
        )  # fmt: skip
        ratio = measured.driver / measured.tasks
        goal = {"aim": "≤ 0.1 ×", "met": ratio <= 0.1} if judge else {}
        report.add("  the driver", measured.driver, "s", ratio=ratio, beside="the tasks", **goal)
        report.add("  the JVM's compilers and collectors", measured.runtime, "s")
        report.add("  tasks", sum(map(len, measured.stages)), "tasks")
        report.add("  shuffled", measured.shuffled, "bytes")


def _measure(clusters: Clusters, store: BenchmarkStore, rows: int, cores: int) -> Measured:
    """Measure one step, after others that made every worker's index and the engine's estimates."""
    with clusters.open(cores) as cluster:
        engine = BenchmarkEngine(store.store, cluster.spark)
        usual, engine.settings = engine.settings, replace(engine.settings, task_bytes=1)
        for _ in range(3):
            # A commit for each task, and a task for each core.
            store.publish(rows // 10, batch=rows // 10 // cores)
            engine.step()
        engine.settings = usual
        store.publish(rows)
        with cluster.measuring() as measured:
            engine.step()
    return measured
