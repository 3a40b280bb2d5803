"""A flood beside a quiet tenant, over real gRPC: every call is answered, exactly, and nothing of
any of them is left behind, whoever goes away in the midst of it. No time is measured."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest

from psoup.server.main import Server
from psoup.v1 import psoup_pb2 as pb
from tests.support.server.callers import NamedCaller, open_server
from tests.support.server.process import ipc

BATCH, BATCHES, CALLERS = 2_000, 6, 16


@pytest.fixture
async def failures() -> AsyncIterator[list[str]]:
    """What the event loop was told of and nobody heard."""
    messages: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: messages.append(str(context)))
    yield messages
    loop.set_exception_handler(None)


def of(stub: Any, tenant: str) -> NamedCaller:
    return NamedCaller(stub, tenant, "one", ("developer",))


def batch(first: int) -> pb.PublishRequest:
    return pb.PublishRequest(stream="s", arrow=ipc(pa.table({"a": range(first, first + BATCH)})))


async def nothing_left(server: Server) -> None:
    for _ in range(2_000):
        if not server.core.precedence.weight and not server.core.room.used:
            return
        await asyncio.sleep(0.005)
    raise AssertionError((server.core.precedence.weight, server.core.room.used))


async def test_all_are_answered(tmp_path: Path, failures: list[str]) -> None:
    async with open_server(tmp_path / "store") as (server, stub):
        flood, quiet = of(stub, "flood"), of(stub, "quiet")
        for crowd in (flood, quiet):
            await crowd.define("CREATE STREAM s (a BIGINT)")
        handle = await quiet.register("SELECT a FROM s")

        async def publish(number: int) -> None:
            for turn in range(BATCHES):
                await flood.call("Publish", batch((number * BATCHES + turn) * BATCH))

        async def publish_stream(number: int) -> None:
            sent = (batch((number * BATCHES + turn) * BATCH) for turn in range(BATCHES))
            call = flood.stub.PublishStream(sent, metadata=flood.metadata, timeout=240)
            assert len([response async for response in call]) == BATCHES

        async def ask() -> None:
            for turn in range(BATCHES):
                sql = f"SELECT count(*) AS n FROM s WHERE a % {turn + 2} = 1 AND a < {BATCH}"
                assert await flood.ask(sql) in ([0], [len(range(1, BATCH, turn + 2))])

        async def call_quietly() -> None:
            for number in range(30):
                await quiet.publish("s", a=[number])
                _, rows = await quiet.invoke(handle)
                assert rows == list(range(number + 1))

        await asyncio.gather(
            *(publish(number) for number in range(CALLERS)),
            *(publish_stream(number) for number in range(CALLERS, CALLERS + 4)),
            *(ask() for _ in range(8)),
            call_quietly(),
        )
        total = (CALLERS + 4) * BATCHES * BATCH
        counted = await flood.ask("SELECT count(*) AS n, min(a) AS l, max(a) AS m FROM s")
        assert counted == [(total, 0, total - 1)]
        await nothing_left(server)
    assert not failures


async def test_who_goes_away_leaves_nothing(tmp_path: Path, failures: list[str]) -> None:
    async with open_server(tmp_path / "store") as (server, stub):
        flood, quiet = of(stub, "flood"), of(stub, "quiet")
        for crowd in (flood, quiet):
            await crowd.define("CREATE STREAM s (a BIGINT)")
        stop = asyncio.Event()

        async def call_quietly() -> None:
            while not stop.is_set():
                await quiet.publish("s", a=[1])

        async def go_away(call: Any) -> None:
            await asyncio.sleep(0.2)
            call.cancel()
            with pytest.raises((asyncio.CancelledError, grpc.aio.AioRpcError)):
                await call.wait_for_connection()
                while True:
                    await call.read()

        def endless() -> Any:
            first = 0
            while True:
                yield batch(first)
                first += BATCH

        background = asyncio.create_task(call_quietly())
        for _ in range(3):
            streams = [
                flood.stub.PublishStream(endless(), metadata=flood.metadata) for _ in range(6)
            ]
            unary = [
                asyncio.create_task(flood.call("Publish", batch(number))) for number in range(20)
            ]
            await asyncio.gather(*(go_away(call) for call in streams))
            for task in unary:
                task.cancel()
            await asyncio.gather(*unary, return_exceptions=True)
        stop.set()
        await background
        await nothing_left(server)
    assert not failures
