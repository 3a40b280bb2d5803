"""The stand-by: an engine that waits until the store's engine has ended or stands still.

It watches the pulse in the store's folder and nothing else, so it works on the engine's machine and
on another one. To take over it first publishes an epoch. The former engine may be only slow: its
next epoch conflicts then, it deletes nothing any more (see `fence`), and it ends. Of several
stand-bys the one whose epoch is committed takes over.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from psoup.engine.ownership.lock import EngineLock
from psoup.store import Store
from psoup.store.errors import Conflict
from psoup.store.presence import ENGINE_TIMEOUT_SECONDS, Pulse, refuse_unfinished

log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.5
# How long a store must be without a pulse: one that is read while it is written looks like none.
_ENDED_SECONDS = 2.0


def wait_for_end(
    root: Path, ending: threading.Event, beat: Callable[[], None] = lambda: None
) -> bool:
    """Wait until the store has no engine whose pulse changes; return False if `ending` was set.
    `beat` is called at each look.

    The pulse must stand still while this process watches. Its age at the first look is that of a
    file, by a clock that may be another machine's.
    """
    last, since = Pulse.read(root), time.monotonic()
    while not ending.wait(_LOOK_SECONDS):
        beat()
        pulse, now = Pulse.read(root), time.monotonic()
        if pulse != last:
            last, since = pulse, now
        elif now - since >= (_ENDED_SECONDS if pulse is None else ENGINE_TIMEOUT_SECONDS):
            return True
    return False


def take_over(store: Store, lock: EngineLock) -> bool:
    """Publish an epoch that says what the last one says, and take the lock; return False if another
    engine published one first. Raise Repairing if a repair of the store has not ended."""
    refuse_unfinished(store.root)
    version, epoch = store.epochs.latest()
    made_at = time.time_ns() // 1000
    takeover = replace(epoch, number=epoch.number + 1, kind="takeover", made_at=made_at)
    try:
        store.epochs.append(version + 1, takeover)
    except Conflict:
        return False
    lock.take_over()
    return True


def stand_by(
    root: Path, lock: EngineLock, ending: threading.Event, beat: Callable[[], None] = lambda: None
) -> Store | None:
    """Wait and take over; return the store, opened again, or None if `ending` was set."""
    if pulse := Pulse.read(root):
        log.info("standing by for the engine (process %s on %s)", pulse.pid, pulse.host)
    while wait_for_end(root, ending, beat):
        # Opened only now: a repair may have given the store another identity while this one waited.
        store = Store.open(root, create=True)
        if take_over(store, lock):
            log.info("taking over the store")
            return store
    return None
