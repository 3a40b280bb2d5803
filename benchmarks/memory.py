"""What processes hold of the machine: resident memory, and files on disk."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")


def resident(pids: Iterable[int]) -> int:
    """Bytes, added up; processes that have ended count nothing."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    return total


@dataclass(frozen=True, slots=True)
class Holding:
    """Of one table: all that is on disk, named by an epoch or not."""

    files: int
    nbytes: int


def tables(store: Path) -> dict[str, Holding]:
    """By table, Delta's own log included."""
    found = {}
    for folder in sorted(each for each in store.iterdir() if each.is_dir()):
        sizes = []
        for path in folder.rglob("*"):
            with contextlib.suppress(OSError):
                if path.is_file():
                    sizes.append(path.stat().st_size)
        found[folder.name] = Holding(len(sizes), sum(sizes))
    return found
