"""Trimming: log files that an epoch two steps back has consumed leave the log."""

from __future__ import annotations

from collections import deque

from psoup.engine.ledger import Ledger
from psoup.engine.settings import EngineSettings
from psoup.store.delta import DeltaFolder, Snapshot
from psoup.store.errors import Conflict


class Trim:
    """Servers append to the log meanwhile, so the commit is tried again at the next version.

    The source delivers that commit like any other; consuming it is the chore's epoch.
    """

    def __init__(self, settings: EngineSettings) -> None:
        self._commits = settings.trim_commits
        self._consumed: deque[int] = deque(maxlen=3)
        self._files: Snapshot | None = None

    def advance(self, ledger: Ledger) -> bool:
        version = ledger.epoch.log_version
        if not self._consumed or self._consumed[-1] != version:
            self._consumed.append(version)
        if len(self._consumed) < 3:
            return False
        folder = ledger.store.log.folder
        oldest = self._consumed[0]
        self._files = (
            files_below(folder, oldest)
            if self._files is None
            else folder.advance(self._files, oldest)
        )
        if len(self._files.files) < self._commits:
            return False
        self._remove(folder, ledger.store.sync)
        return True

    def _remove(self, folder: DeltaFolder, sync: bool) -> None:
        assert self._files is not None
        files = self._files
        version = folder.latest_version(files.version)
        while True:
            try:
                version += 1
                folder.commit(version, (), files.files.values(), operation="TRIM", sync=sync)
            except Conflict:
                continue
            self._files = Snapshot(files.version)
            return


def files_below(folder: DeltaFolder, version: int) -> Snapshot:
    """The log's files up to `version`, also where its Delta checkpoint is newer than that."""
    newest = folder.snapshot()
    files = dict(newest.files)
    for later in range(version + 1, newest.version + 1):
        commit = folder.read_commit(later)
        for file in commit.added if commit else ():
            files.pop(file.path, None)
    return Snapshot(version, files)
