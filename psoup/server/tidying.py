"""Gives memory back to the system that nobody uses any more.

Arrow's allocator and the C library's keep what is freed for whoever comes next, which after a large
batch or a long scan is as much again as a server holds. They are asked to return it now and then:
at every free it would cost more than the scan itself.
"""

from __future__ import annotations

import asyncio
import ctypes
import sys
from collections.abc import Callable

import pyarrow as pa

_SECONDS = 0.25
# What may come and go without a look.
_SLACK = 32 << 20


async def tidy_up() -> None:
    """Until cancelled. Does nothing while nothing large was allocated or freed."""
    trim, seen = _malloc_trim(), (0, 0)
    while True:
        await asyncio.sleep(_SECONDS)
        now = _resident(), pa.total_allocated_bytes()
        if any(abs(new - old) > _SLACK for new, old in zip(now, seen, strict=True)):
            await asyncio.to_thread(_release, trim)
            seen = _resident(), pa.total_allocated_bytes()


def _release(trim: Callable[[int], int] | None) -> None:
    pa.default_memory_pool().release_unused()
    if trim is not None:
        trim(0)


def _malloc_trim() -> Callable[[int], int] | None:
    """The C library's function, where it has one."""
    if sys.platform != "linux":
        return None
    return getattr(ctypes.CDLL(None), "malloc_trim", None)


def _resident() -> int:
    """The bytes of this process that are in memory; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096
    except OSError:
        return 0
