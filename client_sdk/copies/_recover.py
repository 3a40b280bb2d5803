"""A new file from what can still be read of a damaged one."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from client_sdk._exceptions import CopyError
from client_sdk.copies import _shelf
from client_sdk.copies._file import CopyFile
from client_sdk.copies._records import Declaration
from client_sdk.copies._sealed import unseal

# Tables beside those of copies whose rows are carried over as they are.
CARRIED = ("_psoup_store", "_psoup_streams", "_psoup_publisher", "_psoup_queue")


@dataclass(frozen=True, slots=True)
class Recovered:
    """`kept` are the copies that are declared in the new file, to be synced from the start.

    `rows` counts rows of other tables that were carried over. The damaged file is at `damaged`.
    """

    kept: tuple[str, ...]
    rows: int
    damaged: Path


def recover(path: str | os.PathLike[str]) -> Recovered:
    """The damaged file is kept beside, with `.damaged` after its name. No one may have it open.

    Raises CopyError where there is no such file, or a damaged one was put aside before.
    """
    old, aside, fresh = Path(path), Path(f"{path}.damaged"), Path(f"{path}.recovered")
    if not old.is_file():
        raise CopyError(f"there is no file {old}")
    if aside.exists():
        raise CopyError(f"{aside} is there from an earlier time: move it away first")
    for leftover in _with_logs(fresh):
        leftover.unlink(missing_ok=True)
    new = CopyFile(fresh)
    try:
        with closing(sqlite3.connect(old)) as source:
            kept = _declarations(source)
            with new.writing(durable=True) as connection:
                for declaration in kept:
                    _shelf.insert(connection, declaration)
                rows = sum(_carry(source, connection, table) for table in CARRIED)
    finally:
        new.close()
    for before, after in zip(_with_logs(old), _with_logs(aside), strict=True):
        if before.exists():
            before.replace(after)
    fresh.replace(old)
    return Recovered(tuple(one.name for one in kept), rows, aside)


def _with_logs(path: Path) -> list[Path]:
    return [path, Path(f"{path}-wal"), Path(f"{path}-shm")]


def _declarations(source: sqlite3.Connection) -> list[Declaration]:
    found: dict[str, Declaration] = {}
    for first, second in _readable(source, "SELECT declaration, spare FROM _psoup_copies"):
        content = unseal(first) or unseal(second)
        if content is not None:
            declaration = Declaration.from_content(content)
            found[declaration.name] = declaration
    return list(found.values())


def _carry(source: sqlite3.Connection, connection: sqlite3.Connection, table: str) -> int:
    """The columns the source has: it may be of an older format."""
    names = [row[1] for row in _readable(source, f"PRAGMA table_info({table})")]
    columns, places, count = ", ".join(map(str, names)), ", ".join("?" * len(names)), 0
    for row in _readable(source, f"SELECT * FROM {table}"):
        connection.execute(f"INSERT OR IGNORE INTO {table} ({columns}) VALUES ({places})", row)
        count += 1
    return count


def _readable(source: sqlite3.Connection, select: str) -> Iterator[tuple[object, ...]]:
    """As far as it goes."""
    try:
        yield from source.execute(select)
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        return
