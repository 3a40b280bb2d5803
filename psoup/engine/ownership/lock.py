"""The engine's lock, which allows one engine per store. The operating system frees it when its
process ends.

It stops a second engine on this machine at once. Of engines on two machines the one with the newest
epoch goes on (see `fence`). The locked file also holds the engine's pulse, by which servers
know that it runs.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from psoup.engine.errors import SecondEngine, ServersRunning
from psoup.store import presence
from psoup.store.presence import Occupancy, Pulse

log = logging.getLogger(__name__)

_LOCK_ATTEMPTS = 4
_LOCK_RETRY_SECONDS = 0.02


class EngineLock:
    """The lock of a store's engine, and the thread that writes its pulse."""

    def __init__(self, store: Path) -> None:
        self._path = store / presence.ENGINE_LOCK
        self._descriptor: int | None = None
        self._ending = threading.Event()
        self._beating: threading.Thread | None = None

    def acquire(self) -> None:
        """Take the lock, unless this object has it already. Raise SecondEngine if another process,
        or another engine in this one, has it."""
        if self._descriptor is not None:
            self._check_file(self._descriptor)
            return
        # Not truncated: until the lock is taken, the file may hold the pulse of another engine.
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        if not _try_lock(descriptor):
            os.close(descriptor)
            raise SecondEngine(
                f"an engine{self._holder()} already runs on {self._path.parent}. "
                "Stop it first; a store has one engine."
            )
        first = Pulse.first()
        first.write(descriptor)
        self._keep(descriptor, first)

    def take_over(self) -> None:
        """Take the lock although another engine may hold it: put another file into its place.

        The former engine keeps the lock of the old file, and writes its pulse there; no process
        reads it. The caller must have published an epoch.
        """
        draft = self._path.with_name(f".{self._path.name}.{uuid.uuid4().hex}.tmp")
        descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        first = Pulse.first()
        first.write(descriptor)
        os.replace(draft, self._path)
        self._keep(descriptor, first)

    def _keep(self, descriptor: int, first: Pulse) -> None:
        """Hold a locked file, and write the pulses after the first one."""
        self._descriptor = descriptor
        self._ending.clear()
        self._beating = threading.Thread(
            target=self._beat, args=(descriptor, first), name="pulse", daemon=True
        )
        self._beating.start()

    def _check_file(self, descriptor: int) -> None:
        """Raise SecondEngine if another engine has taken over."""
        try:
            in_place = os.path.samestat(os.fstat(descriptor), os.stat(self._path))
        except FileNotFoundError:
            in_place = False
        if not in_place:
            raise SecondEngine(f"an engine{self._holder()} has taken over {self._path.parent}")

    def release(self) -> None:
        """Free the lock and empty the file, so that servers know at once."""
        if self._descriptor is None or self._beating is None:
            return
        self._ending.set()
        # The thread must end before the descriptor is closed, whose number may be reused.
        self._beating.join()
        # While the lock is still held: afterwards the file may hold the pulse of the next engine.
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)
        self._descriptor = self._beating = None

    def _holder(self) -> str:
        pulse = Pulse.read(self._path.parent)
        return f" (process {pulse.pid} on {pulse.host})" if pulse else ""

    def _beat(self, descriptor: int, now: Pulse) -> None:
        while not self._ending.wait(presence.PULSE_SECONDS):
            now = replace(now, count=now.count + 1)
            try:
                now.write(descriptor)
            except OSError as error:
                log.warning("could not write %s: %s", self._path, error)


@contextmanager
def exclusive_store(root: Path) -> Iterator[None]:
    """Keep servers and engines out of a store. Raise ServersRunning or SecondEngine if one runs."""
    lock, occupancy = EngineLock(root), Occupancy(root)
    if not occupancy.take():
        raise ServersRunning(f"a server runs on {root}; stop every server and the engine first")
    try:
        lock.acquire()
        yield
    finally:
        lock.release()
        occupancy.leave()


def _try_lock(descriptor: int) -> bool:
    """Lock the file; return False if it is locked by an engine.

    Try for a moment: the previous engine may just be ending.
    """
    for _ in range(_LOCK_ATTEMPTS):
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(_LOCK_RETRY_SECONDS)
    return False
