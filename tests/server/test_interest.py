"""Questions past the windows of registrations: answered at once, and told to the engine."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from datastem.instants import DAY, HOUR, MINUTE, SECOND
from datastem.schema import Column, StreamSchema
from datastem.types import BIGINT
from psoup.errors import NotReached
from psoup.server.calls.invoke import ask, invoke
from psoup.server.calls.publish import publish
from psoup.server.calls.register import register
from psoup.server.calls.sync import sync
from psoup.server.core import Core
from psoup.server.settings import Settings
from psoup.server.wire.values import from_instant
from psoup.store import Interest, Store
from psoup.v1 import psoup_pb2 as pb
from psoup.write.streams import Define
from tests.support.server.callers import new_call
from tests.support.server.epochs import HandMadeEngine
from tests.support.server.process import received, rows_of

START = 1_700_000_000 * SECOND
SQL = "SELECT a FROM s WHERE a >= 0 RANGE 10 MINUTES"


async def send(core: Core, number: int) -> None:
    rows = rows_of(["a"], [pb.Value(bigint=number)])
    await publish(core, new_call(), pb.PublishRequest(stream="s", rows=rows))


class World:
    """A row a minute for an hour, then a query, and an engine that has matched nothing before
    it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = START
        self.handle = b""

    @contextlib.asynccontextmanager
    async def server(self) -> AsyncIterator[Core]:
        """A server that remembers nothing."""
        path = self.folder / "store"
        store = Store.open(path, create=True, sync=False)
        core = Core(store, Settings(path, wait=0.2), lambda: self.clock)
        await core.start()
        try:
            yield core
        finally:
            await core.stop()

    async def begin(self) -> None:
        async with self.server() as core:
            engine = HandMadeEngine(core.store)
            schema = StreamSchema("s", (Column("a", BIGINT),))
            await core.appender.submit(Define("main", "main", schema))
            for number in range(60):
                self.clock += MINUTE
                await send(core, number)
            engine.step()
            self.handle = (await register(core, new_call(), pb.RegisterRequest(sql=SQL)))[
                0
            ].handles[0]
            engine.step()

    async def publish(self, number: int) -> None:
        async with self.server() as core:
            await send(core, number)

    async def count(self, **fields: Any) -> int:
        """How many rows a fresh server answers with."""
        async with self.server() as core:
            request = pb.InvokeRequest(handle=self.handle, **fields)
            header, *_ = await received(invoke(core, new_call(), request))
        return int(header.header.row_count)

    async def told(self) -> list[Interest]:
        """The interest events that came since the last call."""
        async with self.server() as core:
            log = core.store.log
            versions = range(1, log.latest_version() + 1)
            entries = [entry for version in versions for entry in log.read(version)]
        events = [entry.event for entry in entries if isinstance(entry.event, Interest)]
        new, self.seen = events[self.seen :], len(events)
        return new

    seen = 0


@pytest.fixture
async def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    await world.begin()
    return world


async def test_its_own_window_is_no_news(world: World) -> None:
    assert await world.count() == 10
    assert await world.count(window="RANGE 5 MINUTES") == 5
    assert await world.told() == []


async def test_a_longer_window_is_told_once_an_hour_unless_it_reaches_further(world: World) -> None:
    assert await world.count(window="RANGE 30 MINUTES") == 30
    (event,) = await world.told()
    assert event.since is not None
    assert world.clock - 32 * MINUTE <= event.since <= world.clock - 30 * MINUTE
    world.clock += 20 * MINUTE
    assert await world.count(window="RANGE 30 MINUTES") == 10
    assert await world.count(window="RANGE 45 MINUTES") == 25
    assert await world.told() == []
    assert await world.count(window="RANGE 75 MINUTES") == 55
    assert len(await world.told()) == 1
    assert await world.count(window="ROWS 7") == 7
    assert [interest.since for interest in await world.told()] == [None]
    assert await world.count(window="ROWS 8") == 8
    assert await world.told() == []
    world.clock += DAY + HOUR
    await world.publish(60)
    assert await world.count(window="ROWS 8") == 8
    assert [interest.since for interest in await world.told()] == [None], "the other one is over"


async def test_an_instant_long_ago_is_told(world: World) -> None:
    then = from_instant(world.clock - 40 * MINUTE)
    assert await world.count(as_of=then, knowledge=pb.KNOWLEDGE_TODAY) == 10
    (event,) = await world.told()
    assert event.since is not None and event.since <= world.clock - 49 * MINUTE


async def test_a_text_with_a_registered_predicate_is_told_others_are_not(world: World) -> None:
    async with world.server() as core:
        for sql in ("SELECT a FROM s WHERE a > 3", "SELECT a + 1 AS b FROM s WHERE a >= 0"):
            await received(ask(core, new_call(), pb.AskRequest(sql=sql)))
    assert len(await world.told()) == 1


async def test_a_copy_with_a_longer_window_is_told(world: World) -> None:
    async with world.server() as core:
        item = pb.SyncItem(handle=world.handle, window="RANGE 30 MINUTES")
        parts = [part async for part in sync(core, new_call(), pb.SyncRequest(items=[item]))]
    assert parts[-1].end.row_count == 30
    assert len(await world.told()) == 1


async def test_who_waits_for_the_engine_past_the_interest_has_it_told(world: World) -> None:
    with pytest.raises(NotReached):
        await world.count(window="RANGE 50 MINUTES", wait_for_engine=True)
    assert len(await world.told()) == 1
