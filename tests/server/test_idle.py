"""An idle server polls rarely, and shows a publish through another server as soon as one asks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Pair:
    """Two servers of one store that has a stream, and a query that is registered."""

    core: Core
    stub: Any
    rival: Any
    handle: bytes

    def watch(self) -> Any:
        sync = pb.SyncRequest(items=[pb.SyncItem(handle=self.handle)])
        return self.stub.Watch(pb.WatchRequest(sync=sync))

    def record_looks(self, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
        """Return a list to which every look of the first server is appended."""
        looks, look = list[bool](), self.core.follower._look

        async def recorded(thorough: bool) -> bool:
            looks.append(thorough)
            return await look(thorough)

        monkeypatch.setattr(self.core.follower, "_look", recorded)
        return looks


@asynccontextmanager
async def serving_twice(path: Path) -> AsyncIterator[Pair]:
    async with serving(path) as (core, stub), serving(path) as (_, rival):
        await stub.Define(pb.DefineRequest(sql=SQL))
        registered = await stub.Register(pb.RegisterRequest(sql="SELECT a FROM s"))
        yield Pair(core, stub, rival, registered.handle)


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
async def test_a_call_shows_what_another_server_has_published(tmp_path: Path) -> None:
    async with serving_twice(tmp_path) as pair:
        for number in range(1, 20):
            await publish(pair.rival, number)
            assert await count(pair.stub, pair.handle) == number
        # No poll has shown these: once the last call has ended, nothing is applied without one.
        await asyncio.sleep(0.3)
        version = pair.core.follower.version
        await publish(pair.rival, 20)
        await asyncio.sleep(0.1)
        assert pair.core.follower.version == version
        await pair.rival.Unregister(pb.UnregisterRequest(handle=pair.handle))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await count(pair.stub, pair.handle)
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND


@pytest.mark.usefixtures("always_idle")
async def test_polls_go_on_while_a_call_is_under_way(tmp_path: Path) -> None:
    async with serving_twice(tmp_path) as pair:
        watch = pair.watch()
        reader = asyncio.ensure_future(_until_rows(watch))
        await asyncio.sleep(0.2)
        await publish(pair.rival, 1)
        assert await asyncio.wait_for(reader, 60) == 1
        watch.cancel()


async def _until_rows(watch: Any) -> int:
    """Return how many rows the first part with rows has."""
    async for part in watch:
        if rows := len(part.rows.rows):
            return rows
    raise AssertionError("the watch ended")


@pytest.mark.parametrize("kind", ["local", "remote"])
async def test_an_idle_server_looks_rarely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """And applies what another server publishes without a call."""
    monkeypatch.setattr(follower, "_IDLE_AFTER_SECONDS", 0.2)
    if kind == "remote":
        monkeypatch.setattr(arrivals, "is_local", lambda folder: False)
    async with serving_twice(tmp_path) as pair:
        looks = pair.record_looks(monkeypatch)
        await asyncio.sleep(0.5)
        looks.clear()
        await asyncio.sleep(1.0)
        # At intervals of 5 ms there would be 200; a slow machine makes fewer, never more.
        assert len(looks) <= (15 if kind == "remote" else 3)
        version = pair.core.follower.version
        await publish(pair.rival, 1)
        for _ in range(1000):
            if pair.core.follower.version > version:
                return
            await asyncio.sleep(0.02)
        raise AssertionError("the commit was never applied")


async def test_an_arrival_makes_a_server_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while a watch is open, there is no look without one."""
    monkeypatch.setattr(follower, "_POLLS_PER_THOROUGH_LOOK", 1_000_000)
    async with serving_twice(tmp_path) as pair:
        watch = pair.watch()
        reader = asyncio.ensure_future(_until_rows(watch))
        await asyncio.sleep(0.2)
        looks = pair.record_looks(monkeypatch)
        await asyncio.sleep(0.2)
        assert not looks
        await publish(pair.rival, 1)
        assert await asyncio.wait_for(reader, 60) == 1
        assert looks
        watch.cancel()


async def test_a_server_does_not_read_its_own_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They arrive in the folder before the appender has applied them."""
    versions: list[int] = []

    def recorded(store: Any, version: int, state: Any) -> Any:
        versions.append(version)
        return read_commit(store, version, state)

    def slow(*arguments: Any, **named: Any) -> None:
        durable.put_if_absent(*arguments, **named)
        # As long as the sync of the folder may take, after the file is visible.
        time.sleep(0.002)

    monkeypatch.setattr(follower, "read_commit", recorded)
    monkeypatch.setattr(commits, "put_if_absent", slow)
    async with serving(tmp_path) as (_, stub):
        await stub.Define(pb.DefineRequest(sql=SQL))
        versions.clear()
        for number in range(20):
            await asyncio.sleep(0.01)
            await publish(stub, number)
        # A busy machine may delay the appender so long that a look comes first.
        assert len(versions) <= 10, versions


@pytest.mark.parametrize("kind", ["local", "remote"])
async def test_a_cancelled_look_out_ends_whatever_comes_at_that_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A stopping server appends until the last, so a commit often arrives as it is cancelled."""
    monkeypatch.setattr(follower, "_IDLE_AFTER_SECONDS", 0.0)
    if kind == "remote":
        monkeypatch.setattr(arrivals, "is_local", lambda folder: False)
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
