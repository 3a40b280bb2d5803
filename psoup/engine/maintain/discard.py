"""Chores that discard old files: of the log, of Delta logs, and on disk.

`Trim` removes consumed files from the log, `Checkpoint` replaces old commits, and `Vacuum` deletes
files that no commit names any more. All three pause while a back-up holds a pin.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path

from psoup.engine.ledger import Ledger
from psoup.engine.ownership.fence import Fence
from psoup.engine.settings import EngineSettings
from psoup.store.backup.pins import PinWatch
from psoup.store.delta import DeltaFolder, Snapshot
from psoup.store.delta.durable import MAX_WRITER_THREADS, together
from psoup.store.errors import Conflict, LogTrimmed


class Trim:
    """The chore that removes log files that an epoch two steps back has consumed.

    Servers append to the log at the same time, so the commit is retried at the next version. The
    engine consumes that commit like any other of the log. Files that have erased rows are removed
    as soon as no table has these rows: servers that still read one open the store again.
    """

    def __init__(self, settings: EngineSettings) -> None:
        self._commits = settings.trim_commits
        self._pins = PinWatch(settings.pin_timeout)
        self._consumed: deque[int] = deque(maxlen=3)
        self._files: Snapshot | None = None
        # Up to this version the log has no erased rows.
        self._erased_version = 0

    def advance(self, ledger: Ledger) -> bool:
        if self._trim_erased(ledger):
            return True
        version = ledger.epoch.log_version
        if not self._consumed or self._consumed[-1] != version:
            self._consumed.append(version)
        if len(self._consumed) < 3:
            return False
        folder = ledger.store.log.folder
        self._files = self._files_below(folder, self._consumed[0])
        if len(self._files.files) < self._commits or _is_pinned(self._pins, ledger):
            return False
        self._remove(ledger)
        return True

    def _trim_erased(self, ledger: Ledger) -> bool:
        """Trim the files up to the last erasure whose rows have left the tables."""
        version = ledger.epoch.erased.version
        if version <= self._erased_version or _is_pinned(self._pins, ledger):
            return False
        self._files = files_below(ledger.store.log.folder, version)
        has_files = bool(self._files.files)
        if has_files:
            self._remove(ledger)
        self._erased_version = version
        return has_files

    def _files_below(self, folder: DeltaFolder, version: int) -> Snapshot:
        """Return the log's files up to `version`, from the cached ones if commits lead there."""
        if self._files is not None:
            # Commits behind a checkpoint are dropped; an engine that catches up may need those.
            with contextlib.suppress(LogTrimmed):
                return folder.advance(self._files, version)
        return files_below(folder, version)

    def _remove(self, ledger: Ledger) -> None:
        assert self._files is not None
        files, log = self._files, ledger.store.log
        version = log.latest_version(files.version)
        while True:
            try:
                version += 1
                # Servers commit to the log, too, so a conflict says nothing about engines.
                ledger.fence.check()
                log.trim(version, files.files.values(), ledger.epoch)
            except Conflict:
                continue
            self._files = Snapshot(files.version)
            return


def _is_pinned(pins: PinWatch, ledger: Ledger) -> bool:
    """Return True if a back-up needs what the newest epochs name."""
    return pins.are_held(ledger.store.root, ledger.fence.delete)


def files_below(folder: DeltaFolder, version: int) -> Snapshot:
    """Return the log's files up to `version`, also if its Delta checkpoint is newer than that.

    Files of later commits that were dropped behind a checkpoint are included: an epoch has consumed
    them, too.
    """
    newest = folder.snapshot()
    files = dict(newest.files)
    for later in range(version + 1, newest.version + 1):
        commit = folder.read_commit(later)
        for file in commit.added if commit else ():
            files.pop(file.path, None)
    return Snapshot(version, files)


log = logging.getLogger(__name__)


