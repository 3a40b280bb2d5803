"""A bare grpc.aio server, in a process of its own: the least any answer over gRPC costs.

`python -m benchmarks.baseline` serves one method that takes an empty message, streams one empty
message and ends.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import grpc
import grpc.aio

METHOD = "/psoup.benchmark.Baseline/Stream"


async def _stream(_request: bytes, _context: object) -> AsyncIterator[bytes]:
    yield b""


async def serve() -> None:
    server = grpc.aio.server()
    service, method = METHOD[1:].split("/")
    handler = grpc.unary_stream_rpc_method_handler(_stream)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(service, {method: handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


@contextmanager
def empty_call() -> Iterator[EmptyCall]:
    """Starts the server; the call is to it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.baseline"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        with grpc.insecure_channel(f"127.0.0.1:{process.stdout.readline().strip()}") as channel:
            yield EmptyCall(channel)
    finally:
        process.terminate()
        process.wait()


class EmptyCall:
    def __init__(self, channel: grpc.Channel) -> None:
        self._call = channel.unary_stream(METHOD, None, None)

    def __call__(self) -> None:
        for _ in self._call(b""):
            pass


if __name__ == "__main__":
    asyncio.run(serve())
