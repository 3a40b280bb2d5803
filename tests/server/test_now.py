"""How far rows and heartbeats take NOW: SLACK, LEAD, CLOCK."""

from __future__ import annotations

from pathlib import Path

import pytest

from datastem.instants import MINUTE, SECOND
from psoup.server.calls.define import define
from psoup.server.calls.invoke import ask
from psoup.server.calls.publish import publish
from psoup.server.core import Core
from psoup.v1 import psoup_pb2 as pb
from tests.support.server.callers import new_call
from tests.support.server.epochs import HandMadeEngine
from tests.support.server.machines import START, Machine, Machines
from tests.support.server.process import received, rows_of

COLUMNS = "(a BIGINT, at TIMESTAMP)"


async def create(core: Core, sql: str) -> None:
    await define(core, new_call(), pb.DefineRequest(sql=sql))


async def put(core: Core, stream: str, number: int, seconds: int | None) -> None:
    """Publish a row, with event time some seconds after START."""
    names, values = ["a"], [pb.Value(bigint=number)]
    if seconds is not None:
        at = pb.Value()
        at.timestamp.FromMicroseconds(START + seconds * SECOND)
        names, values = ["a", "at"], [*values, at]
    rows = rows_of(names, values)
    await publish(core, new_call(), pb.PublishRequest(stream=stream, rows=rows))


async def beat(core: Core, stream: str, seconds: int) -> None:
    request = pb.PublishRequest(stream=stream)
    request.heartbeat.FromMicroseconds(START + seconds * SECOND)
    await publish(core, new_call(), request)


async def answer(core: Core, sql: str) -> tuple[int | None, list[int]]:
    """Return NOW of an answer, in seconds after START, and its first column."""
    await core.follower.catch_up()
    header, *parts = await received(ask(core, new_call(), pb.AskRequest(sql=sql)))
    now = header.header.now.ToMicroseconds() - START
    numbers = [row.values[0].bigint for part in parts for row in part.rows.rows]
    return now // SECOND if header.header.HasField("now") else None, numbers


async def test_pipes_7_2_3_now_is_the_greatest_instant_minus_the_slack(tmp_path: Path) -> None:
    world = Machines(tmp_path)
    async with world.server(Machine("a")) as core:
        await create(core, f"CREATE STREAM s {COLUMNS} ORDERED BY at SLACK 3 SECONDS AHEAD 1 HOUR")
        nows, windows = [], []
        for at in (11, 14, 12, 19, 16):
            await put(core, "s", at, at)
            now, numbers = await answer(core, "SELECT a FROM s RANGE 3 SECONDS")
            nows.append(now)
            windows.append(numbers)
        assert nows == [8, 11, 11, 16, 16]
        assert windows == [[], [11], [11], [14], [14, 16]]
        await beat(core, "s", 19)
        assert await answer(core, "SELECT a FROM s RANGE 4 SECONDS") == (19, [16, 19])


async def test_a_row_far_ahead_takes_now_no_further_than_lead(tmp_path: Path) -> None:
    world = Machines(tmp_path)
    async with world.server(Machine("a")) as core:
        await create(core, f"CREATE STREAM s {COLUMNS} ORDERED BY at")
        await put(core, "s", 1, -30)
        await put(core, "s", 2, 3300)
        assert await answer(core, "SELECT a FROM s RANGE 2 MINUTES") == (60, [1])
        await beat(core, "s", 3000)
        assert (await answer(core, "SELECT a FROM s"))[0] == 60
        # What it waits for is the time that others reach.
        world.time += 55 * MINUTE
        await put(core, "s", 3, 3299)
        assert await answer(core, "SELECT a FROM s") == (3299, [1, 3])
        await put(core, "s", 4, 3301)
        assert await answer(core, "SELECT a FROM s") == (3301, [1, 3, 2, 4])


async def test_late_rows_are_counted_and_who_leads_is_named(tmp_path: Path) -> None:
    world = Machines(tmp_path)
    async with world.server(Machine("a")) as core:
        await create(core, f"CREATE STREAM s {COLUMNS} ORDERED BY at SLACK 3 SECONDS")
        for at in (-1, -5, -4, 5, -2, 1):
            await put(core, "s", 1, at)
        HandMadeEngine(core.store).step()
    async with world.server(Machine("a")) as core:
        await put(core, "s", 1, 0)
        (stream,) = core.follower.state.streams.values()
        # NOW is -4, -4, -4, 2, 2 and 2: the rows at -5, -2, 1 and 0 were late.
        assert stream.late_rows == 4
        assert stream.leap is not None
        assert (stream.leap.owner, stream.leap.reached) == ("main", START + 2 * SECOND)


