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
    """By table; Delta's own logs, of all tables together, apart."""
    sizes: dict[str, list[int]] = {}
    for path in store.rglob("*"):
        with contextlib.suppress(OSError):
            if path.is_file():
                parts = path.relative_to(store).parts
                name = "_delta_log" if "_delta_log" in parts else parts[0]
                sizes.setdefault(name, []).append(path.stat().st_size)
    return {name: Holding(len(each), sum(each)) for name, each in sorted(sizes.items())}
