"""The catalog of a file: the records of its copies, and their recovery from a damaged file."""

from __future__ import annotations

import functools
import importlib.metadata
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from client_sdk._exceptions import CopyError, FileDamaged, UnknownCopy
from client_sdk.copies._file import sqlite, tables
from client_sdk.copies._file.encryption import Key, check_key, key_bytes, sidecar_of
from client_sdk.copies._file.file import CopyFile
from client_sdk.copies._file.records import Declaration, Reported, Stage, Version, seal, unseal

T = TypeVar("T")

# Why changes begin again: the reported answer can't be read, or another query replaced it.
DAMAGED, REPLACED = "DAMAGED", "REPLACED"
# The rows were removed from the file, to make room or to leave a device.
EVICTED, CLEARED = "EVICTED", "CLEARED"

_FIELDS = "copy_id, name, declaration, spare, state, next, stage, shown, sound, told, use"


@dataclass(frozen=True, slots=True)
class Use:
    """When a copy was last read, and when it was evicted to make room for others, in microseconds.

    `evicted_at` is None unless its rows are missing for that reason.
    """

    read_at: int = 0
    evicted_at: int | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """A copy as the file has it.

    `version` is the visible answer. `following` is the next one, complete but not visible before
    those of other copies are complete too. `latest_now` is the greatest NOW that the copy was read
    at. `verified` is when every row was last found right; None if that is in doubt. `reported` is
    the answer up to which changes have been reported, and `reported_lost` the reason why it is
    unknown. `use` says when the copy was last read, and evicted. `intact` is False if the
    declaration has to be written again, from the one of the two that can be read.
    """

    declaration: Declaration
    version: Version | None
    following: Version | None
    stage: Stage | None
    latest_now: int | None
    verified: int | None
    reported: Reported | None
    reported_lost: str
    use: Use
    intact: bool

    @property
    def copy_id(self) -> int:
        return self.declaration.copy_id

    @property
    def name(self) -> str:
        return self.declaration.name

    @property
    def base(self) -> Version | None:
        """The version that the next sync changes."""
        return self.following or self.version

    @property
    def basis(self) -> tuple[bytes, bytes]:
        """The tokens that a transfer continues from. It is valid as long as they stay the same."""
        return (
            b"" if self.base is None else self.base.token,
            b"" if self.stage is None else self.stage.resume,
        )


def records(connection: sqlite.Connection) -> list[Record]:
    """Return all records, in the order in which the copies were first kept."""
    rows = connection.execute(f"SELECT {_FIELDS} FROM _psoup_copies ORDER BY copy_id")
    return [_record(*row) for row in rows]


def find(connection: sqlite.Connection, name: str) -> Record:
    """Return the record of a name. Raises UnknownCopy."""
    rows = connection.execute(f"SELECT {_FIELDS} FROM _psoup_copies WHERE name = ?", (name,))
    for row in rows:
        return _record(*row)
    # The name in the row may be damaged; the one in the sealed declaration still matches.
    all_records = records(connection)
    for record in all_records:
        if record.name == name:
            return record
    names = ", ".join(record.name for record in all_records) or "none"
    raise UnknownCopy(f"no copy {name!r} is kept in this file, which has: {names}")


def by_id(connection: sqlite.Connection, copy_id: int) -> Record | None:
    """Return the record of an id; None if there is none."""
    rows = connection.execute(f"SELECT {_FIELDS} FROM _psoup_copies WHERE copy_id = ?", (copy_id,))
    for row in rows:
        return _record(*row)
    return None


def _record(copy_id: int, name: Any, first: Any, second: Any, *sealed_fields: Any) -> Record:
    """Return the record of a row. The declaration is there twice, since no other place has it.

    Raises FileDamaged if neither can be read.
    """
    content = unseal(first) or unseal(second)
    if content is None:
        raise FileDamaged(
            f"the declaration of copy {name!r} is damaged: forget it and keep it again"
        )
    version, following, stage, latest_now, sound, reported, use = sealed_fields
    moment = unseal(latest_now)
    declaration = Declaration.from_content(content)
    declared = (declaration.name, declaration.copy_id)
    return Record(
        # The id of the row is used, since the tables of the copy's rows are named by it.
        replace(declaration, copy_id=copy_id),
        _unsealed(version, Version.from_content),
        _unsealed(following, Version.from_content),
        _unsealed(stage, Stage.from_content),
        moment["now"] if moment else None,
        _verified(sound),
        *_reported(reported),
        Use(**(unseal(use) or {})),
        intact=first == second and declared == (name, copy_id),
    )


