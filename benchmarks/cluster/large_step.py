"""A step of many rows and many interval predicates, with more and more cores."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from benchmarks.cluster.session import CORES, Clusters, Measured
from benchmarks.cluster.store import BenchmarkEngine, BenchmarkStore
from benchmarks.report import Report


def measure(clusters: Clusters, report: Report, folder: Path, quick: bool) -> None:
    rows, predicates = (400_000, 50_000) if quick else (1_000_000, 100_000)
    store = BenchmarkStore(folder / "store")
    store.register_intervals(predicates)
    by_cores = {cores: _measure(clusters, store, rows, cores) for cores in CORES}
    alone, most = by_cores[1], by_cores[max(CORES)]
    what = f"step of {rows:,} rows × {predicates:,} intervals"
    for cores, measured in by_cores.items():
        ratio = measured.critical_path / alone.critical_path
        goal = {"aim": "≤ 0.167 ×", "met": ratio <= 1 / 6} if measured is most else {}
        report.add(
            f"{what}, {cores} cores: critical path", measured.critical_path, "s",
            ratio=ratio, beside="1 core", **goal,
        )  # fmt: skip
    ratio = most.tasks / alone.tasks
    report.add(
        f"  processor time of all tasks, {most.cores} cores", most.tasks, "s",
        ratio=ratio, beside="1 core", aim="≤ 1.2 ×", met=ratio <= 1.2,
    )  # fmt: skip
    for measured in (alone, most):
        ratio = measured.driver / measured.tasks
        report.add(
            f"  the driver, {measured.cores} cores", measured.driver, "s",
            ratio=ratio, beside="the tasks", aim="≤ 0.1 ×", met=ratio <= 0.1,
        )  # fmt: skip
    report.add(f"  tasks, {most.cores} cores", len(most.jobs[0].tasks), "tasks")
    report.add("  shuffled", most.shuffled, "bytes", aim="0 bytes", met=not most.shuffled)


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
