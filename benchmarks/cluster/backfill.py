"""Back-fill of many rows for new queries, with one core and with eight."""

from __future__ import annotations

from pathlib import Path

from benchmarks.cluster.session import CORES, Clusters, Measured
from benchmarks.cluster.store import BenchmarkEngine, BenchmarkStore
from benchmarks.report import Report

QUERIES = 1000


def measure(clusters: Clusters, report: Report, folder: Path, quick: bool) -> None:
    rows = 2_000_000 if quick else 10_000_000
    store = BenchmarkStore(folder / "store")
    store.publish(rows, batch=1 << 16)
    by_cores = {
        cores: _measure(clusters, store, seed) for seed, cores in enumerate((1, max(CORES)))
    }
    alone, most = by_cores.values()
    what = f"back-fill of {rows:,} rows × {QUERIES:,} queries"
    for measured in (alone, most):
        factor = alone.critical_path / measured.critical_path
        goal = {"aim": "≥ 5 ×", "met": factor >= 5} if measured is most else {}
        report.add(
            f"{what}, {measured.cores} cores: critical path", measured.critical_path, "s",
            ratio=factor, beside="as fast as 1 core", **goal,
        )  # fmt: skip
        report.add("  jobs", measured.jobs, "jobs")
        report.add("  the driver", measured.driver, "s", ratio=measured.driver / measured.tasks,
                   beside="the tasks")  # fmt: skip
        report.add("  the JVM's compilers and collectors", measured.runtime, "s")
    ratio = most.tasks / alone.tasks
    report.add(
        f"  processor time of all tasks, {most.cores} cores", most.tasks, "s",
        ratio=ratio, beside="1 core",
    )  # fmt: skip


def _measure(clusters: Clusters, store: BenchmarkStore, seed: int) -> Measured:
    """Measure the back-fill of other queries than those of earlier calls."""
    with clusters.open((1, max(CORES))[seed]) as cluster:
        engine = BenchmarkEngine(store.store, cluster.spark)
        while engine.step():
            pass
        # A pass of few queries lets the engine find out how large slices should be.
        store.register_intervals(QUERIES, seed=10 + seed)
        engine.step()
        while engine.backfill.advance(engine.ledger):
            pass
        store.register_intervals(QUERIES, seed=20 + seed)
        engine.step()
        with cluster.measuring() as measured:
            while engine.backfill.advance(engine.ledger):
                pass
    return measured
