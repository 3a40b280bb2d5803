"""`python -m benchmarks.sync.logserver FOLDER` serves logs of clients: a name and an offset in, the
rest of the log out."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from benchmarks.baseline import serve
from benchmarks.sync.clientlog import METHOD, NUMBER, PIECE, packed


async def _read(request: bytes, _context: object) -> AsyncIterator[bytes]:
    name, offset = json.loads(request)
    with (Path(sys.argv[1]) / name).open("rb") as file:
        file.seek(offset)
        content = file.read()
    whole = (offset + len(content)).to_bytes(NUMBER, "big") + packed(content)
    for start in range(0, len(whole), PIECE):
        yield whole[start : start + PIECE]


if __name__ == "__main__":
    asyncio.run(serve(METHOD, _read))
