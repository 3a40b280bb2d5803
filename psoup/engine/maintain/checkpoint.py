"""Checkpoints of Delta's own logs, so that opening a table stays cheap."""

from __future__ import annotations

import time
from functools import partial
from itertools import islice

from psoup.engine.ledger import Ledger
from psoup.engine.settings import EngineSettings
from psoup.store.delta.durable import WRITERS, together


class Checkpoint:
    """A few tables at a time. No epoch: the same versions, read faster.

    A table's commits are dropped behind its checkpoint, so that of the log is made where the
    engine stands, however far servers have gone on. A checkpoint also holds what left the table in
    the last minutes, and dropping lists the folder: a busy table gets them less often than its
    commits would have it.
    """

    def __init__(self, settings: EngineSettings) -> None:
        self._commits = settings.checkpoint_commits
        self._write_every = settings.housekeeping / 2
        self._drop_every = 2 * settings.housekeeping
        self._done: dict[str, tuple[int, float]] = {}
        self._dropped: dict[str, float] = {}

    def advance(self, ledger: Ledger) -> bool:
        versions = {name: snapshot.version for name, snapshot in ledger.tables.items()}
        versions["epochs"] = ledger.epochs_version
        versions["log"] = ledger.epoch.log_version
        due = ((name, version) for name, version in versions.items() if self._due(name, version))
        chosen = list(islice(due, WRITERS))
        together(partial(self._write, ledger, *each) for each in chosen)
        return bool(chosen)

    def _due(self, name: str, version: int) -> bool:
        done, at = self._done.get(name, (0, 0.0))
        return version - done >= self._commits and time.monotonic() >= at + self._write_every

    def _write(self, ledger: Ledger, name: str, version: int) -> None:
        folder, now = ledger.folder(name), time.monotonic()
        folder.checkpoint(version)
        if now >= self._dropped.get(name, 0.0) + self._drop_every:
            folder.drop_commits(version)
            self._dropped[name] = now
        self._done[name] = version, now
