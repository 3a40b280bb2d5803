"""The copying of files that never change, with their sizes and checksums."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from psoup.store.delta.durable import copy_file, crc_of, replace_file, sync_folder
from psoup.store.errors import BackupFailed

# Files that are copied at once, so that their syncs overlap. More would take processor time from
# servers, and two are as fast as a disk.
_COPY_THREADS = 2


@dataclass(frozen=True, slots=True)
class FileMark:
    """The size and the CRC-32 of a file."""

    size: int
    crc: int

    @classmethod
    def of(cls, content: bytes) -> FileMark:
        return cls(len(content), zlib.crc32(content))


class FileCopier:
    """Copies files into the folder `target`; `marks` has what it copied, by path.

    `base` is an earlier copy, with the marks of its files: a file that it has is linked. `check` is
    called before each file and may raise; `report` is called with the size of each file that is
    done.
    """

    def __init__(
        self,
        target: Path,
        *,
        base: tuple[Path, Mapping[str, FileMark]] | None = None,
        check: Callable[[], None] = lambda: None,
        report: Callable[[int], None] = lambda size: None,
    ) -> None:
        self._target = target
        self._base = base
        self._check = check
        self._report = report
        self.marks: dict[str, FileMark] = {}
        self.copied_bytes = 0

    def copy(self, source: Path, files: Mapping[str, FileMark]) -> None:
        """Copy files of the folder `source`, by path. Those that the target or the base has are
        not read.

        Raise BackupFailed for a file that is missing, or does not have its mark.
        """
        self._run(files, {path: partial(self._copy, source, path, files[path]) for path in files})

    def put(self, files: Mapping[str, bytes]) -> None:
        """Write small files, by path, or link those of the base."""
        marks = {path: FileMark.of(content) for path, content in files.items()}
        self._run(marks, {path: partial(self._put, path, files[path]) for path in files})

    def _run(self, marks: Mapping[str, FileMark], calls: Mapping[str, Callable[[], int]]) -> None:
        """Make a call for each file, in threads; each returns how many bytes it has copied."""
        for folder in {(self._target / path).parent for path in calls}:
            folder.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(_COPY_THREADS) as pool:
            futures = {path: pool.submit(call) for path, call in calls.items()}
            try:
                for path, future in futures.items():
                    self.copied_bytes += future.result()
                    self.marks[path] = marks[path]
                    self._report(marks[path].size)
            except BaseException:
                # The end of the block waits for the copies that have begun.
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _copy(self, source: Path, path: str, mark: FileMark) -> int:
        self._check()
        if _has_size(self._target / path, mark) or self._link(path, mark):
            return 0
        self.copy_again(source, path, mark)
        return mark.size

    def _put(self, path: str, content: bytes) -> int:
        self._check()
        target, mark = self._target / path, FileMark.of(content)
        # Commits of another incarnation may have the same name and size.
        if _has_mark(target, mark) or (self._link(path, mark) and _has_mark(target, mark)):
            return 0
        replace_file(target, content, sync_name=False)
        return mark.size

    def copy_again(self, source: Path, path: str, mark: FileMark) -> None:
        """Copy a file in any case. Raise BackupFailed if it does not have its mark."""
        target = self._target / path
        try:
            copied = FileMark(*copy_file(source / path, target))
        except FileNotFoundError as error:
            raise BackupFailed(f"{source / path} is gone") from error
        if copied != mark:
            target.unlink(missing_ok=True)
            raise BackupFailed(f"{source / path} is damaged: its checksum is wrong")

    def _link(self, path: str, mark: FileMark) -> bool:
        """Link a file to that of the base; return False if the base does not have it."""
        if self._base is None:
            return False
        folder, marks = self._base
        if marks.get(path) != mark or not _has_size(folder / path, mark):
            return False
        target = self._target / path
        target.unlink(missing_ok=True)
        try:
            os.link(folder / path, target)
        except OSError:
            # The file system has no links, or the file has too many.
            return False
        return True

    def sync_folders(self) -> None:
        """Make the names of all files durable."""
        folders = {parent for path in self.marks for parent in Path(path).parents}
        for folder in folders:
            sync_folder(self._target / folder)


def damaged_files(folder: Path, marks: Mapping[str, FileMark]) -> Iterable[str]:
    """Yield the paths of files in a folder that do not have their marks."""
    for path, mark in marks.items():
        if not _has_mark(folder / path, mark):
            yield path


def _has_mark(path: Path, mark: FileMark) -> bool:
    try:
        return FileMark(*crc_of(path)) == mark
    except FileNotFoundError:
        return False


def _has_size(path: Path, mark: FileMark) -> bool:
    """Return True if a file, whose name is unique and which was synced before it had this name,
    exists."""
    try:
        return path.stat().st_size == mark.size
    except FileNotFoundError:
        return False