class Vacuum:
    """The chore that deletes files that no commit names any more, after the grace.

    The grace counts from when this chore first saw the file unnamed, by a clock that stops while
    the machine sleeps. So it restarts with each engine, and also covers files that a killed task or
    server wrote and never committed.
    """

    def __init__(self, settings: EngineSettings) -> None:
        self._grace = settings.grace
        self._pins = PinWatch(settings.pin_timeout)
        self._every = max(settings.housekeeping, settings.grace / 8)
        self._next = 0.0
        self._unnamed: dict[Path, float] = {}

    def advance(self, ledger: Ledger) -> bool:
        """Delete the files that are due; return False. No epoch names them, so none is needed."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + self._every
            self._unnamed = {path: self._unnamed.get(path, now) for path in unnamed(ledger)}
            if _is_pinned(self._pins, ledger):
                return False
            due = [path for path, since in self._unnamed.items() if now - since >= self._grace]
            log.debug("deleting %s", due)
            ledger.fence.delete(_drafts_naming(due, ledger.store.log.folder))
            # A server may have committed one of them just before its draft was removed.
            still_unnamed = set(unnamed(ledger)) if due else set()
            ledger.fence.delete(path for path in due if path in still_unnamed)
        return False


def unnamed(ledger: Ledger) -> Iterator[Path]:
    """Yield the files of the store that no commit names, and drafts of commits."""
    live = {name: set(snapshot.files) for name, snapshot in ledger.tables.items()}
    live["epochs"] = set(ledger.store.epochs.folder.snapshot().files)
    for name, files in live.items():
        yield from _files_except(ledger.folder(name).root, files)
    # List files before reading commits: a file that a server commits in between is not unnamed.
    log_root = ledger.store.log.folder.root
    written = list(_files_except(log_root, set()))
    named = ledger.store.log.folder.snapshot().files
    yield from (path for path in written if str(path.relative_to(log_root)) not in named)


def _drafts_naming(files: Iterable[Path], folder: DeltaFolder) -> Iterator[Path]:
    """Yield the drafts of commits that name one of these files of the log.

    They are deleted before the files: a server that stalled before it linked a draft finds it
    missing, and writes everything again.
    """
    names = [path.name.encode() for path in files if path.parent == folder.root]
    for draft in folder.log.glob(".*.tmp") if names else ():
        with contextlib.suppress(FileNotFoundError):
            content = draft.read_bytes()
            if any(name in content for name in names):
                yield draft


def _files_except(root: Path, files: set[str]) -> Iterator[Path]:
    """Yield data files, and drafts of commits, that are not among `files`."""
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder) / name
            draft = name.startswith(".") and name.endswith(".tmp")
            data = name.endswith(".parquet") and "_delta_log" not in path.parts
            if draft or (data and str(path.relative_to(root)) not in files):
                yield path


class Checkpoint:
    """The chore that writes checkpoints of Delta logs, a few tables at a time, so that opening a
    table stays cheap. It needs no epoch: versions stay the same, and are read faster.

    A table's commits are dropped behind its checkpoint. So the checkpoint of the log is made at the
    version that the engine has consumed, however far servers are ahead. A checkpoint also holds the
    files removed in the last minutes, and dropping lists the folder. So a busy table gets both at
    most at intervals.
    """

    def __init__(self, settings: EngineSettings) -> None:
        self._commits = settings.checkpoint_commits
        self._write_seconds = settings.housekeeping / 2
        self._drop_seconds = 2 * settings.housekeeping
        self._grace = settings.commit_grace
        self._pins = PinWatch(settings.pin_timeout)
        self._pinned = False
        self._done: dict[str, tuple[int, float]] = {}
        self._dropped: dict[str, float] = {}
        # When each floor of a table was first seen, oldest first.
        self._floors: defaultdict[str, deque[tuple[float, int]]] = defaultdict(deque)

    def advance(self, ledger: Ledger) -> bool:
        versions = {name: snapshot.version for name, snapshot in ledger.tables.items()}
        versions["epochs"] = ledger.epochs_version
        versions["log"] = ledger.epoch.log_version
        due = ((name, version) for name, version in versions.items() if self._due(name, version))
        chosen = list(islice(due, MAX_WRITER_THREADS))
        self._pinned = bool(chosen) and _is_pinned(self._pins, ledger)
        together(partial(self._write, ledger, name, version) for name, version in chosen)
        return bool(chosen)

    def _due(self, name: str, version: int) -> bool:
        done, at = self._done.get(name, (0, 0.0))
        return version - done >= self._commits and time.monotonic() >= at + self._write_seconds

    def _write(self, ledger: Ledger, name: str, version: int) -> None:
        folder, now = ledger.folder(name), time.monotonic()
        ledger.fence.checkpoint(folder, version)
        if not self._pinned and now >= self._dropped.get(name, 0.0) + self._drop_seconds:
            self._drop(ledger.fence, name, folder, now)
            self._dropped[name] = now
        self._done[name] = version, now

    def _drop(self, fence: Fence, name: str, folder: DeltaFolder, now: float) -> None:
        """Drop the commits that were behind two checkpoints for the grace.

        The grace counts by a clock that stops while the machine sleeps, and restarts with each
        engine. So neither setting a clock nor a sleep frees the version of a commit early.
        """
        floors, due = self._floors[name], 0
        floors.append((now, folder.floor()))
        while floors and now - floors[0][0] >= self._grace:
            _, due = floors.popleft()
        if due:
            fence.drop_commits(folder, due)
