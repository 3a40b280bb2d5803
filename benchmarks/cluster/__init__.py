"""Cluster: how the engine's work divides over cores, from Spark's event log, in processor time.

Two cores can't show a cluster. They can show its shape: tasks report their processor time, which
does not depend on how many of them share a core, and the longest chain of that is what a cluster
with enough cores would take.

A case is a function that gets a `Cluster` and the report; `CASES` lists them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.cluster import backfill, first_step, joins, large_step, small_step
from benchmarks.cluster.session import Clusters
from benchmarks.report import Report

# Each gets the sessions, the report, a folder of its own, and whether to be quick.
CASES: tuple[Callable[[Clusters, Report, Path, bool], None], ...] = (
    large_step.measure,
    small_step.measure,
    first_step.measure,
    backfill.measure,
    joins.measure,
)


def run(folder: Path, quick: bool) -> Report:
    report = Report("cluster", "processor time; Spark with 1 to 8 cores on this machine")
    clusters = Clusters(folder / "spark")
    for number, measure in enumerate(CASES):
        (folder / str(number)).mkdir()
        measure(clusters, report, folder / str(number), quick)
    return report
