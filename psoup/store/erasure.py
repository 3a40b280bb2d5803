"""How far the erasures of a store are on disk, read from its folder.

Rows of an erasure may be in the log, in tables that the engine has not written again yet, and in
files that no table names any more but that are not deleted yet. A file that was written after the
engine was done has none of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from psoup.store.delta import DeltaFolder
from psoup.store.epochs import Epoch
from psoup.store.errors import LogTrimmed
from psoup.store.state.erasures import Erasure
from psoup.store.store import Store


@dataclass(frozen=True, slots=True)
class ErasureStatus:
    """An erasure of a stream, and what may still hold rows of it, as sentences; empty if nothing
    does."""

    stream: str
    erasure: Erasure
    remaining: tuple[str, ...]

    @property
    def is_done(self) -> bool:
        return not self.remaining


def erasure_status(store: Store) -> list[ErasureStatus]:
    """Return the erasures of rows in the order of the log. Raise StoreError."""
    while True:
        try:
            _, epoch = store.epochs.latest()
            state = store.last_state(epoch)
            break
        except LogTrimmed:
            # The engine has moved on meanwhile.
            if store.epochs.latest()[1].number == epoch.number:
                raise
    erasures = [
        erasure
        for stream_erasures in state.erasures.values()
        for erasure in stream_erasures.records
        if len(erasure.ids)
    ]
    if not erasures:
        return []
    old_files = _old_files(store, epoch)
    statuses = []
    for erasure in sorted(erasures, key=lambda erasure: erasure.position):
        remaining = tuple(_remaining(store, epoch, erasure, old_files))
        name = state.streams[erasure.stream_id].schema.name
        statuses.append(ErasureStatus(name, erasure, remaining))
    return statuses


def _remaining(
    store: Store, epoch: Epoch, erasure: Erasure, old_files: dict[str, int]
) -> Iterator[str]:
    version = erasure.position.version
    if version > epoch.log_version:
        yield "the engine has not consumed the erasure yet"
        return
    if erasure.position > epoch.erased:
        yield "the engine has not written the tables again yet"
        return
    if logged := _logged(store.log.folder, version):
        yield f"{logged} files of the log are not trimmed yet"
    if old_files:
        count = sum(old_files.values())
        where = ", ".join(sorted(old_files))
        yield f"{count} old files in {where} are not deleted yet: the grace, or a back-up's pin"


def _logged(folder: DeltaFolder, version: int) -> int:
    """Return how many files of commits up to a version the log still names."""
    newest = folder.snapshot()
    files = set(newest.files)
    for later in range(version + 1, newest.version + 1):
        commit = folder.read_commit(later)
        files -= {file.path for file in commit.added} if commit else set()
    return len(files)


def _old_files(store: Store, epoch: Epoch) -> dict[str, int]:
    """Return, by table, how many files on disk may have erased rows although no table names
    them."""
    named = {"log": set(store.log.folder.snapshot().files)}
    names = [
        "matches",
        "closures",
        *_numbered(store.root, "stems"),
        *_numbered(store.root, "joins"),
    ]
    for name in names:
        # A folder without a commit is not a table: the engine was killed while it made it.
        if store.table(name).exists:
            named[name] = set(store.table(name).snapshot().files)
    counts = {name: _count(store.table(name).root, files, epoch) for name, files in named.items()}
    return {name: count for name, count in counts.items() if count}


def _numbered(root: Path, name: str) -> list[str]:
    folder = root / name
    return [f"{name}/{number}" for number in os.listdir(folder)] if folder.is_dir() else []


def _count(root: Path, named: set[str], epoch: Epoch) -> int:
    count = 0
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder) / name
            if name.endswith(".parquet") and "_delta_log" not in path.parts:
                is_named = str(path.relative_to(root)) in named
                count += not is_named and _is_old(path, epoch)
    return count


def _is_old(path: Path, epoch: Epoch) -> bool:
    try:
        return path.stat().st_mtime_ns // 1000 <= epoch.erased_at
    except FileNotFoundError:
        return False
