"""Checkpoints of Delta's own logs, so that opening a table stays cheap."""

from __future__ import annotations

from functools import partial
from itertools import islice

from psoup.engine.ledger import Ledger
from psoup.engine.settings import EngineSettings
from psoup.store.durable import WRITERS, together


class Checkpoint:
    """A few tables at a time. No epoch: the same versions, read faster.

    A table's commits are dropped behind its checkpoint, so that of the log is made where the
    engine stands, however far servers have gone on.
    """

    def __init__(self, settings: EngineSettings) -> None:
        self._commits = settings.checkpoint_commits
        self._done: dict[str, int] = {}

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
        together(partial(ledger.folder(name).checkpoint, at) for name, at in chosen.items())
        self._done |= chosen
        return bool(chosen)
