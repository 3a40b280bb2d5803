"""Deletion: a file that no commit names any more leaves the disk after the grace.

The grace counts from when this chore first saw the file unnamed, by a clock that stands still
while the machine sleeps. So it begins anew with each engine, and also covers what a killed task or
server wrote and never committed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from psoup.engine.ledger import Ledger
from psoup.engine.settings import EngineSettings
from psoup.store.delta import DeltaFolder
from psoup.store.delta.durable import remove

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
            due = [path for path, since in self._unnamed.items() if now - since >= self._grace]
            log.debug("deleting %s", due)
            remove(_drafts_naming(due, ledger.store.log.folder))
            still_unnamed = set(_unnamed(ledger)) if due else set()
            remove(path for path in due if path in still_unnamed)
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


def _drafts_naming(files: Iterable[Path], folder: DeltaFolder) -> Iterator[Path]:
    """The drafts of commits that name one of these files of the log.

    They go before the files do: a server that fell asleep just before it would have linked one
    finds it gone, and writes everything again.
    """
    names = [path.name.encode() for path in files if path.parent == folder.root]
    for draft in folder.log.glob(".*.tmp") if names else ():
        with contextlib.suppress(FileNotFoundError):
            content = draft.read_bytes()
            if any(name in content for name in names):
                yield draft


def _others(root: Path, files: set[str]) -> Iterator[Path]:
    """Data files, and drafts of commits, that are not among `files`."""
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder) / name
            draft = name.startswith(".") and name.endswith(".tmp")
            data = name.endswith(".parquet") and "_delta_log" not in path.parts
            if draft or (data and str(path.relative_to(root)) not in files):
                yield path
