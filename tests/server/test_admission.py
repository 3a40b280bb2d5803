"""Too much at once: every call is answered, or refused with a reason and a time to come back."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from queue import Queue
from typing import Any

import grpc
import pytest
from google.rpc import status_pb2

from psoup.v1 import psoup_pb2 as pb
from psoup.v1.psoup_pb2_grpc import PsoupStub
from tests.server.conftest import Start
from tests.support.server.process import ServerProcess, detail

pytestmark = pytest.mark.process

QUERY = "SELECT v FROM s RANGE 1 HOUR"


Call = Callable[[Any], Awaitable[Any]]


def at_once(server: ServerProcess, count: int, call: Call) -> Counter[str]:
    """How many of so many calls in one moment were answered, or refused with which reason."""

    async def one(stub: Any) -> str:
        try:
            await call(stub)
        except grpc.aio.AioRpcError as error:
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED, error
            detail = pb.ErrorDetail()
            trailers: Any = error.trailing_metadata()
            trailer = trailers["grpc-status-details-bin"]
            assert _unpack(trailer, detail)
            assert detail.retry_after.seconds >= 1 and detail.store_id
            return detail.reason
        return "answered"

    async def every() -> Counter[str]:
        async with grpc.aio.insecure_channel(server.address) as channel:
            stub = PsoupStub(channel)
            return Counter(await asyncio.gather(*(one(stub) for _ in range(count))))

    return asyncio.run(every())


def _unpack(trailer: bytes, into: pb.ErrorDetail) -> bool:
    return bool(status_pb2.Status.FromString(trailer).details[0].Unpack(into))


async def status(stub: Any) -> None:
    await stub.Status(pb.StatusRequest())


def test_thousands_of_calls_at_once(server: ServerProcess) -> None:
    outcomes = at_once(server, 3000, status)
    assert set(outcomes) <= {"answered", "OVERLOADED"}
    assert outcomes["answered"] > 0


def test_calls_beyond_the_limit_are_refused_and_later_ones_taken(start: Start) -> None:
    server = start("--calls", "3")
    for _ in range(3):
        never: Queue[pb.PublishRequest | None] = Queue()
        open_calls = []
        # Calls of the round before may still count, so one opened here may be refused: open more.
        while _takes_one_more(server):
            open_calls.append(server.stub.PublishStream(iter(never.get, None)))
            time.sleep(0.01)
        for call in open_calls:
            call.cancel()
            never.put(None)
        while not _takes_one_more(server):
            time.sleep(0.01)


def _takes_one_more(server: ServerProcess) -> bool:
    """Tells whether the server takes one more call now."""
    try:
        server.stub.Status(pb.StatusRequest())
    except grpc.RpcError as error:
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert detail(error).reason == "OVERLOADED"
        return False
    return True


def test_a_watch_too_many_waits_for_one_to_end(start: Start) -> None:
    server = start("--watches", "2")
    server.define("CREATE STREAM s (v TEXT)")
    handle = server.register(QUERY).handle
    request = pb.WatchRequest(sync=pb.SyncRequest(items=[pb.SyncItem(handle=handle)]))

    first, second = server.stub.Watch(request), server.stub.Watch(request)
    for watch in (first, second):
        next(watch)
    with pytest.raises(grpc.RpcError) as refused:
        next(server.stub.Watch(request))
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert detail(refused.value).reason == "OVERLOADED"
    assert detail(refused.value).retry_after.seconds >= 1
    # Calls that are no watches have room of their own.
    server.stub.Status(pb.StatusRequest())

    first.cancel()
    assert next(_taken(server, request)) is not None
    second.cancel()


def _taken(server: ServerProcess, request: pb.WatchRequest) -> Any:
    """A watch, once the server has seen that another has ended."""
    while True:
        watch = server.stub.Watch(request)
        try:
            first = next(watch)
        except grpc.RpcError as error:
            assert detail(error).reason == "OVERLOADED"
            continue
        yield first
        watch.cancel()
        return
