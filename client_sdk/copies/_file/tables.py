"""The rows of copies: a table for each version of each copy, and for staged rows.

`_psoup_rows_7_2` is the second table of copy 7. The record of the copy says which table is which,
because SQLite renames a table slowly if there are many.

Values are stored exactly, and comparable in SQL if SQLite has a type for them:

    BOOLEAN     0 or 1
    BIGINT      an integer
    DOUBLE      a real; the text NaN, since SQLite has no NaN
    DECIMAL     text, with as many digits after the point as its type says
    TEXT        text
    TIMESTAMP   an integer, microseconds since 1970
    DATE        an integer, days since 1970

Columns are declared without a type, so that SQLite converts nothing. A query reads them through
`sql_expression`: timestamps and dates as ISO text, decimals as reals.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from client_sdk._wire.values import Column
from client_sdk.copies._file import sqlite
from client_sdk.copies._file.checksums import HEAD, Checksums, StoredRow, Sums
from client_sdk.copies._file.records import Shape

HEAD_NAMES = ("row_id", "visible_from", "visible_until", "sort_key", "checksum")
# How many rows are read at a time.
_BATCH_ROWS = 10_000


def all_of(connection: sqlite.Connection, copy_id: int) -> list[str]:
    """Return the names of the tables of a copy."""
    # In GLOB an underscore stands for itself; in LIKE it would match any character.
    names = f"_psoup_rows_{copy_id}_*"
    rows = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name GLOB ?", (names,)
    )
    return [name for (name,) in rows]


def new(connection: sqlite.Connection, copy_id: int, columns: Sequence[Column]) -> str:
    """Create another table for a copy, and return its name."""
    numbers = [int(name.rpartition("_")[2]) for name in all_of(connection, copy_id)]
    table = f"_psoup_rows_{copy_id}_{max(numbers, default=0) + 1}"
    make(connection, table, columns)
    return table


def make(connection: sqlite.Connection, table: str, columns: Sequence[Column]) -> None:
    """Create a table of rows."""
    _, *head = HEAD_NAMES
    names = ", ".join([*head, *value_names(columns)])
    connection.execute(f"CREATE TABLE {table} (row_id INTEGER PRIMARY KEY, {names})")


def index_keys(connection: sqlite.Connection, table: str, columns: Sequence[Column]) -> None:
    """Index the stream keys of a table of keyed rows, if that is not done."""
    key = value_names(columns)[-1]
    connection.execute(f"CREATE INDEX IF NOT EXISTS {table}_key ON {table} ({key})")


def value_names(columns: Sequence[Column]) -> list[str]:
    """Return the names of the columns: c0, c1, … The names of the answer may be equal for
    SQLite.
    """
    return [f"c{number}" for number in range(len(columns))]


def drop_other_tables(
    connection: sqlite.Connection, copy_id: int, names: Collection[str] = ()
) -> None:
    """Drop the tables of a copy except those with these `names`."""
    for table in all_of(connection, copy_id):
        if table not in names:
            connection.execute(f"DROP TABLE {table}")


def reported_table(copy_id: int) -> str:
    """Return the name of the table with the rows of the reported answer."""
    return f"_psoup_told_{copy_id}"


def overlay_table(copy_id: int) -> str:
    """Return the name of the table with own rows that wait to be sent."""
    return f"_psoup_overlay_{copy_id}"


def exists(connection: sqlite.Connection, table: str) -> bool:
    rows = connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,))
    return rows.fetchone() is not None


def put(connection: sqlite.Connection, table: str, rows: Sequence[StoredRow]) -> None:
    """Insert rows into a table, each in place of the one with its id."""
    if rows:
        places = ", ".join("?" * len(rows[0]))
        connection.executemany(f"INSERT OR REPLACE INTO {table} VALUES ({places})", rows)


def copy_rows(connection: sqlite.Connection, source: str, table: str) -> None:
    """Insert all rows of the table `source`, each in place of the one with its id."""
    connection.execute(f"INSERT OR REPLACE INTO {table} SELECT * FROM {source}")


class Changes:
    """Changes of the rows of one table, which keep track of its count and digest.

    Both follow from those `before` the changes, so that only rows added and removed are read.
    `touched` are the ids of these.
    """

    def __init__(
        self, connection: sqlite.Connection, table: str, shape: Shape, before: Sums
    ) -> None:
        self._connection = connection
        self._table = table
        # The digest is of checksums or of row ids, as the store chose for this answer.
        self._place = HEAD - 1 if shape.by_checksum else 0
        self._number = HEAD_NAMES[self._place]
        self._before = before
        self._added: list[int] = []
        self._removed: list[int] = []
        self.touched: set[int] = set()

    @property
    def sums(self) -> Sums | None:
        """Count and digest now; None if a removed row was damaged and had no number to subtract."""
        if not all(isinstance(number, int) for number in self._removed):
            return None
        return self._before.plus(self._added).minus(self._removed)

    def remove(self, ids: Iterable[int]) -> None:
        """Delete the rows with these ids."""
        for row_id in ids:
            self._remove("row_id = ?", row_id)

    def remove_all(self, ids: str, *parameters: Any) -> None:
        """Delete the rows whose ids the SELECT `ids` returns."""
        self._remove(f"row_id IN ({ids})", *parameters)

    def expire(self, now: int | None) -> None:
        """Delete the rows that have left the answer at `now`."""
        if now is not None:
            self._remove("visible_until <= ?", now)

    def put(self, rows: Sequence[StoredRow]) -> None:
        """Insert rows, each in place of the one with its id."""
        # The last row of an id wins, as with INSERT OR REPLACE, and each id is counted once. Rows
        # that are replaced are removed first, so that their numbers are subtracted.
        last = {row[0]: row for row in rows}
        self.remove(last)
        put(self._connection, self._table, list(last.values()))
        self._added += [row[self._place] for row in last.values()]
        self.touched.update(last)

    def put_all(self, source: str) -> None:
        """Insert all rows of the table `source`, as `put` does."""
        self.remove_all(f"SELECT row_id FROM {source}")
        copy_rows(self._connection, source, self._table)
        rows = self._connection.execute(f"SELECT row_id, {self._number} FROM {source}").fetchall()
        self._added += [number for _, number in rows]
        self.touched.update(row_id for row_id, _ in rows)

    def _remove(self, where: str, *parameters: Any) -> None:
        rows = self._connection.execute(
            f"DELETE FROM {self._table} WHERE {where} RETURNING row_id, {self._number}", parameters
        ).fetchall()
        self._removed += [number for _, number in rows]
        self.touched.update(row_id for row_id, _ in rows)


def ids_of(connection: sqlite.Connection, table: str) -> list[int]:
    return [row_id for (row_id,) in connection.execute(f"SELECT row_id FROM {table}")]


# ---- checking


def count_of(connection: sqlite.Connection, table: str) -> int:
    """Return the number of rows of a table, for which SQLite reads its pages only."""
    count: int = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    return count


def sums_of(connection: sqlite.Connection, table: str, shape: Shape) -> Sums | None:
    """Return count and digest, computed from all rows; None if a row is damaged and has no
    number.
    """
    what = "checksum" if shape.by_checksum else "row_id"
    numbers = [number for (number,) in connection.execute(f"SELECT {what} FROM {table}")]
    return Sums.of(numbers) if all(isinstance(number, int) for number in numbers) else None


def checksum_sums(connection: sqlite.Connection, table: str) -> Sums | None:
    """Return the count of the rows and the digest of their checksums; None if a checksum is
    damaged.
    """
    numbers = [number for (number,) in connection.execute(f"SELECT checksum FROM {table}")]
    return Sums.of(numbers) if all(isinstance(number, int) for number in numbers) else None


def damaged(connection: sqlite.Connection, table: str, columns: Sequence[Column]) -> list[int]:
    """Read every row, and return the ids of those that their checksums don't match."""
    sums = Checksums(columns)
    return [row_id for rows in _batches(connection, table) for row_id in sums.wrong(rows)]


