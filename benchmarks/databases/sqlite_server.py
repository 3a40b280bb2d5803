"""SQLite behind a bare gRPC server: what a program answers that keeps its rows in an indexed file.

`python -m benchmarks.databases.sqlite_server FILE` serves one method. It takes a JSON list, a
statement and its arguments, and sends the rows in messages of about a megabyte: eight bytes for
each number.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import struct
import sys
from collections.abc import AsyncIterator, Sequence
from itertools import chain
from pathlib import Path

import pyarrow as pa

from benchmarks.baseline import serve

METHOD = "/psoup.benchmark.Sqlite/Rows"
_MESSAGE_ROWS = 1 << 15


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


def main() -> None:
    connection = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
    connection.execute("PRAGMA mmap_size = 1073741824")

    async def answer(request: bytes, _context: object) -> AsyncIterator[bytes]:
        sql, *arguments = json.loads(request)
        rows = connection.execute(sql, arguments)
        while True:
            batch = rows.fetchmany(_MESSAGE_ROWS)
            # Numbers of eight bytes, row by row: q for integers, d for floats.
            kinds = "".join(
                "d" if isinstance(value, float) else "q" for value in (batch or [()])[0]
            )
            yield struct.pack("<" + kinds * len(batch), *chain.from_iterable(batch))
            if len(batch) < _MESSAGE_ROWS:
                return

    asyncio.run(serve(METHOD, answer))


if __name__ == "__main__":
    main()
