"""An idle server polls rarely, and shows a publish through another server as soon as one asks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest

from psoup.server import follower
from psoup.server.core import Core
from psoup.server.main import Server
from psoup.server.settings import Settings
from psoup.v1 import psoup_pb2 as pb
from psoup.v1.psoup_pb2_grpc import PsoupStub
from tests.support.server.process import ipc

pytestmark = pytest.mark.process
SQL = "CREATE STREAM s (a BIGINT)"


@asynccontextmanager
async def serving(path: Path) -> AsyncIterator[tuple[Core, Any]]:
    server = Server(Settings(path / "store", durability="none", drain=0.1))
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            yield server.core, PsoupStub(channel)
    finally:
        await server.stop()


async def publish(stub: Any, *values: int) -> None:
    table = pa.table({"a": pa.array(values, pa.int64())})
    await stub.Publish(pb.PublishRequest(stream="s", arrow=ipc(table)))


async def count(stub: Any, handle: bytes) -> int:
    header, *_ = [part async for part in stub.Invoke(pb.InvokeRequest(handle=handle))]
    return int(header.header.row_count)


@pytest.fixture
def always_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polls are so far apart that only calls make a server look."""
    monkeypatch.setattr(follower, "_IDLE_AFTER_SECONDS", 0.0)
    monkeypatch.setattr(follower, "_IDLE_POLL_SECONDS", 3600.0)


@pytest.mark.usefixtures("always_idle")
def test_a_call_shows_what_another_server_has_published(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as (core, stub), serving(tmp_path) as (_, rival):
            await stub.Define(pb.DefineRequest(sql=SQL))
            handle = (await stub.Register(pb.RegisterRequest(sql="SELECT a FROM s"))).handle
            for number in range(1, 20):
                await publish(rival, number)
                assert await count(stub, handle) == number
            # No poll has shown these: once the last call has ended, nothing is applied without one.
            await asyncio.sleep(0.3)
            version = core.follower.version
            await publish(rival, 20)
            await asyncio.sleep(0.1)
            assert core.follower.version == version
            await rival.Unregister(pb.UnregisterRequest(handle=handle))
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await count(stub, handle)
            assert refused.value.code() is grpc.StatusCode.NOT_FOUND

    asyncio.run(test())


@pytest.mark.usefixtures("always_idle")
def test_polls_go_on_while_a_call_is_under_way(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as (core, stub), serving(tmp_path) as (_, rival):
            await stub.Define(pb.DefineRequest(sql=SQL))
            handle = (await stub.Register(pb.RegisterRequest(sql="SELECT a FROM s"))).handle
            item = pb.SyncItem(handle=handle)
            watch = stub.Watch(pb.WatchRequest(sync=pb.SyncRequest(items=[item])))
            reader = asyncio.ensure_future(_until_rows(watch))
            await asyncio.sleep(0.2)
            await publish(rival, 1)
            assert await asyncio.wait_for(reader, 60) == 1
            watch.cancel()

    asyncio.run(test())


async def _until_rows(watch: Any) -> int:
    """Return how many rows the first part with rows has."""
    async for part in watch:
        if rows := len(part.rows.rows):
            return rows
    raise AssertionError("the watch ended")


def test_an_idle_server_polls_rarely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And applies what another server publishes without a call."""
    monkeypatch.setattr(follower, "_IDLE_AFTER_SECONDS", 0.2)
    looks = 0

    async def test() -> None:
        nonlocal looks
        async with serving(tmp_path) as (core, stub), serving(tmp_path) as (_, rival):
            await stub.Define(pb.DefineRequest(sql=SQL))
            look = core.follower._look

            async def counted(thorough: bool) -> bool:
                nonlocal looks
                looks += 1
                return await look(thorough)

            monkeypatch.setattr(core.follower, "_look", counted)
            await asyncio.sleep(0.5)
            looks = 0
            await asyncio.sleep(1.0)
            # At intervals of 5 ms there would be 200; a slow machine makes fewer, never more.
            assert looks <= 15
            version = core.follower.version
            await publish(rival, 1)
            for _ in range(1000):
                if core.follower.version > version:
                    return
                await asyncio.sleep(0.02)
            raise AssertionError("the commit was never applied")

    asyncio.run(test())
