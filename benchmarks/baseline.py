"""A bare grpc.aio server, in a process of its own: the least any answer over gRPC costs.

`python -m benchmarks.baseline` serves one method: it takes a total and a limit, and streams total
bytes in messages of at most limit bytes, or one empty message for none.
"""

from __future__ import annotations

import asyncio
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

import grpc
import grpc.aio

METHOD = "/psoup.benchmark.Baseline/Stream"
_REQUEST = struct.Struct("<qq")


async def _stream(request: bytes, _context: object) -> AsyncIterator[bytes]:
    total, most = _REQUEST.unpack(request)
    yield bytes(min(total, most))
    for start in range(most, total, most):
        yield bytes(min(most, total - start))


async def serve(path: str, stream: Callable[[bytes, object], AsyncIterator[bytes]]) -> None:
    """Serve one streaming method, and print the port."""
    server = grpc.aio.server()
    service, method = path[1:].split("/")
    handler = grpc.unary_stream_rpc_method_handler(stream)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(service, {method: handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


@contextmanager
def served(module: str, *arguments: str) -> Iterator[str]:
    """Run a module that calls `serve` as a process; yield its address."""
    with served_process(module, *arguments) as (target, _):
        yield target


@contextmanager
def served_process(module: str, *arguments: str) -> Iterator[tuple[str, int]]:
    """Run a module that calls `serve` as a process; yield its address and its process id."""
    command = [sys.executable, "-m", module, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"127.0.0.1:{process.stdout.readline().strip()}", process.pid
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


@contextmanager
def bare_server() -> Iterator[BareCall]:
    """Start the server; yield a call to it."""
    with served("benchmarks.baseline") as target, grpc.insecure_channel(target) as channel:
        yield BareCall(channel)


class BareCall:
    def __init__(self, channel: grpc.Channel) -> None:
        self._call = channel.unary_stream(METHOD, None, None)

    def __call__(self, total: int = 0, most: int = 1 << 20) -> int:
        """Return how many bytes were received."""
        return sum(map(len, self._call(request(total, most))))


def request(total: int, most: int) -> bytes:
    """Return the request for `total` bytes in messages of at most `most` bytes."""
    return _REQUEST.pack(total, most)


if __name__ == "__main__":
    asyncio.run(serve(METHOD, _stream))
