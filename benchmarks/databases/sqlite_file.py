"""A file of SQLite with rows and indexes, and the method that answers from it."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

METHOD = "/psoup.benchmark.Sqlite/Rows"


def fill(path: Path, table: pa.Table, indexes: Sequence[str]) -> None:
    """Make a file with a table `traffic`, of numbers only, and its indexes."""
    columns = [
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        for column in table.columns
    ]
    with sqlite3.connect(path) as connection:
        names = ", ".join(f'"{name}"' for name in table.schema.names)
        connection.execute(f"CREATE TABLE traffic ({names})")
        marks = ", ".join("?" * len(columns))
        rows = zip(*(column.to_pylist() for column in columns), strict=True)
        connection.executemany(f"INSERT INTO traffic VALUES ({marks})", rows)
        for index, on in enumerate(indexes):
            connection.execute(f"CREATE INDEX i{index} ON traffic ({on})")
        connection.execute("ANALYZE")
    connection.close()