def _reported(sealed: Any) -> tuple[Reported | None, str]:
    """Return the reported answer, and the reason if it is lost."""
    content = unseal(sealed)
    if content is None:
        return None, "" if sealed is None else DAMAGED
    return (None, content["lost"]) if "lost" in content else (Reported.from_content(content), "")


def _unsealed(sealed: Any, make: Callable[[dict[str, Any]], T]) -> T | None:
    content = unseal(sealed)
    return None if content is None else make(content)


# ---- writing


def insert(connection: sqlite.Connection, declaration: Declaration) -> Declaration:
    """Add a copy, and return its declaration with its id."""
    # The row comes first, because the sealed declaration holds the id that SQLite assigns.
    cursor = connection.execute("INSERT INTO _psoup_copies (name) VALUES (?)", (declaration.name,))
    assert cursor.lastrowid is not None
    numbered = replace(declaration, copy_id=cursor.lastrowid)
    redeclare(connection, numbered)
    return numbered


def redeclare(connection: sqlite.Connection, declaration: Declaration) -> None:
    """Write the declaration, twice."""
    sealed = seal(declaration.to_content())
    connection.execute(
        "UPDATE _psoup_copies SET name = ?, declaration = ?, spare = ? WHERE copy_id = ?",
        (declaration.name, sealed, sealed, declaration.copy_id),
    )


def amend(connection: sqlite.Connection, copy_id: int, **fields: Any) -> Declaration | None:
    """Change fields of the declaration as it is now, and return it. Return None if the copy is
    gone.
    """
    # The declaration is read again, since another process may have changed other fields of it.
    record = by_id(connection, copy_id)
    if record is None:
        return None
    changed = replace(record.declaration, **fields)
    redeclare(connection, changed)
    return changed


def put_versions(
    connection: sqlite.Connection,
    copy_id: int,
    version: Version | None,
    following: Version | None,
    stage: Stage | None,
) -> None:
    contents = [content and seal(content.to_content()) for content in (version, following, stage)]
    connection.execute(
        "UPDATE _psoup_copies SET state = ?, next = ?, stage = ? WHERE copy_id = ?",
        (*contents, copy_id),
    )


def put_latest_now(connection: sqlite.Connection, copy_id: int, now: int | None) -> None:
    sealed = None if now is None else seal({"now": now})
    connection.execute("UPDATE _psoup_copies SET shown = ? WHERE copy_id = ?", (sealed, copy_id))


def put_use(connection: sqlite.Connection, copy_id: int, use: Use) -> None:
    connection.execute(
        "UPDATE _psoup_copies SET use = ? WHERE copy_id = ?", (seal(asdict(use)), copy_id)
    )


def put_verified(connection: sqlite.Connection, copy_id: int, now: int | None) -> None:
    """Note that every row was found right at `now`, or with None that this is in doubt."""
    sealed = None if now is None else seal({"at": now, "by": _sdk_version()})
    connection.execute("UPDATE _psoup_copies SET sound = ? WHERE copy_id = ?", (sealed, copy_id))


def _verified(sealed: Any) -> int | None:
    """Return when the rows were verified; None if another version of the SDK did it."""
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


def put_reported(connection: sqlite.Connection, copy_id: int, reported: Reported | None) -> None:
    sealed = None if reported is None else seal(reported.to_content())
    connection.execute("UPDATE _psoup_copies SET told = ? WHERE copy_id = ?", (sealed, copy_id))


def lose_reported(connection: sqlite.Connection, declaration: Declaration, reason: str) -> None:
    """Note, if changes are kept, why the reported answer is unknown."""
    if declaration.changes:
        connection.execute(
            "UPDATE _psoup_copies SET told = ? WHERE copy_id = ?",
            (seal({"lost": reason}), declaration.copy_id),
        )


