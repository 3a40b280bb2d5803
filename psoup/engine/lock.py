"""One engine a store: a lock that the operating system frees when its holder is gone.

It stops a second engine on this machine at once. One elsewhere is found out by its first
conflicting commit (see `ledger`).
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from psoup.engine.errors import SecondEngine


class EngineLock:
    def __init__(self, store: Path) -> None:
        self._path = store / "engine.lock"
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Nothing to do where this object has it already.

        Raises SecondEngine where another process, or another engine in this one, has it.
        """
        if self._descriptor is not None:
            return
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            raise SecondEngine(
                f"an engine (process {holder}) already runs on {self._path.parent}. "
                "Stop it first; a store has one engine."
            ) from None
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