def _batches(connection: sqlite.Connection, table: str) -> Iterator[list[StoredRow]]:
    # Damaged ids may be negative, so the first page begins at the least integer.
    low = -(2**63)
    while True:
        rows = read(
            connection,
            f"SELECT * FROM {table} WHERE row_id >= {low} ORDER BY 1 LIMIT {_BATCH_ROWS}",
        )
        if rows:
            yield rows
        if len(rows) < _BATCH_ROWS:
            return
        low = rows[-1][0] + 1


def read(connection: sqlite.Connection, select: str) -> list[Any]:
    """Return rows. Text that is not UTF-8 any more is returned as bytes, which no type has."""
    try:
        return connection.execute(select).fetchall()
    except sqlite.OperationalError as error:
        # Only the message distinguishes text that is not UTF-8 from other operational errors.
        if "decode" not in str(error):
            raise
    with _undecodable_as_bytes(connection):
        return connection.execute(select).fetchall()


@contextlib.contextmanager
def _undecodable_as_bytes(connection: sqlite.Connection) -> Iterator[None]:
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


NAN = "NaN"


def stored(array: pa.Array, column: Column) -> list[Any]:
    """Return the values of an Arrow array of the column's type as the file holds them."""
    kind = column.kind
    if kind == "BOOLEAN":
        array = array.cast(pa.int8())
    elif kind == "TIMESTAMP":
        # Instants stay integers: a datetime is slower, and has a smaller range.
        array = array.view(pa.int64())
    elif kind == "DATE":
        array = array.view(pa.int32())
    values: list[Any] = array.to_pylist()
    if kind == "DOUBLE" and any(value is not None and math.isnan(value) for value in values):
        return [NAN if value is not None and math.isnan(value) else value for value in values]
    if kind == "DECIMAL":
        return [None if value is None else format(value, "f") for value in values]
    return values


