"""The copying of files that never change, with their sizes and checksums."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class FileMark:
    """The size and the CRC-32 of a file."""

    size: int
    crc: int

    @classmethod
    def of(cls, content: bytes) -> FileMark:
        return cls(len(content), zlib.crc32(content))


class Files(Protocol):
    """The files of a back-up by path, wherever they are. Calls may come from any thread. All raise
    OSError or BackupFailed if the place can't be used."""

    # How many calls are worth while at once.
    threads: int

    def has(self, path: str, mark: FileMark, *, read: bool = False) -> bool:
        """Return True if a file is there, from this back-up or an earlier one. Files whose names
        are not unique are compared by their bytes with `read`."""

    def take(self, source: Path, path: str, mark: FileMark) -> None:
        """Copy a local file to here. Raise BackupFailed if it is missing or lacks its mark."""

    def put(self, path: str, content: bytes) -> None:
        """Write a small file."""

    def give(self, path: str, mark: FileMark, target: Path) -> None:
        """Copy a file to a local one. Raise BackupFailed if it is missing or lacks its mark."""

    def is_whole(self, path: str, mark: FileMark) -> bool:
        """Read a file; return True if it has its mark."""

    def local(self, marks: Mapping[str, FileMark]) -> AbstractContextManager[Path]:
        """Return a local folder that has these files within the context."""


class FileCopier:
    """Copies many files in threads; `marks` has those that are done, by path.

    `check` is called before each file and may raise; `report` is called with the size of each file
    that is done.
    """

    def __init__(
        self,
        threads: int,
        check: Callable[[], None] = lambda: None,
        report: Callable[[int], None] = lambda size: None,
    ) -> None:
        self._threads = threads
        self._check = check
        self._report = report
        self.marks: dict[str, FileMark] = {}
        self.copied_bytes = 0

    def run(self, marks: Mapping[str, FileMark], copy: Callable[[str, FileMark], bool]) -> None:
        """Call `copy` for each file; it returns False if there was nothing to copy."""

        def step(path: str, mark: FileMark) -> int:
            self._check()
            return mark.size if copy(path, mark) else 0

        with ThreadPoolExecutor(self._threads) as pool:
            futures = {path: pool.submit(step, path, mark) for path, mark in marks.items()}
            try:
                for path, future in futures.items():
                    self.copied_bytes += future.result()
                    self.marks[path] = marks[path]
                    self._report(marks[path].size)
            except BaseException:
                # The end of the block waits for the copies that have begun.
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def back_up_files(
    copier: FileCopier, root: Path, files: Files, marks: Mapping[str, FileMark]
) -> None:
    """Copy files of the folder `root` to a back-up. Those that it has are not read. Raise
    BackupFailed for a file that is missing, or lacks its mark."""

    def copy(path: str, mark: FileMark) -> bool:
        if files.has(path, mark):
            return False
        files.take(root / path, path, mark)
        return True

    copier.run(marks, copy)


def back_up_contents(copier: FileCopier, files: Files, contents: Mapping[str, bytes]) -> None:
    """Write small files of a back-up, by path."""

    def copy(path: str, mark: FileMark) -> bool:
        # Commits of another incarnation may have the same name and size.
        if files.has(path, mark, read=True):
            return False
        files.put(path, contents[path])
        return True

    copier.run({path: FileMark.of(content) for path, content in contents.items()}, copy)


def damaged_files(files: Files, marks: Mapping[str, FileMark]) -> Iterable[str]:
    """Yield the paths of files that do not have their marks."""
    with ThreadPoolExecutor(files.threads) as pool:
        futures = {
            path: pool.submit(partial(files.is_whole, path, mark)) for path, mark in marks.items()
        }
        try:
            yield from (path for path, future in futures.items() if not future.result())
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
