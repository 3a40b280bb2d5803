"""Repair of a wrong clock: everything it had hidden is visible again, however often killed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from pyspark.sql import SparkSession

from datastem.instants import DAY, HOUR, MINUTE
from datastem.schema import Column, StreamSchema
from datastem.types import BIGINT
from psoup.engine.errors import SecondEngine, ServersRunning
from psoup.engine.ownership.lock import EngineLock
from psoup.engine.repair import reclock
from psoup.engine.repair.reclock import last_stamp, repair_clock
from psoup.engine.settings import EngineSettings
from psoup.server.calls.publish import publish
from psoup.server.calls.register import register
from psoup.server.calls.sync import sync
from psoup.server.core import Core
from psoup.store import CorruptStore, ForeignPosition, Repairing, Store
from psoup.store.delta import DeltaFolder
from psoup.store.presence import NOTE_NAME
from psoup.store.state.leases import outages_until
from psoup.v1 import psoup_pb2 as pb
from tests.oracle.copy import Copy
from tests.support.engine.composites import assert_boxes, combinations
from tests.support.engine.pump import Pump
from tests.support.engine.reading import stem_rows
from tests.support.server.callers import new_call
from tests.support.server.machines import (
    START,
    Machine,
    Machines,
    answer,
    arrival,
    define,
    put,
    put_at,
    timed,
)
from tests.support.server.process import rows_of

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("counted_ids")]

EAGER = EngineSettings(housekeeping=0.0, grace=0.0, trim_commits=2, merge_files=3)
KEYED = StreamSchema("k", (Column("a", BIGINT), Column("b", BIGINT)), retain=2 * HOUR, key=("a",))
LED = replace(timed(ahead=3 * DAY), name="led", lead=MINUTE)
JOIN = "SELECT x.a FROM s x, s y WHERE x.a = y.a RANGE 1 HOUR"
ALWAYS: Callable[[int], bool] = lambda last: True  # noqa: E731


async def _put_keyed(core: Core, key: int, value: int) -> None:
    rows = rows_of(["a", "b"], [pb.Value(bigint=key), pb.Value(bigint=value)])
    await publish(
        core,
        new_call(),
        pb.PublishRequest(stream="k", rows=rows, publisher=f"p{key}", sequence=value),
    )


async def _spoil(world: Machines, spark: SparkSession) -> tuple[list[bytes], Copy, bytes]:
    """The last rows are of a server a day ahead, and some of them in the engine's tables too.

    Return registrations from before and after the jump, a copy of the first, and a position.
    """
    async with world.server(Machine("a")) as right:
        for schema in (arrival(2 * HOUR), KEYED, timed(ahead=HOUR), LED):
            await define(right, schema)
        lease = Duration(seconds=7200)
        request = pb.RegisterRequest(sql="SELECT a FROM s", lease=lease)
        handles = (await register(right, new_call(), request))[0].handles
        handles += (await register(right, new_call(), pb.RegisterRequest(sql=JOIN, lease=lease)))[
            0
        ].handles
        for number in (1, 2):
            await put(right, number)
            await _put_keyed(right, 1, number)
            await put_at(right, number, START + number)
        Pump(right.store, spark, EAGER).run()
    world.time += HOUR
    async with world.server(Machine("b", DAY)) as wrong:
        pump = Pump(wrong.store, spark, EAGER)
        for number in (3, 4, 5, 6):
            await put(wrong, number)
            await _put_keyed(wrong, 1, number)
            await _put_keyed(wrong, 2, number - 2)
            await put_at(wrong, number, START + number)
            await put_at(wrong, number, world.time + DAY, stream="led")
            if number == 4:
                handles += (await register(wrong, new_call(), request))[0].handles
                pump.run()
            world.time += MINUTE
        copy = Copy()
        items = [pb.SyncItem(handle=handles[0])]
        async for part in sync(wrong, new_call(), pb.SyncRequest(items=items)):
            copy.take(part)
        position = wrong.positions.encode(wrong.follower.state.position)
        assert await answer(wrong) == [3, 4, 5, 6]
    return handles, copy, position


async def _check(world: Machines, handles: list[bytes], copy: Copy, position: bytes) -> None:
    """Return what the store holds, by a server whose clock is right."""
    async with world.server(Machine("a")) as right:
        state = right.follower.state
        assert state.clock <= world.time and state.jumps.unconfirmed == 0
        assert await answer(right) == [1, 2, 3, 4, 5, 6]
        assert await answer(right, "SELECT b FROM k") == [6, 4]
        assert await answer(right, "SELECT a FROM timed") == [1, 2, 3, 4, 5, 6]
        (led,) = (stream for stream in state.streams.values() if stream.schema.name == "led")
        assert led.reached is not None and START < led.reached <= world.time + MINUTE
        assert await answer(right, "SELECT a FROM led") == []
        assert all(handle in state.registrations for handle in handles)
        assert all(state.registrations[handle].stamp <= world.time for handle in handles)
        with pytest.raises(ForeignPosition):
            right.positions.decode(position)
        items = [pb.SyncItem(handle=handles[0], token=copy.token)]
        parts = [part async for part in sync(right, new_call(), pb.SyncRequest(items=items))]
        assert parts[0].begin.mode == pb.SYNC_MODE_WHOLE
        await put(right, 7)
        assert await answer(right) == [1, 2, 3, 4, 5, 6, 7]
        publisher = state.publishers["main", "main", "p1"]
        assert publisher.sequence == 6


async def test_all_that_was_hidden_is_there_again(tmp_path: Path, spark: SparkSession) -> None:
    world = Machines(tmp_path)
    spoilt = await _spoil(world, spark)
    store = Store.open(world.path, sync=False)
    assert last_stamp(store) > world.time + 23 * HOUR
    assert not repair_clock(world.path, last_stamp(store), ALWAYS), "there is nothing past it"
    assert not repair_clock(world.path, world.time, lambda last: False)
    assert repair_clock(world.path, world.time, ALWAYS)
    assert last_stamp(store) == world.time
    await _check(world, *spoilt)
    # Combinations are found again: their parts have other times now.
    (mark,) = store.epochs.latest()[1].composites.values()
    assert mark.since is None and mark.high > 0
    # The engine goes on from there, and every table says the same as before.
    pump = Pump(store, spark, EAGER)
    pump.run()
    (composite_id,) = store.epochs.latest()[1].composites
    assert set(combinations(store, composite_id).values()) == {(n, n) for n in range(7)}
    assert_boxes(store)
    assert [row["a"] for row in stem_rows(store, 1)] == [1, 2, 3, 4, 5, 6, 7]
    for stream in (1, 2, 3):
        rows = stem_rows(store, stream)
        stamps = [row["_stamp"] for row in rows]
        assert stamps == sorted(stamps)
        assert [row["_position"] for row in rows] == sorted(row["_position"] for row in rows)
    async with world.server(Machine("a")) as right:
        assert await answer(right) == [1, 2, 3, 4, 5, 6, 7]
        assert await answer(right, "SELECT b FROM k") == [6, 4]
    world.time += 3 * HOUR
    async with world.server(Machine("a")) as right:
        world.time += MINUTE
        await put(right, 8)
        assert await answer(right) == [8]


class Killed(BaseException):
    pass


@pytest.mark.long
async def test_killed_at_every_commit_it_is_repeated(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = Machines(tmp_path)
    spoilt = await _spoil(world, spark)
    spare = tmp_path / "spare"
    shutil.copytree(world.path, spare)
    commit, remaining_commits = DeltaFolder.commit, [0]

    def dying(folder: DeltaFolder, *given: Any, **named: Any) -> None:
        if remaining_commits[0] == 0:
            raise Killed
        remaining_commits[0] -= 1
        commit(folder, *given, **named)

    monkeypatch.setattr(DeltaFolder, "commit", dying)
    deaths = [0, 0]
    for at in range(100):
        shutil.rmtree(world.path)
        shutil.copytree(spare, world.path)
        remaining_commits[0] = at
        try:
            repair_clock(world.path, world.time, ALWAYS)
            break
        except Killed:
            deaths[(world.path / NOTE_NAME).exists()] += 1
        clock = world.time
        if (world.path / NOTE_NAME).exists():
            with pytest.raises(Repairing, match="run `psoup repair"):
                Store.open(world.path)
            # The clock that counts is that of the first attempt.
            clock += HOUR
        else:
            assert last_stamp(Store.open(world.path)) > world.time + 23 * HOUR
        remaining_commits[0] = at // 2
        with pytest.raises(Killed):
            repair_clock(world.path, clock, ALWAYS)
        remaining_commits[0] = -1
        assert repair_clock(world.path, clock, ALWAYS)
        assert last_stamp(Store.open(world.path)) == world.time
        await _check(world, *spoilt)
    assert min(deaths) > 4


async def test_killed_after_the_epoch_there_is_nothing_left_to_do(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = Machines(tmp_path)
    spoilt = await _spoil(world, spark)

    def die(root: Path) -> None:
        raise Killed

    monkeypatch.setattr(reclock, "remove_note", die)
    with pytest.raises(Killed):
        repair_clock(world.path, world.time, ALWAYS)
    monkeypatch.undo()
    assert (world.path / NOTE_NAME).exists()
    versions = Store.open(world.path, repairing=True).log.latest_version()
    assert repair_clock(world.path, world.time, ALWAYS)
    assert Store.open(world.path).log.latest_version() == versions
    await _check(world, *spoilt)


async def test_one_that_can_not_be_done_changes_nothing(
    tmp_path: Path, spark: SparkSession
) -> None:
    world = Machines(tmp_path)
    await _spoil(world, spark)
    for path in (world.path / "stems" / "1").glob("*.parquet"):
        path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(CorruptStore):
        repair_clock(world.path, world.time, ALWAYS)
    assert last_stamp(Store.open(world.path)) > world.time + 23 * HOUR


async def test_it_wants_the_store_for_itself(tmp_path: Path) -> None:
    world = Machines(tmp_path)
    async with world.server(Machine("a")) as core:
        await define(core, arrival())
        with pytest.raises(ServersRunning, match="stop every server"):
            repair_clock(world.path, START - DAY, ALWAYS)
    lock = EngineLock(world.path)
    lock.acquire()
    with pytest.raises(SecondEngine):
        repair_clock(world.path, START - DAY, ALWAYS)
    lock.release()

    def while_it_runs(last: int) -> bool:
        with pytest.raises(Repairing, match="is being repaired"):
            Core(Store.open(world.path), core.settings)
        return False

    assert not repair_clock(world.path, START - DAY, while_it_runs)
    async with world.server(Machine("a")) as core:
        assert await answer(core) == []


def test_outages_up_to_an_instant() -> None:
    outages = ((10, 5), (30, 15), (100, 65))
    assert outages_until(outages, 200) == outages
    assert outages_until(outages, 60) == ((10, 5), (30, 15), (60, 25))
    assert outages_until(outages, 40) == ((10, 5), (30, 15))
    assert outages_until(outages, 25) == ((10, 5), (25, 10))
    assert outages_until(outages, 0) == ()