def restored(values: Sequence[Any], column: Column) -> pa.Array:
    """Return the Arrow array of stored values. Raises ValueError or TypeError for those of another
    type.
    """
    kind = column.kind
    if kind == "BOOLEAN":
        return pa.array([None if value is None else bool(value) for value in values], pa.bool_())
    if kind == "DOUBLE":
        return pa.array([math.nan if value == NAN else value for value in values], pa.float64())
    if kind == "TIMESTAMP":
        return pa.array(values, pa.int64()).view(column.arrow)
    if kind == "DATE":
        return pa.array(values, pa.int32()).view(column.arrow)
    if kind == "DECIMAL":
        numbers = [None if value is None else Decimal(value) for value in values]
        return pa.array(numbers, column.arrow)
    return pa.array(values, column.arrow)


def _timestamp(name: str) -> str:
    # SQLite's % keeps the sign; instants before 1970 need a positive remainder.
    micros = f"(({name} % 1000000) + 1000000) % 1000000"
    seconds = f"strftime('%Y-%m-%d %H:%M:%S', ({name} - {micros}) / 1000000, 'unixepoch')"
    return f"{seconds} || printf('.%06d', {micros})"


_SQL_EXPRESSIONS: dict[str, Callable[[str], str]] = {
    "DECIMAL": lambda name: f"CAST({name} AS REAL)",
    "TIMESTAMP": lambda name: f"CASE WHEN {name} IS NOT NULL THEN {_timestamp(name)} END",
    "DATE": lambda name: f"date({name} * 86400, 'unixepoch')",
}


def sql_expression(name: str, column: Column) -> str:
    """Return the SQL expression through which a query reads the stored column of that name."""
    return _SQL_EXPRESSIONS[column.kind](name) if column.kind in _SQL_EXPRESSIONS else name


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
