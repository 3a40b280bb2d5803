"""A table in a SQLite file, named after the pull; other tables of the file are left alone.

The table `psoup_pulls` has a line for each pull: the position and NOW of its answer, and its
columns with their types, which SQLite itself has too few of. If the columns stay the same the
table stays, so that indexes and views made on it do too.
"""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from client_sdk._wire.values import Column
from client_sdk.pulls._sinks.files import Output, Stamp, stamp_of
from psoup.formats.plain import plain_values

ABOUT = "psoup_pulls"
BUSY_SECONDS = 30.0

_DECLARED = {"BOOLEAN": "INTEGER", "BIGINT": "INTEGER", "DOUBLE": "REAL"}
_ABOUT_TABLE = f"""CREATE TABLE IF NOT EXISTS {ABOUT} (
    name TEXT PRIMARY KEY, position TEXT NOT NULL, now TEXT, columns TEXT NOT NULL)"""


class SqliteSink:
    """A sink for a table. Readers see the old rows until the commit."""

    failures: tuple[type[Exception], ...] = (OSError, sqlite3.Error)

    def __init__(self, path: Path, table: str) -> None:
        self._path = path.resolve()
        self._table = table

    def write(self, output: Output) -> None:
        with self._transaction() as connection:
            self._prepare(connection, output)
            marks = ", ".join("?" * len(output.columns))
            insert = f"INSERT INTO {quoted(self._table)} VALUES ({marks})"
            connection.executemany(insert, _rows(output))
            self._describe(connection, output)

    def stamp(self) -> Stamp | None:
        # A commit may be in the log only, and leave the file itself as it was.
        return stamp_of(self._path, self._path.with_name(f"{self._path.name}-wal"))

    def fingerprint(self) -> str | None:
        if not self._path.exists():
            return None
        with closing(self._connect()) as connection:
            declared = self._declared(connection)
            if declared is None:
                return None
            digest = hashlib.sha256(declared.encode())
            for row in connection.execute(f"SELECT * FROM {quoted(self._table)} ORDER BY rowid"):
                digest.update(repr(row).encode())
        return digest.hexdigest()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None)
        # Pages that don't fit the cache would be written early, and shut readers out from then on.
        connection.execute("PRAGMA cache_spill = OFF")
        return connection

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with closing(self._connect()) as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                connection.rollback()
                raise

    def _prepare(self, connection: sqlite3.Connection, output: Output) -> None:
        """Create an empty table of the answer's columns."""
        statement = create_table(self._table, output.columns)
        declared = self._declared(connection)
        if declared == statement:
            connection.execute(f"DELETE FROM {quoted(self._table)}")
            return
        if declared is not None:
            connection.execute(f"DROP TABLE {quoted(self._table)}")
        connection.execute(statement)

    def _describe(self, connection: sqlite3.Connection, output: Output) -> None:
        columns = {column.name: column.type for column in output.columns}
        now = None if output.now is None else output.now.isoformat()
        connection.execute(_ABOUT_TABLE)
        connection.execute(
            f"INSERT OR REPLACE INTO {ABOUT} VALUES (?, ?, ?, ?)",
            (self._table, output.position.hex(), now, json.dumps(columns)),
        )

    def _declared(self, connection: sqlite3.Connection) -> str | None:
        row = connection.execute(
            "SELECT sql FROM sqlite_master WHERE type = 'table' AND lower(name) = lower(?)",
            (self._table,),
        ).fetchone()
        return None if row is None else str(row[0])


def create_table(name: str, columns: tuple[Column, ...]) -> str:
    declared = [f"{quoted(column.name)} {_DECLARED.get(column.kind, 'TEXT')}" for column in columns]
    return f"CREATE TABLE {quoted(name)} ({', '.join(declared)})"


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _rows(output: Output) -> Iterator[tuple[Any, ...]]:
    for batch in output.batches():
        values = [plain_values(array, _odd_double) for array in batch.columns]
        yield from zip(*values, strict=True)


def _odd_double(value: float) -> Any:
    """Return the value for a number that is not finite. SQLite has infinity, and makes NaN NULL."""
    return "NaN" if math.isnan(value) else value
