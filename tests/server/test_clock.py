"""A server with a wrong clock: it is noticed, nothing is lost, and nobody is misled for good."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from google.protobuf.duration_pb2 import Duration

from datastem.errors import RowError
from datastem.instants import DAY, HOUR, MINUTE, SECOND
from psoup.errors import ClockAhead, ClockUnconfirmed
from psoup.server.calls.register import register
from psoup.store import Tick
from psoup.v1 import psoup_pb2 as pb
from psoup.write import appender
from psoup.write.leases import TICK_INTERVAL
from tests.support.server.callers import new_call
from tests.support.server.machines import (
    START,
    Machine,
    Machines,
    answer,
    arrival,
    define,
    jumps_of,
    put,
    put_at,
    timed,
)


@pytest.fixture
def world(tmp_path: Path) -> Machines:
    return Machines(tmp_path)


async def test_every_commit_says_whose_clock_it_is(world: Machines) -> None:
    async with world.server(Machine("a")) as first, world.server(Machine("b", -HOUR)) as second:
        await define(first, arrival())
        world.time += MINUTE
        await put(first, 1)
        await put(second, 2)
        entries = [second.store.log.read(version)[0] for version in (1, 2, 3)]
    assert [(entry.server, entry.clock) for entry in entries] == [
        ("a", START),
        ("a", START + MINUTE),
        ("b", START + MINUTE - HOUR),
    ]
    assert [entry.stamp for entry in entries] == [START, START + MINUTE, START + MINUTE]


async def test_a_jump_stands_before_what_it_stamps(world: Machines) -> None:
    async with world.server(Machine("a")) as right:
        await define(right, arrival(HOUR))
        await put(right, 1)
    world.time += MINUTE
    async with world.server(Machine("b", DAY)) as wrong:
        await put(wrong, 2)
        entries = wrong.store.log.read(wrong.follower.version)
        kinds = [type(entry.event).__name__ for entry in entries]
        assert kinds == ["Jump", "Data", "WriterStarted"]
        jump = jumps_of(wrong)[0]
        assert (jump.before, jump.to, jump.server) == (START, START + MINUTE + DAY, "b")
        assert wrong.follower.state.vouched == START
    async with world.server(Machine("a")) as right:
        assert right.follower.state.vouched == START
        assert right.follower.state.jumps.unconfirmed == DAY + MINUTE
        # Answers follow NOW as ever: what it hid is hidden, and is there.
        assert await answer(right) == [2]


async def test_the_first_append_of_all_is_no_jump(world: Machines) -> None:
    async with world.server(Machine("a")) as core:
        await define(core, arrival())
        assert jumps_of(core) == []


async def test_an_idle_night_is_no_jump_for_who_ran_through_it(world: Machines) -> None:
    async with world.server(Machine("a")) as first, world.server(Machine("b")) as second:
        await define(first, arrival())
        await second.follower.catch_up()
        world.time += 10 * HOUR
        await put(second, 1)
        world.time += 10 * HOUR
        await put(second, 2)
        await first.follower.catch_up()
        assert jumps_of(first) == []
    world.time += 10 * HOUR
    async with world.server(Machine("a")) as core:
        world.time += 10 * HOUR
        await put(core, 3)
        assert [jump.to - jump.before for jump in jumps_of(core)] == [20 * HOUR]
        world.time += 10 * HOUR
        await put(core, 4)
        assert len(jumps_of(core)) == 1


async def test_an_outage_is_no_jump_where_a_time_service_vouches_for_the_clock(
    world: Machines,
) -> None:
    async with world.server(Machine("a")) as core:
        await define(core, arrival())
    world.time += 3 * DAY
    async with world.server(Machine("a", synchronised=True)) as core:
        await put(core, 1)
        assert jumps_of(core) == []


async def test_another_server_whose_clock_agrees_confirms_it(world: Machines) -> None:
    async with world.server(Machine("a")) as core:
        await define(core, arrival())
    world.time += 3 * DAY
    async with world.server(Machine("a")) as core:
        await put(core, 1)
        assert core.follower.state.jumps.unconfirmed == 3 * DAY
        world.time += HOUR
        await put(core, 2)
    async with world.server(Machine("a")) as core:
        await put(core, 3)
        assert core.follower.state.jumps.unconfirmed == 3 * DAY
        async with world.server(Machine("b")) as second:
            await put(second, 4)
        await core.follower.catch_up()
        assert core.follower.state.jumps.unconfirmed == 0


async def test_a_week_confirms_it(world: Machines) -> None:
    async with world.server(Machine("a")) as core:
        await define(core, arrival())
    world.time += 3 * DAY
    async with world.server(Machine("a"), clock_settle=2 * 3600.0) as core:
        await put(core, 1)
        world.time += 2 * HOUR - SECOND
        await put(core, 2)
        assert core.follower.state.jumps.unconfirmed == 3 * DAY
        world.time += SECOND
        await put(core, 3)
        assert core.follower.state.jumps.unconfirmed == 0


# ---- refusing


async def test_of_two_the_one_ahead_appends_nothing(world: Machines) -> None:
    async with world.server(Machine("a")) as right, world.server(Machine("b", DAY)) as wrong:
        await define(right, arrival())
        await wrong.follower.catch_up()
        with pytest.raises(ClockAhead, match="1,440 minutes ahead of most other servers'"):
            await put(wrong, 1)
        await put(right, 2)
        assert await answer(right) == [2] and jumps_of(right) == []
        # One that was not heard of for long is asked.
        await wrong.follower.catch_up()
        world.time += HOUR
        with pytest.raises(ClockAhead):
            await put(wrong, 3)
    async with world.server(Machine("b", DAY)) as wrong:
        await put(wrong, 3)
        assert len(jumps_of(wrong)) == 1, "alone there is nobody to ask"


async def test_of_many_one_ahead_of_most(world: Machines) -> None:
    machines = [Machine("a"), Machine("b", -DAY), Machine("c")]
    async with (
        world.server(machines[0]) as right,
        world.server(machines[1]) as slow,
        world.server(machines[2]) as late,
        world.server(Machine("d", HOUR)) as fast,
    ):
        await define(right, arrival())
        for core in (slow, late, right):
            await put(core, 1)
        assert right.guard.others() == {"b": DAY, "c": 0}
        await fast.follower.catch_up()
        with pytest.raises(ClockAhead):
            await put(fast, 2)


async def test_one_ahead_from_its_start_asks_the_others_before_it_appends(world: Machines) -> None:
    """Whoever it has not heard of since, because nothing was appended meanwhile."""
    async with world.server(Machine("a")) as right:
        await define(right, arrival())
        await put(right, 1)
        world.time += 20 * MINUTE
        for ahead in (DAY, 11 * MINUTE):
            async with world.server(Machine("b", ahead)) as wrong:
                with pytest.raises(ClockAhead):
                    await put(wrong, 2)
        async with world.server(Machine("c")) as agreeing:
            await put(agreeing, 3)
        assert await answer(right) == [1, 3]
        assert jumps_of(right) == []
        assert right.follower.state.clock == world.time


async def test_two_that_start_after_an_outage_hear_each_other(world: Machines) -> None:
    async with world.server(Machine("a")) as core:
        await define(core, arrival())
    world.time += 3 * DAY
    async with world.server(Machine("a")) as right, world.server(Machine("b", DAY)) as fast:
        results = await asyncio.gather(put(fast, 1), put(right, 2), return_exceptions=True)
        assert isinstance(results[0], ClockAhead) and not isinstance(results[1], Exception)
        assert await answer(right) == [2]
        assert [jump.to - jump.before for jump in jumps_of(right)] == [3 * DAY]


async def test_nothing_is_appended_while_the_others_are_silent(
    world: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appender, "_ANSWER_SECONDS", 0.05)
    async with world.server(Machine("a")) as right:
        await define(right, arrival())
        world.time += HOUR
        monkeypatch.setattr(right.leases, "answer", lambda: None)
        async with world.server(Machine("b", DAY)) as wrong:
            with pytest.raises(ClockUnconfirmed, match="no server of another machine"):
                await put(wrong, 1)
            assert wrong.follower.state.clock == START, "the question has moved nothing"
        # A server that is told to trust its clock asks nobody.
        trusted = Machine("c", HOUR)
        async with world.server(trusted, clock_settle=0.0, clock_limit=7200.0) as trusting:
            await put(trusting, 2)


async def test_servers_of_one_machine_are_no_others(world: Machines) -> None:
    async with world.server(Machine("a")) as core:
        await define(core, arrival())
    world.time += 3 * DAY
    async with world.server(Machine("a")) as first, world.server(Machine("a")):
        await put(first, 1)
        assert len(jumps_of(first)) == 1


async def test_a_clock_within_the_limit_goes_on(world: Machines) -> None:
    async with world.server(Machine("a")) as first, world.server(Machine("b", MINUTE)) as second:
        await define(first, arrival())
        await second.follower.catch_up()
        await put(second, 1)
        assert second.guard.others() == {"a": MINUTE}
    async with (
        world.server(Machine("a")) as first,
        world.server(Machine("c", 3 * MINUTE), clock_limit=60.0) as second,
    ):
        await put(first, 1)
        await second.follower.catch_up()
        with pytest.raises(ClockAhead):
            await put(second, 1)


async def test_a_clock_that_is_set_forward_while_it_runs(world: Machines) -> None:
    machine = Machine("a")
    async with world.server(machine) as core:
        await define(core, arrival())
        world.time += DAY
        await put(core, 1)
        machine.ahead = HOUR
        with pytest.raises(ClockAhead, match="60 minutes forward"):
            await put(core, 2)
        assert "restart the server" in core.guard.problem()
        assert core.follower.now == world.time, "answers go by the time it should be"
        machine.ahead = -HOUR
        await put(core, 3)
        assert await answer(core) == [1, 3]


async def test_old_commits_are_no_word_about_now(world: Machines) -> None:
    async with world.server(Machine("a")) as core:
        await define(core, arrival())
    world.time += 3 * DAY
    async with world.server(Machine("b")) as core:
        assert core.guard.others() == {}
        await put(core, 1)


async def test_each_machine_ticks_so_that_it_is_heard_of(world: Machines) -> None:
    async with world.server(Machine("a")) as first, world.server(Machine("b", DAY)) as second:
        await define(first, arrival())
        await register(first, new_call(), pb.RegisterRequest(sql="SELECT a FROM s"))
        for _ in range(2):
            world.time += TICK_INTERVAL
            await put(first, 1)
            await first.leases.tick()
            await second.follower.catch_up()
        with pytest.raises(ClockAhead):
            await second.leases.tick()
    async with world.server(Machine("a")) as first, world.server(Machine("c")) as second:
        world.time += TICK_INTERVAL
        await put(first, 1)
        await second.follower.catch_up()
        await second.leases.tick()
        await first.follower.catch_up()
        assert first.guard.others() == {"c": 0}
        last = first.store.log.read(first.follower.version)[0]
        assert (last.event, last.server) == (Tick(), "c")


# ---- what a jump must not do


async def test_a_jump_ends_no_lease(world: Machines) -> None:
    async with world.server(Machine("a")) as core:
        await define(core, arrival())
        request = pb.RegisterRequest(sql="SELECT a FROM s", lease=Duration(seconds=60))
        handle = (await register(core, new_call(), request))[0].handles[0]
    async with world.server(Machine("b", DAY)) as wrong:
        await put(wrong, 1)
        assert await wrong.leases.expire() == 0
        assert handle in wrong.follower.state.registrations
        world.time += MINUTE
        await put(wrong, 1)
        assert await wrong.leases.expire() == 1


async def test_nor_does_one_that_only_an_expiry_would_write(world: Machines) -> None:
    async with world.server(Machine("a")) as core:
        await define(core, arrival())
        request = pb.RegisterRequest(sql="SELECT a FROM s", lease=Duration(seconds=60))
        await register(core, new_call(), request)
    async with world.server(Machine("b", DAY)) as wrong:
        version = wrong.follower.version
        assert await wrong.leases.expire() == 0
        assert wrong.store.log.latest_version() == version, "a jump alone is not worth a commit"


async def test_ahead_is_judged_by_what_is_vouched_for(world: Machines) -> None:
    async with world.server(Machine("a")) as right:
        await define(right, timed(ahead=HOUR))
        await put_at(right, 1, START + HOUR)
    async with world.server(Machine("b", DAY)) as wrong:
        for _ in range(2):
            with pytest.raises(ClockUnconfirmed, match="that is not confirmed yet"):
                await put_at(wrong, 2, START + DAY)
            await put_at(wrong, 3, START + HOUR)
        with pytest.raises(RowError, match="AHEAD past the clock"):
            await put_at(wrong, 4, START + DAY + 2 * HOUR)
        assert wrong.follower.state.jumps.unconfirmed == DAY


async def test_a_slow_clock_does_not_judge_alone_either(world: Machines) -> None:
    async with world.server(Machine("a")) as right, world.server(Machine("b", -DAY)) as slow:
        await define(right, timed(ahead=HOUR))
        await slow.follower.catch_up()
        await put_at(slow, 1, START)
        assert await answer(right, "SELECT a FROM timed") == [1]
