"""The catalog of a file: the records of its copies, and how they are saved from a damaged file."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from client_sdk._exceptions import CopyError, FileDamaged, UnknownCopy
from client_sdk.copies._file import tables
from client_sdk.copies._file.file import CopyFile
from client_sdk.copies._file.records import Declaration, Stage, Told, Version, seal, unseal

T = TypeVar("T")

# Why changes begin anew: what was told can't be read, or an answer took the place of another.
DAMAGED, REPLACED = "DAMAGED", "REPLACED"

_FIELDS = "copy_id, name, declaration, spare, state, next, stage, shown, sound, told"


@dataclass(frozen=True, slots=True)
class Record:
    """A record is a copy as the file has it.

    `version` is what is seen. `following` is the next one, complete but not to be seen before those
    of other copies are complete too. `shown` is the greatest NOW the copy was seen at. `verified`
    is when every row was last found right; None if that is in doubt. `told` is the answer that
    changes have been told up to, and `told_lost` the reason where nobody knows what that is.
    `intact` is False if the declaration has to be written again, from the one of the two that is
    left.
    """

    declaration: Declaration
    version: Version | None
    following: Version | None
    stage: Stage | None
    shown: int | None
    verified: int | None
    told: Told | None
    told_lost: str
    intact: bool

    @property
    def copy_id(self) -> int:
        return self.declaration.copy_id

    @property
    def name(self) -> str:
        return self.declaration.name

    @property
    def base(self) -> Version | None:
        """The version that the next changes are told against."""
        return self.following or self.version

    @property
    def basis(self) -> tuple[bytes, bytes]:
        """The tokens a transfer goes on from: it holds as long as they stay the same."""
        return (
            b"" if self.base is None else self.base.token,
            b"" if self.stage is None else self.stage.resume,
        )


def records(connection: sqlite3.Connection) -> list[Record]:
    """Read all records, in the order in which the copies were first kept."""
    rows = connection.execute(f"SELECT {_FIELDS} FROM _psoup_copies ORDER BY copy_id")
    return [_record(*row) for row in rows]


def find(connection: sqlite3.Connection, name: str) -> Record:
    """Read the record of a name. Raises UnknownCopy."""
    rows = connection.execute(f"SELECT {_FIELDS} FROM _psoup_copies WHERE name = ?", (name,))
    for row in rows:
        return _record(*row)
    known = records(connection)
    for record in known:
        if record.name == name:
            return record
    names = ", ".join(record.name for record in known) or "none"
    raise UnknownCopy(f"no copy {name!r} is kept here; those that are: {names}")


def by_id(connection: sqlite3.Connection, copy_id: int) -> Record | None:
    rows = connection.execute(f"SELECT {_FIELDS} FROM _psoup_copies WHERE copy_id = ?", (copy_id,))
    for row in rows:
        return _record(*row)
    return None


def _record(copy_id: int, name: Any, first: Any, second: Any, *rest: Any) -> Record:
    """Make a record of a row. The declaration is there twice, since nobody else could tell it."""
    content = unseal(first) or unseal(second)
    if content is None:
        raise FileDamaged(
            f"what was kept as {name!r} can't be read any more: forget it and keep it again"
        )
    version, following, stage, shown, sound, told = rest
    moment = unseal(shown)
    declaration = Declaration.from_content(content)
    said = (declaration.name, declaration.copy_id)
    return Record(
        replace(declaration, copy_id=copy_id),
        _unsealed(version, Version.from_content),
        _unsealed(following, Version.from_content),
        _unsealed(stage, Stage.from_content),
        moment["now"] if moment else None,
        _verified(sound),
        *_told(told),
        intact=first == second and said == (name, copy_id),
    )


def _told(sealed: Any) -> tuple[Told | None, str]:
    content = unseal(sealed)
    if content is None:
        return None, "" if sealed is None else DAMAGED
    return (None, content["lost"]) if "lost" in content else (Told.from_content(content), "")


def _unsealed(sealed: Any, make: Callable[[dict[str, Any]], T]) -> T | None:
    content = unseal(sealed)
    return None if content is None else make(content)


# ---- writing


def insert(connection: sqlite3.Connection, declaration: Declaration) -> Declaration:
    """Add a copy, and return its declaration with its id."""
    cursor = connection.execute("INSERT INTO _psoup_copies (name) VALUES (?)", (declaration.name,))
    assert cursor.lastrowid is not None
    numbered = replace(declaration, copy_id=cursor.lastrowid)
    redeclare(connection, numbered)
    return numbered


def redeclare(connection: sqlite3.Connection, declaration: Declaration) -> None:
    sealed = seal(declaration.to_content())
    connection.execute(
        "UPDATE _psoup_copies SET name = ?, declaration = ?, spare = ? WHERE copy_id = ?",
        (declaration.name, sealed, sealed, declaration.copy_id),
    )


def amend(connection: sqlite3.Connection, copy_id: int, **fields: Any) -> Declaration | None:
    """Change these fields of the declaration as it is now; return None if the copy is gone."""
    record = by_id(connection, copy_id)
    if record is None:
        return None
    changed = replace(record.declaration, **fields)
    redeclare(connection, changed)
    return changed


def put_versions(
    connection: sqlite3.Connection,
    copy_id: int,
    version: Version | None,
    following: Version | None,
    stage: Stage | None,
) -> None:
    contents = [one and seal(one.to_content()) for one in (version, following, stage)]
    connection.execute(
        "UPDATE _psoup_copies SET state = ?, next = ?, stage = ? WHERE copy_id = ?",
        (*contents, copy_id),
    )


def put_shown(connection: sqlite3.Connection, copy_id: int, now: int | None) -> None:
    sealed = None if now is None else seal({"now": now})
    connection.execute("UPDATE _psoup_copies SET shown = ? WHERE copy_id = ?", (sealed, copy_id))


def put_verified(connection: sqlite3.Connection, copy_id: int, now: int | None) -> None:
    """Note that every row was found right at `now`; None notes that this is in doubt."""
    sealed = None if now is None else seal({"at": now, "by": _sdk_version()})
    connection.execute("UPDATE _psoup_copies SET sound = ? WHERE copy_id = ?", (sealed, copy_id))


def _verified(sealed: Any) -> int | None:
    """Read when the rows were verified; by another version of the SDK does not count."""
    content = unseal(sealed)
    if content is None or content.get("by") != _sdk_version():
        return None
    at: int = content["at"]
    return at


@functools.cache
def _sdk_version() -> str:
    try:
        return importlib.metadata.version("psoup")
    except importlib.metadata.PackageNotFoundError:
        return ""


def put_told(connection: sqlite3.Connection, copy_id: int, told: Told | None) -> None:
    sealed = None if told is None else seal(told.to_content())
    connection.execute("UPDATE _psoup_copies SET told = ? WHERE copy_id = ?", (sealed, copy_id))


def lose_told(connection: sqlite3.Connection, declaration: Declaration, reason: str) -> None:
    """Note, if changes are kept, why nobody knows what was told."""
    if declaration.changes:
        connection.execute(
            "UPDATE _psoup_copies SET told = ? WHERE copy_id = ?",
            (seal({"lost": reason}), declaration.copy_id),
        )


def drop_changes(connection: sqlite3.Connection, copy_id: int) -> None:
    """Keep no changes of a copy any more, and forgets those there are."""
    connection.execute(f"DROP TABLE IF EXISTS {tables.told_table(copy_id)}")
    for table in ("_psoup_ended", "_psoup_changes"):
        connection.execute(f"DELETE FROM {table} WHERE copy_id = ?", (copy_id,))
    put_told(connection, copy_id, None)


def delete(connection: sqlite3.Connection, copy_ids: Sequence[int]) -> None:
    for copy_id in copy_ids:
        tables.drop_but(connection, copy_id)
        drop_changes(connection, copy_id)
        for table in ("_psoup_removed", "_psoup_computed", "_psoup_copies"):
            connection.execute(f"DELETE FROM {table} WHERE copy_id = ?", (copy_id,))


def declare(connection: sqlite3.Connection, wanted: Declaration) -> None:
    """Keep a copy as it is wanted. Raises ValueError if SQL can't tell its name from
    another's.
    """
    for record in _namesakes(connection, wanted.name):
        if record.name == wanted.name:
            return _declare_again(connection, record, wanted)
        if record.name.casefold() == wanted.name.casefold():
            raise ValueError(f"{wanted.name!r} and {record.name!r} are one name in SQL")
    insert(connection, wanted)


def _namesakes(connection: sqlite3.Connection, name: str) -> list[Record]:
    """Find the records that have the name, but for case, in the row or in a declaration."""
    fragment = seal({"name": name}).partition("{")[2].rstrip("}")
    rows = connection.execute(
        f"SELECT {_FIELDS} FROM _psoup_copies WHERE lower(name) = lower(?1) "
        "OR instr(declaration, ?2) OR instr(spare, ?2)",
        (name, fragment),
    )
    return [_record(*row) for row in rows]


def _declare_again(connection: sqlite3.Connection, record: Record, wanted: Declaration) -> None:
    before = record.declaration
    if not before.asks_the_same(wanted):
        delete(connection, [record.copy_id])
        kept = insert(connection, _succeeding(before, wanted))
        if before.changes:
            lose_told(connection, kept, REPLACED)
        return
    fields = ("priority", "lease", "changes")
    told = {name: getattr(wanted, name) for name in fields}
    if any(getattr(before, name) != value for name, value in told.items()):
        amend(connection, record.copy_id, **told)
    if before.changes and not wanted.changes:
        drop_changes(connection, record.copy_id)


def _succeeding(before: Declaration, wanted: Declaration) -> Declaration:
    """The declaration of another text in a copy's place: its query replaces the one before, so that
    no registration is left that nobody asks for. A lease can't be changed, nor what was registered
    by others."""
    own = before.sql and wanted.sql and before.lease == wanted.lease
    return replace(wanted, key=before.key) if own else wanted


def forget(connection: sqlite3.Connection, name: str) -> None:
    """Delete a copy by the name its row has, so that a damaged one can be forgotten too."""
    rows = connection.execute("SELECT copy_id FROM _psoup_copies WHERE name = ?", (name,))
    ids = [copy_id for (copy_id,) in rows] or [find(connection, name).copy_id]
    delete(connection, ids)


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
    """Make a new file of what can still be read of a damaged one, which nobody may have open.

    The damaged file is kept beside, with `.damaged` after its name. Raises CopyError if there is
    no such file, or a damaged one was put aside before.
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
                    lose_told(connection, insert(connection, declaration), DAMAGED)
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
    """Copy the rows of a table as far as they can be read, and return how many there were."""
    names = [row[1] for row in _readable(source, f"PRAGMA table_info({table})")]
    columns, places, count = ", ".join(map(str, names)), ", ".join("?" * len(names)), 0
    for row in _readable(source, f"SELECT * FROM {table}"):
        connection.execute(f"INSERT OR IGNORE INTO {table} ({columns}) VALUES ({places})", row)
        count += 1
    return count


def _readable(source: sqlite3.Connection, select: str) -> Iterator[tuple[object, ...]]:
    """Yield rows as far as they can be read."""
    try:
        yield from source.execute(select)
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        return
