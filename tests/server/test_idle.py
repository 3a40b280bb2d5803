"""An idle server polls rarely, and shows a publish through another server as soon as one asks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest

from psoup.answers.replicas.replica import read_commit
from psoup.server import follower
from psoup.server.core import Core
from psoup.server.main import Server
from psoup.server.settings import Settings
from psoup.store.delta import arrivals, commits, durable
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
    """Arrivals are not reported, and polls are so far apart that only calls make a server look."""
    monkeypatch.setattr(arrivals, "is_local", lambda folder: False)
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


@pytest.mark.parametrize("kind", ["local", "remote"])
def test_an_idle_server_looks_rarely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """And applies what another server publishes without a call."""
    monkeypatch.setattr(follower, "_IDLE_AFTER_SECONDS", 0.2)
    if kind == "remote":
        monkeypatch.setattr(arrivals, "is_local", lambda folder: False)
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
            assert looks <= (15 if kind == "remote" else 3)
            version = core.follower.version
            await publish(rival, 1)
            for _ in range(1000):
                if core.follower.version > version:
                    return
                await asyncio.sleep(0.02)
            raise AssertionError("the commit was never applied")

    asyncio.run(test())


def test_an_arrival_makes_a_server_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while a watch is open, there is no look without one."""
    monkeypatch.setattr(follower, "_POLLS_PER_THOROUGH_LOOK", 1_000_000)
    looks = 0

    async def test() -> None:
        nonlocal looks
        async with serving(tmp_path) as (core, stub), serving(tmp_path) as (_, rival):
            await stub.Define(pb.DefineRequest(sql=SQL))
            handle = (await stub.Register(pb.RegisterRequest(sql="SELECT a FROM s"))).handle
            sync = pb.SyncRequest(items=[pb.SyncItem(handle=handle)])
            watch = stub.Watch(pb.WatchRequest(sync=sync))
            reader = asyncio.ensure_future(_until_rows(watch))
            await asyncio.sleep(0.2)
            look = core.follower._look

            async def counted(thorough: bool) -> bool:
                nonlocal looks
                looks += 1
                return await look(thorough)

            monkeypatch.setattr(core.follower, "_look", counted)
            await asyncio.sleep(0.2)
            assert looks == 0
            await publish(rival, 1)
            assert await asyncio.wait_for(reader, 60) == 1
            assert looks
            watch.cancel()

    asyncio.run(test())


def test_a_server_does_not_read_its_own_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They arrive in the folder before the appender has applied them."""
    read: list[int] = []

    def counted(store: Any, version: int, state: Any) -> Any:
        read.append(version)
        return read_commit(store, version, state)

    def slow(*arguments: Any, **named: Any) -> None:
        durable.put_if_absent(*arguments, **named)
        # As long as the sync of the folder may take, after the file is visible.
        time.sleep(0.002)

    monkeypatch.setattr(follower, "read_commit", counted)
    monkeypatch.setattr(commits, "put_if_absent", slow)

    async def test() -> None:
        async with serving(tmp_path) as (_, stub):
            await stub.Define(pb.DefineRequest(sql=SQL))
            read.clear()
            for number in range(20):
                await asyncio.sleep(0.01)
                await publish(stub, number)
            # A busy machine may delay the appender so long that a look comes first.
            assert len(read) <= 10, read

    asyncio.run(test())


@pytest.mark.parametrize("kind", ["local", "remote"])
def test_a_cancelled_look_out_ends_whatever_comes_at_that_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A stopping server appends until the last, so a commit often arrives as it is cancelled."""
    monkeypatch.setattr(follower, "_IDLE_AFTER_SECONDS", 0.0)
    if kind == "remote":
        monkeypatch.setattr(arrivals, "is_local", lambda folder: False)

    async def test() -> None:
        async with serving(tmp_path) as (core, _):
            for turns in range(8):
                running = asyncio.create_task(core.follower._pause(time.monotonic() + 3600.0))
                await asyncio.sleep(0.01)
                core.follower._arrived.set()
                core.follower._called.set()
                for _ in range(turns):
                    await asyncio.sleep(0)
                if not running.done():
                    running.cancel()
                    await asyncio.wait([running], timeout=240)
                    assert running.cancelled()

    asyncio.run(test())
