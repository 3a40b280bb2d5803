"""The clocks of a device, and the offset of the store's clock from them.

The wall clock of a device may be wrong. A sync measures by how much. The offset is valid until the
clock is set: then the wall clock and the time since the machine started drift apart.
"""

from __future__ import annotations

import functools
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from client_sdk._wire.values import to_micros

Clock = Callable[[], datetime]

# How far the wall clock and the uptime may drift apart before the clock counts as set.
_DRIFT_MICROS = 2_000_000

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def machine_clock() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Uptime:
    """The time since a machine started, sleep included. `boot_id` names that start."""

    boot_id: str
    micros: int


def machine_uptime() -> Uptime:
    """Return the uptime of this machine.

    If the system has no boot id, this process stands for it, and no other process can use the
    offset.
    """
    # CLOCK_BOOTTIME counts sleep, which the monotonic clock may leave out. Not every system has it.
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    nanos = time.monotonic_ns() if clock is None else time.clock_gettime_ns(clock)
    return Uptime(_boot_id(), nanos // 1000)


@functools.cache
def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return secrets.token_hex(8)


@dataclass(frozen=True, slots=True)
class Offset:
    """The store's clock minus the wall clock, in microseconds, as of a sync.

    `started` was the wall clock minus the uptime: it stays the same until the clock is set.
    """

    micros: int
    started: int
    boot_id: str


class DeviceClock:
    """The clocks of one device. Tests have their own."""

    def __init__(
        self, wall: Clock = machine_clock, uptime: Callable[[], Uptime] = machine_uptime
    ) -> None:
        self._wall = wall
        self._uptime = uptime

    def __call__(self) -> datetime:
        return self._wall()

    def micros(self) -> int:
        """Return the wall clock in microseconds."""
        return to_micros(self._wall())

    def measure(self, store_now: int | None) -> Offset | None:
        """Return the offset, given the store's clock at this moment."""
        if store_now is None:
            return None
        wall, uptime = self.micros(), self._uptime()
        return Offset(store_now - wall, wall - uptime.micros, uptime.boot_id)

    def offset(self, measured: Offset | None) -> int | None:
        """Return a measured offset; None if the machine was started, or its clock set, since
        then.
        """
        if measured is None:
            return None
        uptime = self._uptime()
        # Wall clock minus uptime stays the same while both run. A step shows that the clock was
        # set.
        drift = self.micros() - uptime.micros - measured.started
        is_valid = uptime.boot_id == measured.boot_id and abs(drift) <= _DRIFT_MICROS
        return measured.micros if is_valid else None

    def now(self, measured: Offset | None) -> int:
        """Return the store's NOW if the offset is valid, else the wall clock."""
        return self.micros() + (self.offset(measured) or 0)
