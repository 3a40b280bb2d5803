"""The recorder of what processes do to a folder, in one order for all of them.

Each process has its `os` functions wrapped (site/sitecustomize.py does it at the start of each that
gets `environment`). An operation and the line about it happen under one lock, so a prefix of the
journal is a moment all processes agree on. What bypasses `os`, as `deltalake` and pyarrow do, is
found at the next recorded operation in that folder, by listing it. Contents are kept by hard
links, so the journal lies on the store's file system. Nothing is really synced: the disk is a
replay.

One line of the journal is a list: ["name", folder, name, inode or null for a folder],
["drop", folder, name], ["file", inode, size], ["folder", folder], ["mark", anything]. The last
three are a file synced up to that size, a folder synced, and an acknowledgement to a client.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

STORE, JOURNAL = "PSOUP_POWER_STORE", "PSOUP_POWER_JOURNAL"
_SITE = Path(__file__).parent / "site"
_ROOT = Path(__file__).parents[2]

_open, _fsync, _link, _unlink = os.open, os.fsync, os.link, os.unlink
_rename, _replace, _mkdir = os.rename, os.replace, os.mkdir


def environment(store: Path, journal: Path) -> dict[str, str]:
    """Return the environment of a process whose writes below `store` are recorded."""
    (journal / "inodes").mkdir(parents=True, exist_ok=True)
    python_path = os.environ.get("PYTHONPATH", "")
    path = os.pathsep.join([str(_SITE), str(_ROOT), *([python_path] if python_path else [])])
    return {STORE: str(store), JOURNAL: str(journal), "PYTHONPATH": path}


class Journal:
    """The lines, shared by processes. `names` has the names in each folder after the last line."""

    def __init__(self, store: Path, folder: Path) -> None:
        self.store = store
        self.folder = folder
        self.names: dict[str, dict[str, int | None]] = {}
        self._thread = threading.RLock()
        self._owner = 0
        self._file: BinaryIO

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from recording, and read what they have recorded."""
        with self._thread:
            self._own()
            fcntl.flock(self._file, fcntl.LOCK_EX)
            try:
                self._catch_up()
                yield
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)

    def _own(self) -> None:
        """Open the file again in a forked process: a lock belongs to an open file."""
        if self._owner != os.getpid():
            self._owner = os.getpid()
            self._file = open(self.folder / "journal", "a+b")  # noqa: SIM115
            self._file.seek(0)
            self.names = {}

    def _catch_up(self) -> None:
        for line in self._file:
            self._take(json.loads(line))

    def write(self, *event: Any) -> None:
        self._file.write(json.dumps(event).encode() + b"\n")
        self._file.flush()
        self._take(list(event))

    def close(self) -> None:
        if self._owner:
            self._file.close()
            self._owner = 0

    def mark(self, what: Any) -> None:
        """Record an acknowledgement, after the operations that precede it."""
        with self.locked():
            self.write("mark", what)

    def _take(self, event: list[Any]) -> None:
        match event:
            case ["name", folder, name, inode]:
                self.names.setdefault(folder, {})[name] = inode
            case ["drop", folder, name]:
                self.names.setdefault(folder, {}).pop(name, None)

    def scan(self, folder: str) -> None:
        """Record the names in a folder that differ from the journal."""
        recorded = dict(self.names.get(folder, {}))
        with os.scandir(self.store / folder) as entries:
            present = {entry.name: _inode(entry) for entry in entries}
        for name in recorded.keys() - present.keys():
            self.write("drop", folder, name)
        for name, inode in present.items():
            if name not in recorded or recorded[name] != inode:
                self._keep(self.store / folder / name, inode)
                self.write("name", folder, name, inode)

    def adopt(self) -> None:
        """Record everything in the store as synced."""
        with self.locked():
            for place, _, names in os.walk(self.store):
                folder = os.path.relpath(place, self.store)
                self.scan(folder)
                for status in (os.stat(os.path.join(place, name)) for name in names):
                    self.write("file", status.st_ino, status.st_size)
                self.write("folder", folder)

    def _keep(self, path: Path, inode: int | None) -> None:
        link = self.folder / "inodes" / str(inode)
        if inode is not None and not link.exists():
            _link(path, link)


def _inode(entry: os.DirEntry[str]) -> int | None:
    return None if entry.is_dir(follow_symlinks=False) else entry.inode()


class Recorder:
    """The wrapped functions. Paths outside the store are passed through."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._root = str(journal.store)

    def install(self) -> None:
        os.fsync = self.fsync  # type: ignore[assignment]
        os.link = self._changing(_link, 2)
        os.rename = self._changing(_rename, 2)
        os.replace = self._changing(_replace, 2)
        os.mkdir = self._changing(_mkdir, 1)
        os.unlink = os.remove = self._changing(_unlink, 1)

    def _changing(self, call: Callable[..., None], paths: int) -> Callable[..., None]:
        def wrapped(*arguments: Any, **options: Any) -> None:
            folders = {self._folder(path) for path in arguments[:paths]} - {None}
            if not folders or options.get("dir_fd") is not None:
                return call(*arguments, **options)
            with self.journal.locked():
                self._scan(folders)
                try:
                    call(*arguments, **options)
                finally:
                    self._scan(folders)

        return wrapped

    def fsync(self, descriptor: Any) -> None:
        number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
        path = os.readlink(f"/proc/self/fd/{number}")
        status = os.fstat(number)
        inside = self._below(path) if stat.S_ISDIR(status.st_mode) else self._folder(path)
        if inside is None:
            return _fsync(descriptor)
        with self.journal.locked():
            self._scan({inside})
            if stat.S_ISDIR(status.st_mode):
                self.journal.write("folder", inside)
            else:
                self.journal.write("file", status.st_ino, status.st_size)

    def _scan(self, folders: set[str | None]) -> None:
        for folder in folders:
            if folder is not None and os.path.isdir(os.path.join(self._root, folder)):
                self.journal.scan(folder)

    def _folder(self, path: Any) -> str | None:
        """Return the folder of a path, relative to the store; None if it is outside."""
        return self._below(os.path.dirname(os.path.abspath(os.fspath(path))))

    def _below(self, folder: str) -> str | None:
        if folder != self._root and not folder.startswith(self._root + os.sep):
            return None
        return os.path.relpath(folder, self._root)


def install() -> None:
    """Install the recorder, at the start of a process that has `environment`."""
    Recorder(Journal(Path(os.environ[STORE]), Path(os.environ[JOURNAL]))).install()
