"""A restored back-up made a store of its own: clients of what came after it are told so at once."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path

from psoup.engine.lock import whole_store
from psoup.engine.recover import open_ledger
from psoup.store import Store


def begin_incarnation(root: Path) -> None:
    """Give the store in a folder a new incarnation, by one epoch: positions and tokens of before
    are foreign from then on. Raises ServersRunning, SecondEngine, StoreError."""
    store = Store.open(root)
    with whole_store(root):
        ledger = open_ledger(store)
        ledger.epoch = replace(ledger.epoch, incarnation=uuid.uuid4().hex)
        ledger.publish("restore")
