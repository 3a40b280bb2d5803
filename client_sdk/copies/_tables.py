"""The rows of a copy: a table for those that are seen, and one for each version on its way.

_psoup_rows_7     the copy
_psoup_next_7     a complete one that is not to be seen yet
_psoup_staged_7   rows of a transfer under way
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

from client_sdk._columns import Column
from client_sdk.copies._checksum import Checksums, StoredRow, digest
from client_sdk.copies._records import Version

ROWS, NEXT, STAGED = "rows", "next", "staged"

_HEAD = ("row_id", "visible_from", "visible_until", "sort_key", "checksum")
# Rows that are checked at a time.
_BATCH = 10_000


def name_of(kind: str, copy_id: int) -> str:
    return f"_psoup_{kind}_{copy_id}"


def value_names(columns: Sequence[Column]) -> list[str]:
    """Columns are c0, c1, …: an answer's own names may be equal for SQLite."""
    return [f"c{number}" for number in range(len(columns))]


def create(connection: sqlite3.Connection, table: str, columns: Sequence[Column]) -> None:
    _, *head = _HEAD
    names = ", ".join([*head, *value_names(columns)])
    connection.execute(f"DROP TABLE IF EXISTS {table}")
    connection.execute(f"CREATE TABLE {table} (row_id INTEGER PRIMARY KEY, {names})")


def drop_all(connection: sqlite3.Connection, copy_id: int) -> None:
    for kind in (ROWS, NEXT, STAGED):
        connection.execute(f"DROP TABLE IF EXISTS {name_of(kind, copy_id)}")


def exists(connection: sqlite3.Connection, table: str) -> bool:
    found = connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,))
    return found.fetchone() is not None


def rename(connection: sqlite3.Connection, table: str, name: str) -> None:
    connection.execute(f"DROP TABLE IF EXISTS {name}")
    connection.execute(f"ALTER TABLE {table} RENAME TO {name}")


def put(connection: sqlite3.Connection, table: str, rows: Sequence[StoredRow]) -> None:
    """Rows with an id that is there replace it."""
    if rows:
        places = ", ".join("?" * len(rows[0]))
        connection.executemany(f"INSERT OR REPLACE INTO {table} VALUES ({places})", rows)


def pour(connection: sqlite3.Connection, source: str, table: str) -> None:
    connection.execute(f"INSERT OR REPLACE INTO {table} SELECT * FROM {source}")


def remove(connection: sqlite3.Connection, table: str, ids: Sequence[int]) -> None:
    connection.executemany(f"DELETE FROM {table} WHERE row_id = ?", ((one,) for one in ids))


def expire(connection: sqlite3.Connection, table: str, now: int | None) -> None:
    if now is not None:
        connection.execute(f"DELETE FROM {table} WHERE visible_until <= ?", (now,))


def ids_of(connection: sqlite3.Connection, table: str) -> list[int]:
    return [row_id for (row_id,) in connection.execute(f"SELECT row_id FROM {table}")]


def rows_of(connection: sqlite3.Connection, table: str, ids: Sequence[int]) -> list[StoredRow]:
    found = []
    for row_id in ids:
        found += connection.execute(f"SELECT * FROM {table} WHERE row_id = ?", (row_id,)).fetchall()
    return found


# ---- checking


def is_sound(connection: sqlite3.Connection, table: str, version: Version) -> bool:
    """Whether count and digest are those of the version's end."""
    what = "checksum" if version.shape.by_checksum else "row_id"
    numbers = [number for (number,) in connection.execute(f"SELECT {what} FROM {table}")]
    if len(numbers) != version.row_count or not all(isinstance(one, int) for one in numbers):
        return False
    return digest(numbers) == version.digest


def damaged(connection: sqlite3.Connection, table: str, columns: Sequence[Column]) -> list[int]:
    """The ids of rows that are not what their checksum says, ascending."""
    sums = Checksums(columns)
    return [row_id for batch in _batches(connection, table) for row_id in sums.wrong(batch)]


def _batches(connection: sqlite3.Connection, table: str) -> Iterator[list[StoredRow]]:
    low = -(2**63)
    while True:
        rows = _read(
            connection, f"SELECT * FROM {table} WHERE row_id >= {low} ORDER BY 1 LIMIT {_BATCH}"
        )
        if rows:
            yield rows
        if len(rows) < _BATCH:
            return
        low = rows[-1][0] + 1


def _read(connection: sqlite3.Connection, select: str) -> list[Any]:
    """Text that is none (any longer) comes as bytes, which is no value of any type."""
    try:
        return connection.execute(select).fetchall()
    except sqlite3.OperationalError as error:
        if "decode" not in str(error):
            raise
    with _odd_texts(connection):
        return connection.execute(select).fetchall()


@contextlib.contextmanager
def _odd_texts(connection: sqlite3.Connection) -> Iterator[None]:
    connection.text_factory = _text_or_bytes
    try:
        yield
    finally:
        connection.text_factory = str


def _text_or_bytes(content: bytes) -> str | bytes:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content
