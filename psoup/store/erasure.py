"""How far the erasures of a store are on disk, read from its folder.

Rows of an erasure may be in the log, in tables that the engine has not written again yet, and in
files that no table names any more but that are not deleted yet. The newest epoch says up to which
erasure all of those are gone.
"""

from __future__ import annotations

from dataclasses import dataclass

from psoup.store.delta import DeltaFolder
from psoup.store.epochs import Epoch
from psoup.store.errors import LogTrimmed
from psoup.store.state.erasures import Erasure, StreamErasures
from psoup.store.state.state import State
from psoup.store.store import Store


@dataclass(frozen=True, slots=True)
class ErasureStatus:
    """An erasure of a stream, and what may still have bytes of its key, as a sentence; empty if
    nothing does."""

    stream: str
    erasure: Erasure
    remaining: str

    @property
    def is_done(self) -> bool:
        return not self.remaining


def erasure_status(store: Store) -> list[ErasureStatus]:
    """Return the erasures in the order of the log. Raise StoreError.

    One that named no rows is among them: what retention has removed from the tables, or a stream
    that was dropped, may still be in old files.
    """
    epoch, state = _last_state(store)
    erasures = [e for stream in state.erasures.values() for e in _finished(stream)]
    return [
        ErasureStatus(
            state.streams[erasure.stream_id].schema.name, erasure, _remaining(store, epoch, erasure)
        )
        for erasure in sorted(erasures, key=lambda erasure: erasure.position)
    ]


def _last_state(store: Store) -> tuple[Epoch, State]:
    while True:
        _, epoch = store.epochs.latest()
        try:
            return epoch, store.last_state(epoch)
        except LogTrimmed:
            # The engine has moved on meanwhile.
            if store.epochs.latest()[1].number == epoch.number:
                raise


def _finished(erasures: StreamErasures) -> list[Erasure]:
    """Return erasures without those that only refuse a key that a later one erases."""
    later: set[int | None] = set()
    finished = []
    for erasure in reversed(erasures.records):
        if len(erasure.ids) or erasure.digest is None or erasure.digest not in later:
            finished.append(erasure)
        later.add(erasure.digest)
    return finished


def _remaining(store: Store, epoch: Epoch, erasure: Erasure) -> str:
    if erasure.position <= epoch.wiped:
        return ""
    version = erasure.position.version
    if version > epoch.log_version:
        return "the engine has not consumed the erasure yet"
    if erasure.position > epoch.erased:
        return "the engine has not written the tables again yet"
    if logged := _logged(store.log.folder, version):
        return f"{logged} files of the log are not trimmed yet"
    return "old files are not deleted yet: the grace, or a back-up's pin"


def _logged(folder: DeltaFolder, version: int) -> int:
    """Return how many files of commits up to a version the log still names."""
    newest = folder.snapshot()
    files = set(newest.files)
    for later in range(version + 1, newest.version + 1):
        commit = folder.read_commit(later)
        files -= {file.path for file in commit.added} if commit else set()
    return len(files)
