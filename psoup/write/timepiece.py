"""The clocks of a machine: what time it is, and how long the machine has been up.

The first can be set, and be wrong; the second only goes on, also while the machine sleeps. For
tests a file can stand for the machine (`PSOUP_CLOCK_FILE`): it holds one or two numbers, the
seconds by which this process's clock is ahead of the machine's and, if given, by which the machine
has been up longer than it says. It is read at every look, so a clock can be set while a server
runs; replace it, don't write into it. Each file is a machine of its own.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from datastem.instants import SECOND

VARIABLE = "PSOUP_CLOCK_FILE"
# The first names the installed system, the second the running one; containers may lack the first.
_MACHINE = (Path("/etc/machine-id"), Path("/proc/sys/kernel/random/boot_id"))


@dataclass(frozen=True, slots=True)
class Timepiece:
    """A machine's clocks in microseconds: `wall` is UTC, `boot` the time since some fixed moment.

    `name` is the machine's: servers with one name have one clock. `synchronised` says whether
    a time service keeps `wall` right.
    """

    name: str
    wall: Callable[[], int]
    boot: Callable[[], int]
    synchronised: Callable[[], bool] = lambda: False


def system_clock() -> int:
    """The system's time: microseconds since 1970, UTC."""
    return time.time_ns() // 1000


def system_boot() -> int:
    """Microseconds since the machine was started, or of its monotonic clock if that is all."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) // 1000


class _Timex(ctypes.Structure):
    """The beginning of what `adjtimex` of Linux fills in, with room for the rest."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("frequency", ctypes.c_long),
        ("most_error", ctypes.c_long),
        ("error", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_byte * 512),
    )


_UNSYNCHRONISED = 0x40


def system_synchronised() -> bool:
    """True where the kernel says that NTP keeps its clock right; False where it can't say."""
    found = _Timex()
    try:
        ctypes.CDLL(None).adjtimex(ctypes.byref(found))
    except (AttributeError, OSError):
        return False
    # A kernel that was never told anything has no bound on its error.
    return not found.status & _UNSYNCHRONISED and 0 < found.most_error < SECOND


def machine_name() -> str:
    """A name that all processes of this machine get, also after a restart."""
    for path in _MACHINE:
        try:
            found = path.read_text().strip()
        except OSError:
            continue
        if found:
            return _short(found)
    return _short(str(uuid.getnode()))


def this_machine() -> Timepiece:
    """The clocks of this machine, or those that the file of `PSOUP_CLOCK_FILE` makes of them."""
    given = os.environ.get(VARIABLE)
    if not given:
        return Timepiece(machine_name(), system_clock, system_boot, system_synchronised)
    path = Path(given).absolute()
    return Timepiece(
        _short(str(path)),
        lambda: system_clock() + _read(path)[0],
        lambda: system_boot() + _read(path)[1],
    )


def of_clock(clock: Callable[[], int]) -> Timepiece:
    """A timepiece of this machine whose clock is right by definition."""
    return Timepiece(machine_name(), clock, clock)


def _read(path: Path) -> tuple[int, int]:
    """The two durations in a clock file. Raises ValueError for a file that holds anything else."""
    seconds = [float(word) for word in path.read_text().split()]
    ahead, up = (*seconds, 0.0, 0.0)[:2]
    return int(ahead * SECOND), int(up * SECOND)


def _short(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=6, person=b"psoup clock").hexdigest()
