"""The rows of an answer as SQL, with own rows among those of the copy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

from client_sdk._wire.values import Column
from client_sdk.copies._file import sqlite, tables
from client_sdk.copies._file.records import Version

if TYPE_CHECKING:
    from client_sdk.copies._overlay.overlaid import Overlay

# Added to the ids of own rows in the order of an answer, where they are the last of equal rows.
LAST_ROWS = 1 << 62
# The column that says which rows are own edits.
PENDING = Column("_pending", "TEXT")
_NUMBERS = count(1)


@dataclass(frozen=True, slots=True)
class Source:
    """The rows of an answer at `now` as SQL: what follows FROM, the order, and the expressions of a
    row's id, which puts own rows last, and of its status.

    `statuses` are those of own rows, by that id.
    """

    rows: str
    order: str
    now: int | None
    row_id: str = "row_id"
    pending: str = "NULL"
    statuses: Mapping[int, str] = field(default_factory=dict)


@contextmanager
def overlaid(
    connection: sqlite.Connection, version: Version, visible: str, overlay: Overlay
) -> Iterator[Source]:
    """Yield the rows of a copy with own ones; `visible` is the condition on the copy's rows."""
    names = [*tables.HEAD_NAMES, *tables.value_names(version.shape.stored)]
    columns = ", ".join([*names, "pending"])
    hidden = ((row_id,) for row_id in overlay.hidden)
    added = ((*row, status) for row, status in overlay.added)
    with (
        temporary(connection, "row_id INTEGER PRIMARY KEY", hidden) as hidden_ids,
        temporary(connection, columns, added) as own_table,
    ):
        listed = ", ".join(names)
        rows = (
            f"SELECT {listed}, NULL AS pending, row_id AS place FROM main.{version.table} "
            f"WHERE {visible} AND row_id NOT IN (SELECT row_id FROM {hidden_ids}) "
            f"UNION ALL SELECT {columns}, row_id + {LAST_ROWS} FROM {own_table}"
        )
        statuses = {row[0] + LAST_ROWS: status for row, status in overlay.added}
        yield Source(
            f"({_newest(rows, overlay)})",
            "sort_key, visible_from, place",
            overlay.now,
            "place",
            "pending",
            statuses,
        )


def _newest(rows: str, overlay: Overlay) -> str:
    """Return the rows of a window that counts them: the newest ones."""
    windowing = overlay.copy.query.windowing
    if windowing.rows is None:
        return rows
    partitions = ", ".join(f"c{place}" for place in windowing.partition_places)
    by = f"PARTITION BY {partitions} " if partitions else ""
    ranked = f"SELECT *, row_number() OVER ({by}ORDER BY visible_from DESC, place DESC) AS rank"
    return f"SELECT * FROM ({ranked} FROM ({rows})) WHERE rank <= {windowing.rows}"


@contextmanager
def temporary(
    connection: sqlite.Connection, columns: str, rows: Iterable[Sequence[Any]]
) -> Iterator[str]:
    """Yield the name of a temporary table with these rows."""
    # Each has a name of its own, since a program may read a copy while it reads another.
    table = f"temp._psoup_own_{next(_NUMBERS)}"
    connection.execute(f"CREATE TABLE {table} ({columns})")
    try:
        places = ", ".join("?" * len(columns.split(",")))
        connection.executemany(f"INSERT INTO {table} VALUES ({places})", rows)
        yield table
    finally:
        try:
            connection.execute(f"DROP TABLE {table}")
        except sqlite.OperationalError:
            # SQLite drops no table while the program reads another answer on this connection.
            connection.execute(f"DELETE FROM {table}")
