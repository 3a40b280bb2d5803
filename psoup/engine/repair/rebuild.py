"""The removal of everything that follows from rows and queries, so that the engine derives it
again: matches, coverage, combinations and closures."""

from __future__ import annotations

from pathlib import Path

from psoup.engine.composites.boxes import forget_composite
from psoup.engine.ownership.lock import EngineLock
from psoup.engine.repair.mend import forget_closures, restart_coverage
from psoup.engine.repair.recover import open_ledger
from psoup.store import Store


def rebuild(root: Path) -> None:
    """Drop what is derived in the store in a folder, by epochs. Servers may run: they compute what
    is not there. Raise SecondEngine if an engine runs, and StoreError.

    Each epoch is right by itself, so a rebuild that was killed is run again, or left as it is.
    """
    store = Store.open(root)
    lock = EngineLock(root)
    lock.acquire()
    try:
        ledger = open_ledger(store)
        for composite_id in list(ledger.composites):
            forget_composite(ledger, composite_id)
        forget_closures(ledger)
        restart_coverage(ledger, "rebuild")
    finally:
        lock.release()
