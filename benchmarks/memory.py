"""The share of the machine that processes take: resident memory, processor time, files on disk."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

DELTA = "Delta's own logs"
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")


def resident(pids: Iterable[int]) -> int:
    """Bytes, added up; processes that have ended count nothing."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    return total


def own_bytes() -> int:
    """Bytes resident in this process, without what it has freed and not given back."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    return resident([os.getpid()])


def processor(pids: Iterable[int]) -> float:
    """Seconds used so far, added up: what other load on the machine hardly changes."""
    ticks = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICKS


def thread_seconds(pids: Iterable[int]) -> dict[int, float]:
    """Seconds used so far by the running threads of processes, by process: exact to the nanosecond,
    where `processor` counts ticks. Processes that have ended are left out."""
    seconds = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            paths = list(Path(f"/proc/{pid}/task").glob("*/schedstat"))
            nanoseconds = [int(path.read_text().split()[0]) for path in paths]
            if nanoseconds:
                seconds[pid] = sum(nanoseconds) / 1e9
    return seconds


def seconds_of_threads(pid: int, names: tuple[str, ...]) -> float:
    """Seconds used so far by the running threads of a process whose names begin with one of these.
    Linux keeps 15 characters of a name."""
    nanoseconds = 0
    for folder in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError):
            if (folder / "comm").read_text().startswith(names):
                nanoseconds += int((folder / "schedstat").read_text().split()[0])
    return nanoseconds / 1e9


def descendants() -> list[int]:
    """This process and all below it."""
    return family(os.getpid())


def family(pid: int) -> list[int]:
    """A process and all below it."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(path.parent.name))
    pids = [pid]
    # The list grows while it is read, generation by generation.
    for member in pids:
        pids += parents.get(member, [])
    return pids


@dataclass(frozen=True, slots=True)
class Holding:
    """All that one table has on disk, named by an epoch or not."""

    files: int
    nbytes: int


def tables(store: Path) -> dict[str, Holding]:
    """By table; Delta's own logs, of all tables together, apart."""
    sizes: dict[str, list[int]] = {}
    for path in store.rglob("*"):
        with contextlib.suppress(OSError):
            parts = path.relative_to(store).parts
            if len(parts) > 1 and path.is_file():
                name = DELTA if "_delta_log" in parts else parts[0]
                sizes.setdefault(name, []).append(path.stat().st_size)
    return {
        name: Holding(len(file_sizes), sum(file_sizes))
        for name, file_sizes in sorted(sizes.items())
    }
