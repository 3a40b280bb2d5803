"""Resident memory of a process and all it has started."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

_PROC = Path("/proc")


def resident(pid: int) -> int:
    """Bytes; 0 where the machine does not say. Memory that processes share is counted in each."""
    processes = _from_proc() if (_PROC / "self" / "stat").exists() else _from_ps()
    tree = [pid]
    for parent in tree:
        tree += [each for each, (above, _) in processes.items() if above == parent]
    return sum(processes[each][1] for each in tree if each in processes)


def _from_proc() -> dict[int, tuple[int, int]]:
    """The parent of each process, and its bytes."""
    page, found = os.sysconf("SC_PAGE_SIZE"), {}
    for folder in _PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            found[int(folder.name)] = int(fields[1]), int(fields[21]) * page
    return found


def _from_ps() -> dict[int, tuple[int, int]]:
    try:
        listed = subprocess.run(
            ["ps", "-A", "-o", "pid=,ppid=,rss="], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return {}
    rows = [[int(field) for field in line.split()] for line in listed.stdout.splitlines()]
    return {pid: (parent, kilobytes * 1024) for pid, parent, kilobytes in rows}
