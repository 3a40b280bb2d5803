"""Finished back-ups: a manifest with the sizes and checksums of the files, and the files.

The manifest is written last: without one there is no back-up. What a target is, a folder or a
prefix of a bucket, is up to `folder` and `objects`.
"""

from __future__ import annotations

import json
import re
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from datastem.instants import from_micros
from psoup.store.backup.copying import FileMark, Files
from psoup.store.errors import BackupFailed

_FORMAT = 1
MANIFEST = "manifest.jsonl"
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
    """A finished back-up: its name in the target, its whole address, and its files. `read` returns
    the manifest."""

    name: str
    place: str
    header: Header
    files: Files
    read: Callable[[], str]

    def marks(self) -> dict[str, FileMark]:
        """Return the marks of all files, by path. Raise BackupFailed if the manifest is damaged."""
        *lines, ending = self.read().splitlines() or [""]
        if ending != _ending(lines):
            raise _damaged(self.place)
        try:
            files = map(json.loads, lines[1:])
            return {_checked(path): FileMark(size, crc) for path, size, crc in files}
        except (ValueError, TypeError) as error:
            raise _damaged(self.place) from error


class Target(Protocol):
    """A place for back-ups of one store that no other process uses; `generations` are the finished
    ones, oldest first."""

    generations: list[Generation]

    def begin(self) -> Files:
        """Return the files of the next back-up. They may have some already: those of an interrupted
        one, and of the last."""

    def check(self) -> None:
        """Raise BackupFailed if another process may use the target by now."""

    def settle(self, marks: Mapping[str, FileMark]) -> None:
        """Make these files durable, and remove others of the next back-up."""

    def finish(self, header: Header, marks: Mapping[str, FileMark]) -> Generation:
        """Write the manifest of the next back-up, and return it."""

    def drop_before(self, instant: int) -> int:
        """Remove the generations that were begun before an instant, except for the newest; return
        how many. Also remove the rest of those whose removal was interrupted."""


def write_manifest(header: Header, marks: Mapping[str, FileMark]) -> str:
    """Return the text of a manifest."""
    lines = [json.dumps({"psoup_backup": _FORMAT, **asdict(header)})]
    lines += [json.dumps([name, mark.size, mark.crc]) for name, mark in sorted(marks.items())]
    return "\n".join([*lines, _ending(lines), ""])


def read_header(text: str, place: str) -> Header:
    """Return the header of a manifest, or of its first line. Raise BackupFailed if it is damaged or
    of another version."""
    try:
        form: dict[str, Any] = json.loads(text.splitlines()[0])
        number = form.pop("psoup_backup")
    except (ValueError, KeyError, IndexError, AttributeError, TypeError) as error:
        raise _damaged(place) from error
    if number != _FORMAT:
        raise BackupFailed(f"{place} is a back-up of format {number}; this version reads {_FORMAT}")
    try:
        return Header(**form)
    except TypeError as error:
        raise _damaged(place) from error


def is_name(name: str) -> bool:
    """Return True for the name of a generation."""
    return _NAME.fullmatch(name) is not None


def number_of(name: str) -> int:
    """Return the number of a generation."""
    return int(name.partition("-")[0])


def next_name(names: list[str], begun: int) -> str:
    """Return the name of a generation that comes after others."""
    number = 1 + max(map(number_of, names), default=0)
    return f"{number:06d}-{from_micros(begun):%Y%m%dT%H%M%SZ}"


def check_store(generations: list[Generation], store: str, place: str) -> None:
    """Raise BackupFailed if there are back-ups of another store."""
    if any(generation.header.store != store for generation in generations):
        raise BackupFailed(f"{place} holds back-ups of another store; choose another target")


def now_micros() -> int:
    return time.time_ns() // 1000


def _checked(path: str) -> str:
    """Return a path of a manifest. Raise ValueError if it leads out of the folder."""
    if path.startswith("/") or ".." in path.split("/"):
        raise ValueError(path)
    return path


def _ending(lines: list[str]) -> str:
    return json.dumps({"crc32": zlib.crc32("\n".join(lines).encode())})


def _damaged(place: str) -> BackupFailed:
    return BackupFailed(f"the manifest of {place} is damaged")
