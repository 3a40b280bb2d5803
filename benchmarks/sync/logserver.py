"""`python -m benchmarks.sync.logserver FOLDER` serves logs of clients: a name and an offset in, the
rest of the log out."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import grpc.aio

from benchmarks.sync.clientlog import METHOD, NUMBER, PIECE, packed


async def serve(folder: Path) -> None:
    async def read(request: bytes, _context: object) -> AsyncIterator[bytes]:
        name, offset = json.loads(request)
        with (folder / name).open("rb") as file:
            file.seek(offset)
            content = file.read()
        whole = (offset + len(content)).to_bytes(NUMBER, "big") + packed(content)
        for start in range(0, len(whole), PIECE):
            yield whole[start : start + PIECE]

    server = grpc.aio.server()
    service, method = METHOD[1:].split("/")
    handler = grpc.unary_stream_rpc_method_handler(read)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(service, {method: handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
