"""Memory that is given back to the system.

Arrow's allocator and the C library's keep what is freed for later use, which after a large batch or
a long scan is as much again as a server holds. They are asked to return it now and then: at every
free it would cost more than the scan itself.
"""

from __future__ import annotations

import asyncio
import ctypes
import sys
from collections.abc import Callable

import pyarrow as pa

_INTERVAL_SECONDS = 0.25
# Changes in use that are too small to act on.
_SLACK_BYTES = 32 << 20
_PAGE_BYTES = 4096


async def tidy_up() -> None:
    """Give memory back, until cancelled; do nothing while nothing large was allocated or freed."""
    trim, previous = _malloc_trim(), (0, 0)
    while True:
        await asyncio.sleep(_INTERVAL_SECONDS)
        present = _resident(), pa.total_allocated_bytes()
        changes = (abs(new - old) for new, old in zip(present, previous, strict=True))
        if max(changes) > _SLACK_BYTES:
            await asyncio.to_thread(_release, trim)
            previous = _resident(), pa.total_allocated_bytes()


def _release(trim: Callable[[int], int] | None) -> None:
    pa.default_memory_pool().release_unused()
    if trim is not None:
        trim(0)


def _malloc_trim() -> Callable[[int], int] | None:
    """Return the C library's function; None if it has none."""
    if sys.platform != "linux":
        return None
    return getattr(ctypes.CDLL(None), "malloc_trim", None)


def _resident() -> int:
    """Return the bytes of this process that are in memory; 0 if the system does not say."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0
