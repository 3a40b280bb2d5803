"""Sync: what a client receives that was away, beside the whole answer and a log per client.

`changes` by the rows that changed, `away` after days on real rows, `storage` what a log per client
costs meanwhile, `thousand` many clients at once, `work` the processor time of the server, `copy`
that of a client that keeps its answer, `kept_changes` what it costs to keep changes too, `shared`
how many syncs could share a difference.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.report import Report
from benchmarks.sync import away, changes, copy, kept_changes, shared, storage, thousand, work


def run(folder: Path, quick: bool) -> Report:
    clients = (thousand.QUICK if quick else thousand.FULL).clients
    report = Report("sync", f"answers of 10,000 rows; {clients:,} clients at once")
    changes.measure(report, folder / "changes", quick)
    storage.measure(report, folder / "storage", quick)
    if not away.measure(report, folder / "away", quick):
        report.setting += "; without the rows of a week away, which are not here"
    work.measure(report, folder / "work", quick)
    copy.measure(report, folder / "copy", quick)
    kept_changes.measure(report, folder / "kept", quick)
    shared.measure(report, folder / "shared", quick)
    thousand.measure(report, folder / "thousand", quick)
    return report
