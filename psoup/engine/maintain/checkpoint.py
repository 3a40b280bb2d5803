"""Checkpoints of Delta's own logs, so that opening a table stays cheap."""

from __future__ import annotations

from psoup.engine.ledger import Ledger
from psoup.engine.settings import EngineSettings


class Checkpoint:
    """One table a time. No epoch: the same versions, read faster.

    A table's commits are dropped behind its checkpoint, so the log is left alone until the
    engine has consumed all of it.
    """

    def __init__(self, settings: EngineSettings) -> None:
        self._commits = settings.checkpoint_commits
        self._done: dict[str, int] = {}

    def advance(self, ledger: Ledger) -> bool:
        versions = {name: snapshot.version for name, snapshot in ledger.tables.items()}
        versions["epochs"] = ledger.epochs_version
        consumed = ledger.epoch.log_version
        if ledger.store.log.latest_version(consumed) == consumed:
            versions["log"] = consumed
        for name, version in versions.items():
            if version - self._done.get(name, 0) >= self._commits:
                ledger.folder(name).checkpoint()
                self._done[name] = version
                return True
        return False
