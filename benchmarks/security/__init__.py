"""Security: what it costs to know who calls, beside not asking, in one run."""

from __future__ import annotations

from pathlib import Path

from benchmarks.report import Report
from benchmarks.security import identity


def run(folder: Path, quick: bool) -> Report:
    report = Report("security", "one client, one answer after the other, ways in turn")
    identity.measure(folder / "identity", quick, report)
    return report
