"""Checkpoints of Delta's own logs, so that opening a table stays cheap."""

from __future__ import annotations

import time
from functools import partial
from itertools import islice

from psoup.engine.ledger import Ledger
from psoup.engine.settings import EngineSettings
from psoup.store.durable import WRITERS, together


class Checkpoint:
    """A few tables at a time. No epoch: the same versions, read faster.

    A table's commits are dropped behind its checkpoint, so that of the log is made where the
    engine stands, however far servers have gone on. Dropping them lists the folder, and is done
    less often.
    """

    def __init__(self, settings: EngineSettings) -> None:
        self._commits = settings.checkpoint_commits
        self._drop_every = 2 * settings.housekeeping
        self._done: dict[str, int] = {}
        self._dropped: dict[str, float] = {}

    def advance(self, ledger: Ledger) -> bool:
        versions = {name: snapshot.version for name, snapshot in ledger.tables.items()}
        versions["epochs"] = ledger.epochs_version
        versions["log"] = ledger.epoch.log_version
        due = {
            name: version
            for name, version in versions.items()
            if version - self._done.get(name, 0) >= self._commits
        }
        chosen = dict(islice(due.items(), WRITERS))
        together(partial(self._write, ledger, name, at) for name, at in chosen.items())
        self._done |= chosen
        return bool(chosen)

    def _write(self, ledger: Ledger, name: str, version: int) -> None:
        folder = ledger.folder(name)
        folder.checkpoint(version)
        if time.monotonic() >= self._dropped.get(name, 0.0) + self._drop_every:
            folder.drop_commits(version)
            self._dropped[name] = time.monotonic()
