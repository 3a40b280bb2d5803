"""The clocks of a machine: the time of day, and the time since it booted.

The first can be set, and be wrong; the second only advances, also while the machine sleeps. Tests
can simulate a machine with a file (`PSOUP_CLOCK_FILE`). It holds one or two numbers: the seconds by
which this process's clock is ahead of the machine's and, optionally, seconds to add to the time
since boot. It is read at every call, so a clock can be set while a server runs. Replace the file,
don't write into it. Each file is a separate machine.
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
# The first identifies the installed system, the second the boot; containers may lack the first.
_MACHINE_ID_FILES = (Path("/etc/machine-id"), Path("/proc/sys/kernel/random/boot_id"))


@dataclass(frozen=True, slots=True)
class Timepiece:
    """A machine's clocks in microseconds: `wall` is UTC, `boot` the time since some fixed moment.

    `name` identifies the machine: servers with equal names share a clock. `synchronised` returns
    True if a time service keeps `wall` right.
    """

    name: str
    wall: Callable[[], int]
    boot: Callable[[], int]
    synchronised: Callable[[], bool] = lambda: False


def system_clock() -> int:
    """Return the system's time: microseconds since 1970, UTC."""
    return time.time_ns() // 1000


def system_boot() -> int:
    """Return microseconds since boot, or of the monotonic clock if the system has nothing
    better."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) // 1000


class _Timex(ctypes.Structure):
    """The first fields of the struct that `adjtimex` of Linux fills in, padded to its size."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("frequency", ctypes.c_long),
        ("most_error", ctypes.c_long),
        ("error", ctypes.c_long),
        ("status", ctypes.c_int),
        ("padding", ctypes.c_byte * 512),
    )


# STA_UNSYNC of <sys/timex.h>.
_UNSYNCHRONISED = 0x40


def system_synchronised() -> bool:
    """Return True if the kernel says that NTP keeps its clock right; False if it can't say."""
    status = _Timex()
    try:
        ctypes.CDLL(None).adjtimex(ctypes.byref(status))
    except (AttributeError, OSError):
        return False
    # Without a time service the kernel reports no bound on its error.
    return not status.status & _UNSYNCHRONISED and 0 < status.most_error < SECOND


def machine_name() -> str:
    """Return a name that is the same for all processes of this machine, also after a restart."""
    for path in _MACHINE_ID_FILES:
        try:
            text = path.read_text().strip()
        except OSError:
            continue
        if text:
            return _short(text)
    return _short(str(uuid.getnode()))


def this_machine() -> Timepiece:
    """Return the clocks of this machine, shifted as the file of `PSOUP_CLOCK_FILE` says, if any."""
    file_name = os.environ.get(VARIABLE)
    if not file_name:
        return Timepiece(machine_name(), system_clock, system_boot, system_synchronised)
    path = Path(file_name).absolute()
    return Timepiece(
        _short(str(path)),
        lambda: system_clock() + _read(path)[0],
        lambda: system_boot() + _read(path)[1],
    )


def of_clock(clock: Callable[[], int]) -> Timepiece:
    """Return a timepiece of this machine that uses `clock` for both times, so it is never ahead."""
    return Timepiece(machine_name(), clock, clock)


def _read(path: Path) -> tuple[int, int]:
    """Return the two durations in a clock file. Raise ValueError if it holds anything else."""
    seconds = [float(word) for word in path.read_text().split()]
    ahead, up = (*seconds, 0.0, 0.0)[:2]
    return int(ahead * SECOND), int(up * SECOND)


def _short(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=6, person=b"psoup clock").hexdigest()
