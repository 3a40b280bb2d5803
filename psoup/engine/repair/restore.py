"""The new incarnation of a restored back-up, by which clients notice at once that history
differs."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path

from psoup.engine.ownership.lock import exclusive_store
from psoup.engine.repair.recover import open_ledger
from psoup.store import Store


def begin_incarnation(root: Path) -> None:
    """Give the store in a folder a new incarnation, by one epoch. Servers refuse earlier positions
    and tokens from then on. Raise ServersRunning, SecondEngine, StoreError."""
    store = Store.open(root)
    with exclusive_store(root):
        ledger = open_ledger(store)
        ledger.epoch = replace(ledger.epoch, incarnation=uuid.uuid4().hex)
        ledger.publish("restore")
