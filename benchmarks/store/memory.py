"""Resident memory of a process and its descendants."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

_PROC = Path("/proc")


def resident(pid: int) -> int:
    """Return the bytes of a process and its descendants; 0 if the machine does not report them.

    Memory that processes share is counted in each.
    """
    processes = _from_proc() if (_PROC / "self" / "stat").exists() else _from_ps()
    tree = [pid]
    for parent in tree:
        tree += [child for child, (parent_pid, _) in processes.items() if parent_pid == parent]
    return sum(processes[member][1] for member in tree if member in processes)


def _from_proc() -> dict[int, tuple[int, int]]:
    """Return the parent and the resident bytes of each process, by process id."""
    page_bytes, processes = os.sysconf("SC_PAGE_SIZE"), {}
    for folder in _PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            # The fields after the process's name: [1] is the parent, [21] the resident pages.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            processes[int(folder.name)] = int(fields[1]), int(fields[21]) * page_bytes
    return processes


def _from_ps() -> dict[int, tuple[int, int]]:
    try:
        listing = subprocess.run(
            ["ps", "-A", "-o", "pid=,ppid=,rss="], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return {}
    rows = [[int(field) for field in line.split()] for line in listing.stdout.splitlines()]
    return {pid: (parent, kilobytes * 1024) for pid, parent, kilobytes in rows}
