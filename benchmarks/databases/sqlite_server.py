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
from collections.abc import AsyncIterator
from itertools import chain

from benchmarks.baseline import serve
from benchmarks.databases.sqlite_file import METHOD

_MESSAGE_ROWS = 1 << 15


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
