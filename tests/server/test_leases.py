"""Leases with a clock of the test's own: what renews them, what ends them, what does not count."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.duration_pb2 import Duration

from datastem.instants import HOUR, MINUTE, SECOND
from datastem.schema import Column, StreamSchema
from datastem.types import BIGINT
from psoup.errors import BadRequest, NotReached, RegistrationExpired, UnknownHandle
from psoup.lookup import find_registration
from psoup.server.calls.invoke import invoke
from psoup.server.calls.publish import publish
from psoup.server.calls.register import register
from psoup.server.calls.sync import sync
from psoup.server.calls.watch import watch
from psoup.server.core import Core
from psoup.server.settings import Settings
from psoup.store import Expire, Renew, Store, Tick
from psoup.store.log.events import PublishersForgotten
from psoup.store.state.leases import MAX_COUNTED_GAP, MAX_EXPIRED, Expired, Leases
from psoup.v1 import psoup_pb2 as pb
from psoup.write import leases
from psoup.write.leases import TICK_INTERVAL, ExpireOne, RenewOne
from psoup.write.registrations import UnregisterOne
from psoup.write.streams import Define
from tests.oracle.copy import Copy
from tests.support.server.callers import new_call
from tests.support.server.epochs import HandMadeEngine
from tests.support.server.process import ipc, rows_of

START = 1_700_000_000 * SECOND


class World:
    """A store with one stream, and servers that share a clock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = START

    @contextlib.asynccontextmanager
    async def server(self) -> AsyncIterator[Core]:
        path = self.folder / "store"
        store = Store.open(path, create=True, sync=False)
        core = Core(store, Settings(path, wait=0.2), lambda: self.clock)
        await core.start()
        if core.follower.state.find_stream("main", "s") is None:
            schema = StreamSchema("s", (Column("a", BIGINT),))
            await core.appender.submit(Define("main", "main", schema))
        try:
            yield core
        finally:
            await core.stop()

    async def pass_awake(self, core: Core, time: int) -> None:
        """Time in which a server is up and looks after the leases."""
        until = self.clock + time
        while self.clock < until:
            self.clock = min(until, self.clock + TICK_INTERVAL)
            await core.leases.tick()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def _register(core: Core, lease: int = HOUR) -> bytes:
    request = pb.RegisterRequest(sql="SELECT a FROM s", lease=Duration(seconds=lease // SECOND))
    return (await register(core, new_call(), request))[0].handles[0]


async def _sync(core: Core, handle: bytes, copy: Copy) -> list[pb.SyncPart]:
    request = pb.SyncRequest(items=[pb.SyncItem(handle=handle, token=copy.token)])
    parts = [part async for part in sync(core, new_call(), request)]
    for part in parts:
        if not part.HasField("refused"):
            copy.take(part)
    return parts


def _events(core: Core, kind: type[Any]) -> list[Any]:
    versions = range(1, core.follower.version + 1)
    entries = [entry for version in versions for entry in core.store.log.read(version)]
    return [entry.event for entry in entries if isinstance(entry.event, kind)]


async def test_nobody_asks_and_it_ends(world: World) -> None:
    async with world.server() as core:
        handle, copy = await _register(core), Copy()
        await _sync(core, handle, copy)
        await world.pass_awake(core, HOUR - MINUTE)
        assert await core.leases.expire() == 0
        await world.pass_awake(core, MINUTE)
        assert await core.leases.expire() == 1
        parts = await _sync(core, handle, copy)
        assert parts[0].refused.detail.reason == "REGISTRATION_EXPIRED"
        assert "register it again" in parts[0].refused.detail.hint
        with pytest.raises(RegistrationExpired):
            [_ async for _ in invoke(core, new_call(), pb.InvokeRequest(handle=handle))]
        with pytest.raises(UnknownHandle):
            find_registration(core.follower.state, "another", handle)


@pytest.mark.parametrize("lease", [Duration(), Duration(nanos=999), Duration(seconds=2**40)])
async def test_a_lease_is_some_time(world: World, lease: Duration) -> None:
    async with world.server() as core:
        with pytest.raises(BadRequest, match="a lease is longer than nothing"):
            await register(core, new_call(), pb.RegisterRequest(sql="SELECT a FROM s", lease=lease))


async def test_an_outage_does_not_count(world: World) -> None:
    async with world.server() as core:
        handle = await _register(core)
    world.clock += 1000 * HOUR
    async with world.server() as core:
        await core.leases.tick()
        assert await core.leases.expire() == 0
        until = core.leases.until(handle)
        assert until == world.clock + HOUR
        await world.pass_awake(core, HOUR)
        assert await core.leases.expire() == 1


@pytest.mark.parametrize("contact", ["sync", "invoke"])
async def test_contact_renews_at_most_thirty_times_a_lease(world: World, contact: str) -> None:
    async with world.server() as core:
        handle, copy = await _register(core), Copy()
        for _ in range(240):
            world.clock += MINUTE // 2
            if contact == "sync":
                await _sync(core, handle, copy)
            else:
                [_ async for _ in invoke(core, new_call(), pb.InvokeRequest(handle=handle))]
                await core.leases.renewed(handle)
        await core.appender.drain()
        assert 2 <= len(_events(core, Renew)) <= 2 * 30
        assert await core.leases.expire() == 0


async def test_who_watches_is_there_though_nothing_is_said(world: World) -> None:
    async with world.server() as core:
        handle = await _register(core, 3 * SECOND)
        items = [pb.SyncItem(handle=handle)]
        request = pb.WatchRequest(sync=pb.SyncRequest(items=items), beat=Duration(seconds=3600))
        parts = watch(core, new_call(), request)
        assert [(await anext(parts)).WhichOneof("part") for _ in range(2)] == ["begin", "end"]
        waiting = asyncio.ensure_future(anext(parts))
        world.clock += 2 * SECOND
        while not _events(core, Renew):
            await asyncio.sleep(0.05)
        assert len(_events(core, Renew)) == 1
        waiting.cancel()


async def test_the_client_is_told_until_when(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    # However slow the disk is, the answer waits for the renewal.
    monkeypatch.setattr(leases, "_RENEWAL_WAIT_SECONDS", 600)
    async with world.server() as core:
        handle, copy = await _register(core), Copy()
        await _sync(core, handle, copy)
        assert copy.end and copy.end.lease_until.seconds * SECOND == START + HOUR
        await world.pass_awake(core, HOUR // 2)
        await _sync(core, handle, copy)
        assert copy.end.lease_until.seconds * SECOND == START + HOUR // 2 + HOUR


async def test_of_renewal_and_expiry_the_first_in_the_log_wins(world: World) -> None:
    async with world.server() as first, world.server() as second:
        handle, ended = await _register(first), await _register(first)
        await world.pass_awake(first, HOUR)
        await first.appender.submit(RenewOne(handle))
        assert await second.appender.submit(ExpireOne(handle)) is False
        assert await second.appender.submit(ExpireOne(ended)) is True
        assert await first.appender.submit(ExpireOne(ended)) is False
        await first.appender.submit(RenewOne(ended))
        await second.follower.catch_up()
        assert len(_events(second, Expire)) == len(_events(second, Renew)) == 1


async def test_servers_tick_only_where_there_is_something_to_count(world: World) -> None:
    async with world.server() as first, world.server() as second:
        await world.pass_awake(first, HOUR)
        assert not _events(first, Tick)
        await _register(first)
        world.clock += TICK_INTERVAL
        await first.leases.tick()
        await second.follower.catch_up()
        await second.leases.tick()
        assert len(_events(second, Tick)) == 1


async def test_the_tables_remember_renewals_expiry_and_outages(world: World) -> None:
    async with world.server() as core:
        engine = HandMadeEngine(core.store)
        alive, expired, ended = [
            await _register(core, lease) for lease in (9 * HOUR, HOUR, 9 * HOUR)
        ]
        await world.pass_awake(core, HOUR)
        await core.leases.expire()
        for handle in (alive, ended):
            await core.appender.submit(RenewOne(handle))
        await core.appender.submit(UnregisterOne("main", ended))
        engine.step()
    world.clock += 50 * HOUR
    async with world.server() as core:
        await core.leases.tick()
        engine.step()
        until = core.leases.until(alive)
        assert until == world.clock + 9 * HOUR
    async with world.server() as core:
        assert core.follower.state.leases.outages
        assert core.leases.until(alive) == until
        assert core.follower.state.registrations[alive].contact
        with pytest.raises(RegistrationExpired):
            find_registration(core.follower.state, "main", expired)
        with pytest.raises(UnknownHandle):
            find_registration(core.follower.state, "main", ended)


def test_only_so_many_of_the_expired_are_remembered() -> None:
    leases = Leases(expired={bytes([n]): Expired("main", "main", n) for n in range(3)})
    assert leases.expire(b"new", ("main", "main"), 9) == [] and MAX_EXPIRED > 4
    leases.expired = {
        number.to_bytes(4): Expired("main", "main", 0) for number in range(MAX_EXPIRED)
    }
    assert leases.expire(b"newest", ("main", "main"), 9) == [bytes(4)]
    assert len(leases.expired) == MAX_EXPIRED


def test_time_that_counts() -> None:
    leases = Leases()
    leases.pass_time(0, START)
    leases.pass_time(START, START + HOUR)
    assert leases.awake(START, START + HOUR, START + HOUR) == MAX_COUNTED_GAP
    leases.pass_time(START + HOUR, START + HOUR + MINUTE)
    assert (
        leases.awake(START, START + HOUR + MINUTE, START + HOUR + MINUTE)
        == MAX_COUNTED_GAP + MINUTE
    )
    assert (
        leases.awake(START + HOUR, START + HOUR + MINUTE, START + 9 * HOUR)
        == MINUTE + MAX_COUNTED_GAP
    )
    leases.pass_time(START + HOUR + MINUTE, START + 5 * HOUR)
    assert leases.awake(START, START + 5 * HOUR, START + 5 * HOUR) == 2 * MAX_COUNTED_GAP + MINUTE
    leases.pass_time(START + 5 * HOUR, START + 9 * HOUR, jump=True)
    assert leases.awake(START, START + 9 * HOUR, START + 9 * HOUR) == 2 * MAX_COUNTED_GAP + MINUTE


async def test_a_server_behind_the_token_waits_and_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world.server() as ahead, world.server() as behind:
        handle, copy = await _register(ahead), Copy()
        await behind.follower.catch_up()

        async def stuck() -> None:
            pass

        monkeypatch.setattr(behind.follower, "catch_up", stuck)
        rows = rows_of(["a"], [pb.Value(bigint=1)])
        await publish(ahead, new_call(), pb.PublishRequest(stream="s", rows=rows))
        await _sync(ahead, handle, copy)
        with pytest.raises(NotReached):
            await _sync(behind, handle, copy)
        monkeypatch.undo()
        assert len(await _sync(behind, handle, copy)) == 2
        assert copy.answer(copy.now) == [(1,)]


# ---- publishers


def _batch(sequence: int, lease: int | None = HOUR, **fields: Any) -> pb.PublishRequest:
    duration = None if lease is None else Duration(seconds=lease // SECOND)
    rows = ipc(pa.table({"a": [sequence]}))
    identity: dict[str, Any] = {"publisher": "p", "sequence": sequence, "publisher_lease": duration}
    return pb.PublishRequest(stream="s", arrow=rows, **identity, **fields)


async def test_a_publisher_is_forgotten_after_its_lease(world: World) -> None:
    async with world.server() as core:
        first = await publish(core, new_call(), _batch(1))
        await world.pass_awake(core, HOUR - MINUTE)
        # A batch renews it, and a repeat does not.
        await publish(core, new_call(), _batch(2))
        await world.pass_awake(core, HOUR - MINUTE)
        assert (await publish(core, new_call(), _batch(1))).position == first.position
        assert await core.leases.expire() == 0
        await world.pass_awake(core, MINUTE)
        assert await core.leases.expire() == 1
        assert not core.follower.state.publishers
        assert not core.follower.state.has_leased_publishers
        assert not (await publish(core, new_call(), _batch(1))).duplicate
        assert [event.expired for event in _events(core, PublishersForgotten)] == [True]


async def test_a_publisher_may_stay_for_ever(world: World) -> None:
    async with world.server() as core:
        await publish(core, new_call(), _batch(1))
        # The last batch counts.
        await publish(core, new_call(), _batch(2, lease=None))
        assert not core.follower.state.has_leased_publishers
        await world.pass_awake(core, 3 * HOUR)
        assert await core.leases.expire() == 0
        assert (await publish(core, new_call(), _batch(2, lease=None))).duplicate


async def test_outages_do_not_count_for_publishers(world: World) -> None:
    async with world.server() as core:
        await publish(core, new_call(), _batch(1))
    world.clock += 1000 * HOUR
    async with world.server() as core:
        await core.leases.tick()
        assert await core.leases.expire() == 0
        await world.pass_awake(core, HOUR)
        assert await core.leases.expire() == 1


@pytest.mark.parametrize("lease", [Duration(), Duration(seconds=-1), Duration(seconds=2**40)])
async def test_a_lease_of_a_publisher_is_some_time(world: World, lease: Duration) -> None:
    request = _batch(1, lease=None)
    request.publisher_lease.CopyFrom(lease)
    async with world.server() as core:
        with pytest.raises(BadRequest, match="a lease is longer than nothing"):
            await publish(core, new_call(), request)
