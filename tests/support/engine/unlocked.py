"""An engine without the lock of its machine, like one on another machine."""

from __future__ import annotations

from psoup.engine.ownership.lock import EngineLock


class NoLock(EngineLock):
    """Locks nothing, and writes no pulse."""

    def acquire(self) -> None:
        pass

    def release(self) -> None:
        pass
