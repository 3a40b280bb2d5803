"""One engine a store: a lock that the operating system frees when its holder is gone.

It stops a second engine on this machine at once. One elsewhere is found out by its first
conflicting commit (see `ledger`). The locked file also carries the engine's pulse, by which servers
know that it lives.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from psoup.engine.errors import SecondEngine, ServersRunning
from psoup.store import presence
from psoup.store.presence import Occupancy, Pulse

log = logging.getLogger(__name__)

_TRIES = 4
_PAUSE = 0.02


class EngineLock:
    def __init__(self, store: Path) -> None:
        self._path = store / presence.ENGINE_LOCK
        self._descriptor: int | None = None
        self._ending = threading.Event()
        self._beating: threading.Thread | None = None

    def acquire(self) -> None:
        """Takes the lock, unless this object has it already. Raises SecondEngine where another
        process, or another engine in this one, has it."""
        if self._descriptor is not None:
            return
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        if not _locked(descriptor):
            os.close(descriptor)
            raise SecondEngine(
                f"an engine{self._holder()} already runs on {self._path.parent}. "
                "Stop it first; a store has one engine."
            )
        self._descriptor = descriptor
        self._ending.clear()
        first = Pulse.first()
        first.write(descriptor)
        self._beating = threading.Thread(
            target=self._beat, args=(descriptor, first), name="pulse", daemon=True
        )
        self._beating.start()

    def release(self) -> None:
        """Frees the lock and leaves the file empty, so that servers know at once."""
        if self._descriptor is None or self._beating is None:
            return
        self._ending.set()
        self._beating.join()
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)
        self._descriptor = self._beating = None

    def _holder(self) -> str:
        found = Pulse.read(self._path.parent)
        return f" (process {found.pid} on {found.host})" if found else ""

    def _beat(self, descriptor: int, now: Pulse) -> None:
        while not self._ending.wait(presence.PULSE_SECONDS):
            now = replace(now, count=now.count + 1)
            try:
                now.write(descriptor)
            except OSError as error:
                log.warning("could not write %s: %s", self._path, error)


@contextmanager
def whole_store(root: Path) -> Iterator[None]:
    """Keep servers and engines out of a store. Raises ServersRunning, SecondEngine."""
    lock, occupancy = EngineLock(root), Occupancy(root)
    if not occupancy.take():
        raise ServersRunning(f"a server runs on {root}; stop every server and the engine first")
    try:
        lock.acquire()
        yield
    finally:
        lock.release()
        occupancy.leave()


def _locked(descriptor: int) -> bool:
    """Tries to lock for a moment: a server that upgrades a store may be looking for an engine."""
    for _ in range(_TRIES):
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(_PAUSE)
    return False
