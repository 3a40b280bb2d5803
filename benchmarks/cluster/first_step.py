"""The first task of a new Python worker: what it takes to have the index of a stream."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.cluster.session import Clusters
from benchmarks.cluster.store import BenchmarkEngine, BenchmarkStore
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
            for what in ("the first worker", "another worker"):
                seconds = _in_new_process(folder / kind, version, store.stream)
                goal = {} if quick else {"aim": "≤ 1 s", "met": seconds <= 1}
                report.add(
                    f"{what} with {count:,} {kind}: reading them", seconds * 1e3, "ms", **goal
                )


def _in_new_process(root: Path, version: int, stream: int) -> float:
    """Return the processor seconds of a process that imported the engine's modules before."""
    arguments = [sys.executable, "-m", "benchmarks.cluster.new_worker", str(root)]
    done = subprocess.run(
        [*arguments, str(version), str(stream)], stdout=subprocess.PIPE, check=True
    )
    seconds: float = json.loads(done.stdout)
    return seconds