def drop_changes(connection: sqlite.Connection, copy_id: int) -> None:
    """Stop keeping changes of a copy, and forget those there are."""
    connection.execute(f"DROP TABLE IF EXISTS {tables.reported_table(copy_id)}")
    for table in ("_psoup_ended", "_psoup_changes"):
        connection.execute(f"DELETE FROM {table} WHERE copy_id = ?", (copy_id,))
    put_reported(connection, copy_id, None)


def empty(connection: sqlite.Connection, record: Record, reason: str) -> None:
    """Remove the rows and changes of a copy; its declaration stays, and so do own rows that wait.

    The `reason` is that of the changes which begin again with its next answer.
    """
    copy_id = record.copy_id
    tables.drop_other_tables(connection, copy_id)
    drop_changes(connection, copy_id)
    connection.execute("DELETE FROM _psoup_removed WHERE copy_id = ?", (copy_id,))
    put_versions(connection, copy_id, None, None, None)
    put_latest_now(connection, copy_id, None)
    put_verified(connection, copy_id, None)
    if record.version is not None:
        lose_reported(connection, record.declaration, reason)


def delete(connection: sqlite.Connection, copy_ids: Sequence[int]) -> None:
    """Delete copies, with their rows and changes."""
    for copy_id in copy_ids:
        tables.drop_other_tables(connection, copy_id)
        connection.execute(f"DROP TABLE IF EXISTS {tables.overlay_table(copy_id)}")
        drop_changes(connection, copy_id)
        for table in ("_psoup_removed", "_psoup_computed", "_psoup_copies"):
            connection.execute(f"DELETE FROM {table} WHERE copy_id = ?", (copy_id,))


def declare(connection: sqlite.Connection, declaration: Declaration) -> None:
    """Keep a copy as declared. Raises ValueError if SQL can't distinguish its name from
    another's.
    """
    for record in _namesakes(connection, declaration.name):
        if record.name == declaration.name:
            return _declare_again(connection, record, declaration)
        if record.name.casefold() == declaration.name.casefold():
            raise ValueError(f"{declaration.name!r} and {record.name!r} are one name in SQL")
    insert(connection, declaration)


def _namesakes(connection: sqlite.Connection, name: str) -> list[Record]:
    """Return the records that have the name, ignoring case, in the row or in a declaration."""
    # Declarations are searched as text, for the name as JSON writes it, without the braces. So a
    # copy is found even if the name in its row is damaged.
    fragment = seal({"name": name}).partition("{")[2].rstrip("}")
    rows = connection.execute(
        f"SELECT {_FIELDS} FROM _psoup_copies WHERE lower(name) = lower(?1) "
        "OR instr(declaration, ?2) OR instr(spare, ?2)",
        (name, fragment),
    )
    return [_record(*row) for row in rows]


def _declare_again(connection: sqlite.Connection, record: Record, declaration: Declaration) -> None:
    before = record.declaration
    if not before.asks_the_same(declaration):
        # Another query has another answer, so nothing of the rows before can be kept.
        delete(connection, [record.copy_id])
        inserted = insert(connection, _succeeding(before, declaration))
        if before.changes:
            lose_reported(connection, inserted, REPLACED)
        return
    fields = ("priority", "lease", "changes", "edits", "pinned")
    changeable = {name: getattr(declaration, name) for name in fields}
    if any(getattr(before, name) != value for name, value in changeable.items()):
        amend(connection, record.copy_id, **changeable)
    if before.changes and not declaration.changes:
        drop_changes(connection, record.copy_id)
    if before.edits and not declaration.edits:
        connection.execute(f"DROP TABLE IF EXISTS {tables.overlay_table(record.copy_id)}")


def _succeeding(before: Declaration, declaration: Declaration) -> Declaration:
    """Return the declaration of another text in the place of a copy.

    Its query replaces the registered one, so that no unused registration stays. That is not
    possible if the lease differs, or if the program registered the query itself.
    """
    is_replaceable = before.sql and declaration.sql and before.lease == declaration.lease
    return replace(declaration, key=before.key) if is_replaceable else declaration


