"""A server with a meter: the processor time of its event loop, and the memory it holds.

    python -m tests.hostile.metered --store STORE --port 0 …

It is the server of `python -m psoup.server` with the same options, and one call more, `METER`,
which returns both as JSON. It never collects garbage: what only a collection frees counts as kept.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import grpc
import pyarrow as pa

from psoup.server import memory
from psoup.server.main import Server, serve
from psoup.server.options import parse_arguments
from psoup.v1 import psoup_pb2 as pb
from tests.support.server.process import ServerProcess

T = TypeVar("T")

METER = "/psoup.tests.Meter/Read"
# What an input may take of the loop's processor time, and leave in memory.
MOST_LOOP_SECONDS = 0.05
MOST_LEFT_BYTES = 1 << 20
_IDLE_SECONDS = 0.5
_ATTEMPTS = 5
# What gRPC may keep for a connection that had large messages, however many.
_CONNECTION_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Reading:
    """The processor time the loop's thread has used, without the meter's; the bytes that were
    allocated and not freed, without what allocators keep for later; and the resident bytes."""

    loop_seconds: float
    allocated_bytes: int
    resident_bytes: int


class MeteredServer(ServerProcess):
    """A server process whose meter can be read. `token` is what calls of the meter show."""

    module = "tests.hostile.metered"

    def __init__(self, store: Path, *options: str, token: str = "") -> None:
        super().__init__(store, *options)
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self._meter = self.channel.unary_unary(METER, bytes, json.loads)
        self._idle_share = self._measure_idle()

    def _measure_idle(self) -> float:
        """Return the share of its time that the loop of an idle server works."""
        before, began = self.read(), time.monotonic()
        time.sleep(_IDLE_SECONDS)
        worked = self.read().loop_seconds - before.loop_seconds
        return worked / (time.monotonic() - began)

    def read(self) -> Reading:
        return Reading(**self._meter(b"", metadata=self._metadata, timeout=240))

    @contextmanager
    def bounded(self, case: object, inputs: int = 1, kept_bytes: int = 0) -> Iterator[None]:
        """Raise AssertionError if what is sent inside takes more of the loop, or leaves more in
        memory, than so many inputs may. `kept_bytes` is what the server is asked to keep."""
        before, began = self.read(), time.monotonic()
        yield
        after = self.read()
        idle = self._idle_share * (time.monotonic() - began)
        seconds = after.loop_seconds - before.loop_seconds - idle
        nbytes = after.allocated_bytes - before.allocated_bytes
        assert seconds <= inputs * MOST_LOOP_SECONDS, (case, f"{seconds:.3f} s of the loop")
        most = inputs * MOST_LEFT_BYTES + _CONNECTION_BYTES + kept_bytes
        assert nbytes <= most, (case, f"{nbytes:,} bytes left")

    def sent(self, case: object, send: Callable[[], T], kept_bytes: int = 0) -> T:
        """Send one input and return its outcome. One that took too much is sent again, so that what
        a busy machine adds is not held against it; raise AssertionError after the fifth time."""
        for _ in range(_ATTEMPTS - 1):
            with suppress(AssertionError), self.bounded(case, kept_bytes=kept_bytes):
                return send()
        with self.bounded(case, kept_bytes=kept_bytes):
            return send()


@contextmanager
def bounded_here(case: object) -> Iterator[None]:
    """Raise AssertionError if what is done inside takes this thread longer than an input may take
    the loop."""
    began = time.thread_time()
    yield
    seconds = time.thread_time() - began
    assert seconds <= MOST_LOOP_SECONDS, (case, f"{seconds:.3f} s")


# ---- in the server's process


def _add_meter(server: Server) -> None:
    used = 0.0
    trim = memory._malloc_trim()

    async def read(request: pb.StatusRequest, context: Any) -> dict[str, float]:
        nonlocal used
        began = time.thread_time()
        reading = {"loop_seconds": began - used}
        reading["allocated_bytes"] = _allocated()
        memory._release(trim)
        reading["resident_bytes"] = memory._resident()
        used += time.thread_time() - began
        return reading

    handler = grpc.unary_unary_rpc_method_handler(read, pb.StatusRequest.FromString, _to_json)
    service, _, method = METER[1:].partition("/")
    server._grpc.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(service, {method: handler}),)
    )


class _MallocInfo(ctypes.Structure):
    """`struct mallinfo2` of the GNU C library, over all arenas."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks"),
            *("fordblks", "keepcost"),
        )
    )


_LIBRARY = ctypes.CDLL(None)
_LIBRARY.mallinfo2.restype = _MallocInfo
# What an object of Python's own allocator takes, about.
_BLOCK_BYTES = 64


def _allocated() -> int:
    """Return the bytes in use of the C library's allocator, Arrow's and Python's."""
    info = _LIBRARY.mallinfo2()
    python = sys.getallocatedblocks() * _BLOCK_BYTES
    return int(info.uordblks + info.hblkhd) + python + int(pa.total_allocated_bytes())


def _to_json(reading: dict[str, float]) -> bytes:
    return json.dumps(reading).encode()


def main() -> None:
    adapt: Callable[[Server], None] = _add_meter
    asyncio.run(serve(parse_arguments(sys.argv[1:]), adapt))


if __name__ == "__main__":
    main()
