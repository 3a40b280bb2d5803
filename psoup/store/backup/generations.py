"""The target of back-ups: a folder with one folder for each generation.

`<number>-<instant>/store` has the files of a store, and `<number>-<instant>/manifest.jsonl` their
sizes and checksums. The manifest is written last: a folder without one is no back-up. A file that
two generations have is linked. `unfinished/` holds what an interrupted back-up has copied; the next
back-up goes on there.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from datastem.instants import from_micros
from psoup.store.backup.copying import FileMark
from psoup.store.delta.durable import make_folder, remove, remove_folder, replace_file, sync_folder
from psoup.store.errors import BackupFailed

_FORMAT = 1
_LOCK = "backup.lock"
_UNFINISHED = "unfinished"
_MANIFEST = "manifest.jsonl"
_NAME = re.compile(r"(\d{6,})-\d{8}T\d{6}Z")


@dataclass(frozen=True, slots=True)
class Header:
    """What a back-up is of. Instants are microseconds.

    The tables are those of `epoch`, which has consumed the log up to `log_version`, with `clock` as
    its last stamp. The log goes on to `log_end`, whose last stamp is `last_stamp`.
    """

    store: str
    identity: str
    format: int
    begun: int
    epoch: int
    log_version: int
    clock: int
    log_end: int
    last_stamp: int


@dataclass(frozen=True, slots=True)
class Generation:
    """A finished back-up."""

    path: Path
    header: Header

    @property
    def store(self) -> Path:
        """The folder with the store's files."""
        return self.path / "store"

    def marks(self) -> dict[str, FileMark]:
        """Return the marks of all files, by path. Raise BackupFailed if the manifest is damaged."""
        *lines, ending = _lines(self.path)
        if ending != _ending(lines):
            raise _damaged(self.path)
        try:
            files = map(json.loads, lines[1:])
            return {_checked(path): FileMark(size, crc) for path, size, crc in files}
        except (ValueError, TypeError) as error:
            raise _damaged(self.path) from error


def _checked(path: str) -> str:
    """Return a path of a manifest. Raise ValueError if it leads out of the folder."""
    if path.startswith("/") or ".." in path.split("/"):
        raise ValueError(path)
    return path


def read_generation(path: Path) -> Generation | None:
    """Return the back-up in a folder; None if it has no manifest. Raise BackupFailed if the
    manifest is damaged or of another version."""
    if not (path / _MANIFEST).exists():
        return None
    try:
        form: dict[str, Any] = json.loads(_lines(path)[0])
        number = form.pop("psoup_backup")
    except (ValueError, KeyError, IndexError, AttributeError, TypeError) as error:
        raise _damaged(path) from error
    if number != _FORMAT:
        raise BackupFailed(f"{path} is a back-up of format {number}; this version reads {_FORMAT}")
    try:
        return Generation(path, Header(**form))
    except TypeError as error:
        raise _damaged(path) from error


def generations(target: Path) -> list[Generation]:
    """Return the finished back-ups in a target, oldest first."""
    paths = sorted(
        (path for path in target.iterdir() if _NAME.fullmatch(path.name)), key=_number_of
    )
    return [generation for path in paths if (generation := read_generation(path)) is not None]


class Target:
    """A target that this process has locked, for back-ups of one store."""

    def __init__(self, root: Path, store: str) -> None:
        self._root = root
        self.generations = generations(root)
        for generation in self.generations:
            if generation.header.store != store:
                raise BackupFailed(f"{root} holds back-ups of another store; choose another folder")

    @property
    def draft(self) -> Path:
        """The folder for the files of the next back-up."""
        return self._root / _UNFINISHED / "store"

    def finish(self, header: Header, marks: Mapping[str, FileMark]) -> Generation:
        """Write the manifest of the draft, and give it the name of a generation. Return it."""
        folder = self._root / _UNFINISHED
        numbers = [_number_of(path) for path in self._root.iterdir() if _NAME.fullmatch(path.name)]
        number = 1 + max(numbers, default=0)
        path = self._root / f"{number:06d}-{from_micros(header.begun):%Y%m%dT%H%M%SZ}"
        lines = [json.dumps({"psoup_backup": _FORMAT, **asdict(header)})]
        lines += [json.dumps([name, mark.size, mark.crc]) for name, mark in sorted(marks.items())]
        sync_folder(folder)
        replace_file(folder / _MANIFEST, "\n".join([*lines, _ending(lines), ""]).encode())
        os.rename(folder, path)
        sync_folder(self._root)
        return Generation(path, header)

    def clean(self, marks: Mapping[str, FileMark]) -> None:
        """Remove what an interrupted back-up has copied to the draft and this one does not need."""
        for folder, _, names in os.walk(self.draft):
            paths = (Path(folder) / name for name in names)
            remove(path for path in paths if str(path.relative_to(self.draft)) not in marks)

    def begin(self) -> None:
        """Prepare the draft."""
        # The manifest of a back-up that was killed before it had its name.
        remove([self._root / _UNFINISHED / _MANIFEST])
        make_folder(self.draft, levels=2)

    def drop_before(self, instant: int) -> int:
        """Remove the generations that were begun before an instant, except for the newest; return
        how many. Also remove the rest of those whose removal was interrupted."""
        old = [copy for copy in self.generations[:-1] if copy.header.begun < instant]
        for generation in old:
            remove([generation.path / _MANIFEST])
        for path in self._root.iterdir():
            if _NAME.fullmatch(path.name) and not (path / _MANIFEST).exists():
                remove_folder(path)
        return len(old)


@contextmanager
def locked_target(root: Path, store: str) -> Iterator[Target]:
    """Make or open a target for back-ups of a store, and keep other back-ups out of it.

    Raise BackupFailed if another one is being made there, or the folder holds anything else.
    """
    make_folder(root, levels=1)
    strange = [path.name for path in root.iterdir() if not _is_ours(path.name)]
    if strange:
        raise BackupFailed(
            f"{root} holds {strange[0]}, which is no back-up; choose a new or empty folder"
        )
    with _lock(root, os.O_RDWR | os.O_CREAT, fcntl.LOCK_EX):
        yield Target(root, store)


@contextmanager
def read_target(root: Path) -> Iterator[list[Generation]]:
    """Open a target, or the folder of one generation, and return its generations, oldest first.
    No back-up is made or removed there within the context."""
    if not root.is_dir():
        raise BackupFailed(f"{root} is not a folder with back-ups")
    single = read_generation(root)
    folder = root if single is None else root.parent
    with _lock(folder, os.O_RDONLY, fcntl.LOCK_SH) if (folder / _LOCK).exists() else nullcontext():
        yield generations(root) if single is None else [single]


def now_micros() -> int:
    return time.time_ns() // 1000


@contextmanager
def _lock(root: Path, flags: int, kind: int) -> Iterator[None]:
    descriptor = os.open(root / _LOCK, flags, 0o666)
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise BackupFailed(f"{root} is in use by another back-up or restore") from None
    try:
        yield
    finally:
        os.close(descriptor)


def _is_ours(name: str) -> bool:
    return name in (_LOCK, _UNFINISHED) or _NAME.fullmatch(name) is not None


def _number_of(path: Path) -> int:
    return int(path.name.partition("-")[0])


def _lines(path: Path) -> list[str]:
    return (path / _MANIFEST).read_text(errors="replace").splitlines()


def _ending(lines: list[str]) -> str:
    return json.dumps({"crc32": zlib.crc32("\n".join(lines).encode())})


def _damaged(path: Path) -> BackupFailed:
    return BackupFailed(f"the manifest of {path} is damaged")
