"""A step of 1,000 rows and 1,024 predicates, beside the same step of an earlier commit.

Both run in processes of their own, in turns; the earlier code is a git worktree.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from benchmarks.cluster.session import SUBMIT_ARGUMENTS, Clusters
from benchmarks.report import Report

# The last commit whose steps had one group of predicates.
BEFORE = "081c0ddf"
_PROJECT = Path(__file__).parents[2]
_SCRIPT = Path(__file__).with_name("small_steps.py")


def measure(clusters: Clusters, report: Report, folder: Path, quick: bool) -> None:
    turns, steps = (1, 20) if quick else (3, 100)
    what = "step of 1,000 rows × 1,024 predicates: processor time of all processes"
    before = folder / "before"
    if not _worktree(before):
        report.add(what, 1e3 * _seconds(_PROJECT, folder / "now", steps), "ms")
        return
    try:
        seconds: dict[Path, list[float]] = {_PROJECT: [], before: []}
        for turn in range(turns):
            # In turns, so that a change of the machine's load meets both.
            for tree in (_PROJECT, before) if turn % 2 else (before, _PROJECT):
                run = folder / f"{tree.name}-{turn}"
                seconds[tree].append(_seconds(tree, run, steps))
    finally:
        _git("worktree", "remove", "--force", str(before))
    now, then = (float(np.median(seconds[tree])) for tree in (_PROJECT, before))
    ratio = now / then
    goal = {"aim": "≤ 1.05 ×", "met": ratio <= 1.05}
    report.add(what, 1e3 * now, "ms", ratio=ratio, beside=f"commit {BEFORE}", **goal)


def _seconds(tree: Path, store: Path, steps: int) -> float:
    """Return the median processor seconds of a step by the code of a tree."""
    # Without the event log of this process's sessions.
    environment = {name: text for name, text in os.environ.items() if name != SUBMIT_ARGUMENTS}
    done = subprocess.run(
        [sys.executable, str(_SCRIPT), str(store), str(steps)],
        cwd=tree,
        env={**environment, "PYTHONPATH": str(tree)},
        stdout=subprocess.PIPE,
        check=True,
    )
    seconds: float = json.loads(done.stdout.splitlines()[-1])
    return seconds


def _worktree(folder: Path) -> bool:
    """Check the earlier commit out; return False if there is no repository that has it."""
    return _git("worktree", "add", "--detach", str(folder), BEFORE)


def _git(*arguments: str) -> bool:
    try:
        return not subprocess.run(
            ["git", *arguments], cwd=_PROJECT, capture_output=True, check=False
        ).returncode
    except OSError:
        return False