def forget(connection: sqlite.Connection, name: str) -> None:
    """Delete a copy by the name in its row, so that a damaged one can be forgotten too."""
    rows = connection.execute("SELECT copy_id FROM _psoup_copies WHERE name = ?", (name,))
    ids = [copy_id for (copy_id,) in rows] or [find(connection, name).copy_id]
    delete(connection, ids)


# Tables that `recover` copies as they are, beside those of copies.
RECOVERED_TABLES = ("_psoup_store", "_psoup_streams", "_psoup_publisher", "_psoup_queue")


@dataclass(frozen=True, slots=True)
class Recovered:
    """The result of a recovery. `kept` are the copies declared in the new file, to be synced from
    the start.

    `rows` counts the rows of other tables that were recovered. The damaged file is at `damaged`.
    """

    kept: tuple[str, ...]
    rows: int
    damaged: Path


def recover(path: str | os.PathLike[str], key: Key | None = None) -> Recovered:
    """Make a new file of what can still be read of a damaged one, which no process may have open.

    The damaged file is kept beside it, with `.damaged` after its name. Raises CopyError if there is
    no such file, or the file of an earlier recovery is there, and WrongKey.
    """
    old, aside, fresh = Path(path), Path(f"{path}.damaged"), Path(f"{path}.recovered")
    if not old.is_file():
        raise CopyError(f"there is no file {old}")
    if aside.exists():
        raise CopyError(f"{aside} is left from an earlier recovery: move it away first")
    secret = key_bytes(key)
    check_key(old, secret)
    # An earlier recovery that was killed may have left a part of its file.
    for leftover in _with_logs(fresh):
        leftover.unlink(missing_ok=True)
    new = CopyFile(fresh, secret)
    try:
        # Plain SQLite reads what it can; CopyFile may refuse to open a damaged file.
        with closing(sqlite.connect(old, key=secret)) as source:
            declarations = _declarations(source)
            with new.writing(durable=True) as connection:
                for declaration in declarations:
                    lose_reported(connection, insert(connection, declaration), DAMAGED)
                rows = sum(_carry(source, connection, table) for table in RECOVERED_TABLES)
    finally:
        new.close()
    # The new file is complete and closed here. The logs move with the old file: SQLite must not
    # find them beside the new one.
    for before, after in zip(_with_logs(old), _with_logs(aside), strict=True):
        if before.exists():
            before.replace(after)
    fresh.replace(old)
    # The key is the same, and so the sidecar of the old file holds for the new one.
    sidecar_of(fresh).unlink(missing_ok=True)
    return Recovered(tuple(declaration.name for declaration in declarations), rows, aside)


def _with_logs(path: Path) -> list[Path]:
    return [path, Path(f"{path}-wal"), Path(f"{path}-shm")]


def _declarations(source: sqlite.Connection) -> list[Declaration]:
    by_name: dict[str, Declaration] = {}
    for first, second in _readable(source, "SELECT declaration, spare FROM _psoup_copies"):
        content = unseal(first) or unseal(second)
        if content is not None:
            declaration = Declaration.from_content(content)
            by_name[declaration.name] = declaration
    return list(by_name.values())


def _carry(source: sqlite.Connection, connection: sqlite.Connection, table: str) -> int:
    """Copy the rows of a table as far as they can be read, and return how many there were."""
    names = [row[1] for row in _readable(source, f"PRAGMA table_info({table})")]
    columns, places, count = ", ".join(map(str, names)), ", ".join("?" * len(names)), 0
    for row in _readable(source, f"SELECT * FROM {table}"):
        connection.execute(f"INSERT OR IGNORE INTO {table} ({columns}) VALUES ({places})", row)
        count += 1
    return count


def _readable(source: sqlite.Connection, select: str) -> Iterator[tuple[object, ...]]:
    """Yield rows as far as they can be read."""
    try:
        yield from source.execute(select)
    except sqlite.DatabaseError:
        return
    except UnicodeDecodeError:
        return
