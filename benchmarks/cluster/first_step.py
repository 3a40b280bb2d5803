"""The first task of a new Python worker: what it takes to have an index, and to use it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.cluster.session import Clusters
from benchmarks.cluster.store import FIRST_ROWS, BenchmarkEngine, BenchmarkStore
from benchmarks.report import Report


def measure(clusters: Clusters, report: Report, folder: Path, quick: bool) -> None:
    count = 10_000 if quick else 100_000
    with clusters.open(1) as cluster:
        for kind in ("equalities", "intervals"):
            store = BenchmarkStore(folder / kind)
            register = getattr(store, f"register_{kind}")
            register(count)
            engine = BenchmarkEngine(store.store, cluster.spark)
            engine.step()
            version = engine.ledger.tables["predicates"].version
            for what, limit in (("the first worker", 1.0), ("another worker", 0.1)):
                read, probed = _in_new_process(folder / kind, version, store.stream)
                total = read + probed
                goal = {} if quick else {"aim": f"≤ {limit:g} s", "met": total <= limit}
                report.add(f"{what} with {count:,} {kind}: first step", total * 1e3, "ms", **goal)
                report.add(f"  of that, {FIRST_ROWS:,} rows probed", probed * 1e3, "ms")


def _in_new_process(root: Path, version: int, stream: int) -> tuple[float, float]:
    """Return the processor seconds of a process that imported the engine's modules before: until it
    has the index, and for its first probe."""
    arguments = [sys.executable, "-m", "benchmarks.cluster.new_worker", str(root)]
    done = subprocess.run(
        [*arguments, str(version), str(stream)], stdout=subprocess.PIPE, check=True
    )
    read, probed = json.loads(done.stdout)
    return read, probed