async def test_forecasts_take_now_along(tmp_path: Path) -> None:
    world = Machines(tmp_path)
    async with world.server(Machine("a")) as core:
        await create(core, f"CREATE STREAM s {COLUMNS} ORDERED BY at AHEAD 2 DAYS")
        await put(core, "s", 1, 90_000)
        assert (await answer(core, "SELECT a FROM s"))[0] == 90_000


async def test_the_clock_is_the_now_of_rows_with_an_event_time(tmp_path: Path) -> None:
    world = Machines(tmp_path)
    async with world.server(Machine("a")) as core:
        await create(core, f"CREATE STREAM s {COLUMNS} ORDERED BY at CLOCK")
        await create(core, "CREATE STREAM t (a BIGINT)")
        await put(core, "s", 1, 30)
        await put(core, "s", 2, -5)
        await put(core, "t", 1, None)
        await put(core, "t", 2, None)
        join = "SELECT s.a FROM s, t WHERE s.a = t.a RANGE 1 MINUTE"
        assert await answer(core, "SELECT a FROM s RANGE 10 SECONDS") == (0, [2])
        assert await answer(core, join) == (0, [2])
        world.time += 30 * SECOND
        assert await answer(core, "SELECT a FROM s RANGE 10 SECONDS") == (30, [1])
        assert await answer(core, join) == (30, [2, 1])


async def test_refresh_goes_by_arrival_if_now_is_the_clock(tmp_path: Path) -> None:
    world = Machines(tmp_path)
    async with world.server(Machine("a")) as core:
        await create(core, f"CREATE STREAM s {COLUMNS} ORDERED BY at CLOCK")
        every = "SELECT a FROM s REFRESH EVERY 10 SECONDS"
        await put(core, "s", 1, -5)
        world.time += 12 * SECOND
        await put(core, "s", 2, 3)
        # START is a multiple of ten seconds. The second row came after the last of these.
        assert await answer(core, every) == (10, [1])
        world.time += 10 * SECOND
        assert await answer(core, every) == (20, [1, 2])


async def test_refresh_points_follow_the_slack(tmp_path: Path) -> None:
    world = Machines(tmp_path)
    async with world.server(Machine("a")) as core:
        for name in ("s", "t"):
            await create(
                core, f"CREATE STREAM {name} {COLUMNS} ORDERED BY at SLACK 5 SECONDS AHEAD 1 HOUR"
            )
        every = "SELECT s.a FROM s, t WHERE s.a = t.a REFRESH EVERY 10 SECONDS"
        for number, at in enumerate((2, 8, 12)):
            await put(core, "s", number, at)
            await put(core, "t", number, at)
        # NOW is 7: the row of 12 has not taken it to the point of 10.
        assert await answer(core, every) == (0, [])
        await put(core, "s", 3, 16)
        await put(core, "t", 3, 16)
        assert await answer(core, every) == (10, [0, 1])
        # Late rows came after the point, and are no part of its answer.
        await put(core, "s", 4, 9)
        await put(core, "t", 4, 9)
        assert await answer(core, every) == (10, [0, 1])


@pytest.mark.parametrize(
    ("key", "window"), [("KEY (a)", ""), ("", "ROWS 1"), ("", "ROWS 1 PARTITION BY a")]
)
async def test_a_waiting_row_takes_the_place_of_another(
    tmp_path: Path, key: str, window: str
) -> None:
    world = Machines(tmp_path)
    async with world.server(Machine("a")) as core:
        await create(core, f"CREATE STREAM s {COLUMNS} {key} ORDERED BY at CLOCK")
        await put(core, "s", 7, -1)
        await put(core, "s", 7, 20)
        assert (await answer(core, f"SELECT row_id FROM s {window}"))[1] == [0]
        world.time += 20 * SECOND
        assert (await answer(core, f"SELECT row_id FROM s {window}"))[1] == [1]
