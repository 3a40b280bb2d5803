"""Every benchmark, one after the other, each in a process of its own and bounded in time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.report import FOLDER, circumstances, markdown

# Seconds: all of them together, and one of them with --quick.
TOTAL, QUICK_LIMIT = 1800.0, 180.0
_GRACE = 30.0


def run_all(names: Iterable[str], quick: bool, options: list[str]) -> int:
    """Run all, even if one fails; return the exit code, 0 if none did."""
    folder = FOLDER / f"all-{datetime.now(UTC):%Y%m%dT%H%M%S}"
    folder.mkdir(parents=True)
    reports, failed = [], {}
    deadline = time.monotonic() + TOTAL
    for name in names:
        path = folder / f"{name}.json"
        began = time.monotonic()
        limit = min(QUICK_LIMIT, deadline - began) if quick else deadline - began
        problem = _run(name, [*options, "--json", str(path)], limit)
        print(f"— {name}: {problem or 'done'} in {time.monotonic() - began:.0f} s\n", flush=True)
        if problem:
            failed[name] = problem
        else:
            reports.append(json.loads(path.read_text()))
    _summarise(folder, quick, reports, failed)
    return 1 if failed else 0


def _run(name: str, options: list[str], limit: float) -> str:
    """Runs one benchmark; gives what went wrong, or an empty text."""
    if limit <= 0:
        return "was not started: the time for all of them is over"
    command = [sys.executable, "-m", "benchmarks", name, *options]
    process = subprocess.Popen(command, start_new_session=True)
    try:
        code = process.wait(limit)
    except subprocess.TimeoutExpired:
        _end(process)
        return f"took more than {limit:.0f} s and was ended"
    except BaseException:
        _end(process)
        raise
    return f"failed with exit code {code}" if code else ""


def _end(process: subprocess.Popen[bytes]) -> None:
    """As Ctrl-C would, so that it ends the servers it has started; else all of its session."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(_GRACE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _summarise(
    folder: Path, quick: bool, reports: list[dict[str, Any]], failed: dict[str, str]
) -> None:
    summary = circumstances() | {"quick": quick, "failed": failed, "reports": reports}
    (folder / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    parts = [f"## {report['name']}\n\n{markdown(report)}\n" for report in reports]
    parts += [f"## {name}\n\n{problem}\n" for name, problem in failed.items()]
    (folder / "summary.md").write_text("\n".join(parts))
    missed = sum(line["met"] is False for report in reports for line in report["lines"])
    met = sum(line["met"] is True for report in reports for line in report["lines"])
    print(f"{len(reports)} measured, {len(failed)} failed; {met} aims met, {missed} missed")
    for name, problem in failed.items():
        print(f"  {name} {problem}")
    print(f"summary.json, summary.md and the plots are in {folder}")
