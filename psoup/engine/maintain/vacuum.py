"""Deletion: a file that no commit names any more leaves the disk after the grace.

The grace counts from when this chore first saw the file unnamed, by a clock that stands still
while the machine sleeps. So it begins anew with each engine, and also covers what a killed task or
server wrote and never committed.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

from psoup.engine.ledger import Ledger
from psoup.engine.settings import EngineSettings
from psoup.store.durable import remove

log = logging.getLogger(__name__)


class Vacuum:
    def __init__(self, settings: EngineSettings) -> None:
        self._grace = settings.grace
        self._every = max(settings.housekeeping, settings.grace / 8)
        self._next = 0.0
        self._unnamed: dict[Path, float] = {}

    def advance(self, ledger: Ledger) -> bool:
        """Needs no epoch: nothing that is deleted is named by one. Never asks to go on."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + self._every
            self._unnamed = {path: self._unnamed.get(path, now) for path in _unnamed(ledger)}
            for path, since in self._unnamed.items():
                if now - since >= self._grace:
                    log.debug("deleting %s", path)
                    remove([path])
        return False


def _unnamed(ledger: Ledger) -> Iterator[Path]:
    live = {name: set(snapshot.files) for name, snapshot in ledger.tables.items()}
    live["epochs"] = set(ledger.store.epochs.folder.snapshot().files)
    for name, files in live.items():
        yield from _others(ledger.folder(name).root, files)
    # Listed before its commits are read: what a server commits in between is not taken for dead.
    log_root = ledger.store.log.folder.root
    written = list(_others(log_root, set()))
    named = ledger.store.log.folder.snapshot().files
    yield from (path for path in written if str(path.relative_to(log_root)) not in named)


def _others(root: Path, files: set[str]) -> Iterator[Path]:
    """Data files, and drafts of commits, that are not among `files`."""
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder) / name
            draft = name.startswith(".") and name.endswith(".tmp")
            data = name.endswith(".parquet") and "_delta_log" not in path.parts
            if draft or (data and str(path.relative_to(root)) not in files):
                yield path
