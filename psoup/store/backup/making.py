"""A back-up of a store, made while its servers and its engine run.

It is the store as a kill of all processes would leave it: the tables of the newest epoch, each
Delta log cut at the version that the epoch names, and the log up to its end. A pin keeps these
files on the disk until it is finished.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from psoup.store.backup.copying import (
    FileCopier,
    FileMark,
    Files,
    back_up_contents,
    back_up_files,
    damaged_files,
)
from psoup.store.backup.generations import Generation, Header, Target, now_micros
from psoup.store.backup.pins import PIN_RENEWAL_SECONDS, Pin
from psoup.store.backup.targets import Place, locked_target
from psoup.store.delta import Snapshot
from psoup.store.delta.durable import crc_of
from psoup.store.epochs import Epoch
from psoup.store.errors import BackupFailed
from psoup.store.layout import ENGINE_TABLES, FORMAT
from psoup.store.store import Store

TOKEN_KEY = "token.key"


class Progress(Protocol):
    """What is shown of a long copy."""

    def begin(self, total: int) -> None:
        """Take the number of bytes that are known so far."""

    def advance(self, size: int) -> None:
        """Take the size of a file that is done."""


class NoProgress:
    """A progress that is not shown."""

    def begin(self, total: int) -> None:
        pass

    def advance(self, size: int) -> None:
        pass


@dataclass(frozen=True, slots=True)
class BackupOptions:
    """How a back-up is made. With `verify` every file is read again. Back-ups that were begun more
    than `keep` microseconds ago are removed. `renewal` is how often the pin's counter is raised, in
    seconds."""

    verify: bool = False
    keep: int | None = None
    with_token_key: bool = False
    renewal: float = PIN_RENEWAL_SECONDS


@dataclass(frozen=True, slots=True)
class BackupReport:
    """A finished back-up: its files, how much of it was copied, how many old ones were removed or
    why they were not, which files of earlier back-ups were damaged, and which rows the store had
    lost already."""

    generation: Generation
    files: int
    size: int
    copied: int
    dropped: int
    damaged: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    undropped: str = ""


def back_up(
    root: Path,
    target: Place,
    options: BackupOptions | None = None,
    progress: Progress | None = None,
) -> BackupReport:
    """Make a back-up of the store at `root` in a target.

    Raise BackupFailed, StoreError or OSError; then there is no manifest, and the next
    back-up goes on with what was copied.
    """
    store = Store.open(root.absolute())
    with locked_target(target, store.root, store.id) as locked:
        return _Making(store, locked, options or BackupOptions(), progress or NoProgress()).run()


class _Making:
    def __init__(
        self, store: Store, target: Target, options: BackupOptions, progress: Progress
    ) -> None:
        self._store = store
        self._target = target
        self._options = options
        self._progress = progress

    def run(self) -> BackupReport:
        options, target = self._options, self._target
        begun = now_micros()
        with Pin(self._store.root, options.renewal) as pin:
            # After the pin was written: the engine keeps what this epoch names.
            epochs_version, epoch = self._store.epochs.latest()
            files = target.begin()

            def check() -> None:
                pin.check()
                target.check()

            copier = FileCopier(files.threads, check, self._progress.advance)
            lost = tuple(hole.file for hole in epoch.losses.holes)
            self._copy_tables(copier, files, epoch, epochs_version, lost)
            # The log comes last, so that the back-up is as of its end.
            log_end = self._store.log.latest_version(epoch.log_version)
            self._copy_log(copier, files, epoch, log_end)
            last_stamp = self._store.log.last_stamp(epoch, log_end + 1)
            if options.with_token_key:
                self._copy_token_key(copier, files)
            damaged = self._verify(copier, files, check) if options.verify else ()
            target.settle(copier.marks)
            check()
            header = Header(
                self._store.id,
                self._store.identity.hex(),
                FORMAT,
                begun,
                epoch.number,
                epoch.log_version,
                epoch.clock,
                log_end,
                last_stamp,
            )
            generation = target.finish(header, copier.marks)
        report = BackupReport(
            generation,
            len(copier.marks),
            sum(mark.size for mark in copier.marks.values()),
            copier.copied_bytes,
            0,
            damaged,
            lost,
        )
        if options.keep is None:
            return report
        target.generations.append(generation)
        try:
            return replace(report, dropped=target.drop_before(begun - options.keep))
        except (BackupFailed, OSError) as error:
            return replace(report, undropped=str(error))

    def _copy_tables(
        self,
        copier: FileCopier,
        files: Files,
        epoch: Epoch,
        epochs_version: int,
        lost: tuple[str, ...],
    ) -> None:
        snapshots = {
            name: (self._store.table(name).snapshot(version), version)
            for name, version in (table_versions(epoch) | {"epochs": epochs_version}).items()
        }
        marks: dict[str, FileMark] = {}
        for name, (snapshot, _) in snapshots.items():
            marks |= _data_files(name, snapshot)
        for path in lost:
            marks.pop(path, None)
        self._progress.begin(sum(mark.size for mark in marks.values()))
        back_up_files(copier, self._store.root, files, marks)
        for name, (_, version) in snapshots.items():
            commits = self._store.table(name).cut_log(version, version)
            back_up_contents(copier, files, _placed(name, commits))

    def _copy_log(self, copier: FileCopier, files: Files, epoch: Epoch, log_end: int) -> None:
        folder = self._store.log.folder
        marks = _data_files("log", folder.snapshot(log_end))
        back_up_files(copier, self._store.root, files, marks)
        commits = folder.cut_log(epoch.log_version, log_end)
        back_up_contents(copier, files, _placed("log", commits))

    def _copy_token_key(self, copier: FileCopier, files: Files) -> None:
        path = self._store.root / TOKEN_KEY
        if not path.exists():
            raise BackupFailed("the store has no token.key: its servers have another file")
        # In any case: unlike other files, it may be replaced by one of the same name and size.
        copier.marks[TOKEN_KEY] = mark = FileMark(*crc_of(path))
        files.take(path, TOKEN_KEY, mark)

    def _verify(
        self, copier: FileCopier, files: Files, check: Callable[[], None]
    ) -> tuple[str, ...]:
        """Read all files again; return those that were damaged, and are copied again."""
        damaged = {path: copier.marks[path] for path in damaged_files(files, copier.marks)}
        for path, mark in damaged.items():
            check()
            files.take(self._store.root / path, path, mark)
        for path in damaged_files(files, damaged):
            raise BackupFailed(f"{path} can't be read back as it was written")
        return tuple(damaged)


def table_versions(epoch: Epoch) -> dict[str, int]:
    """Return the version of every table that an epoch names, by the name of the table."""
    versions = {name: epoch.versions.get(name, 0) for name in ENGINE_TABLES}
    versions |= {f"stems/{id_}": mark.version for id_, mark in epoch.stems.items()}
    joins = epoch.composites.items()
    return versions | {f"joins/{id_}": mark.joins_version for id_, mark in joins}


def _data_files(name: str, snapshot: Snapshot) -> dict[str, FileMark]:
    return {
        f"{name}/{file.path}": FileMark(file.size, file.checks.file)
        for file in snapshot.files.values()
    }


def _placed(name: str, files: Mapping[str, bytes]) -> dict[str, bytes]:
    return {f"{name}/_delta_log/{file}": content for file, content in files.items()}
