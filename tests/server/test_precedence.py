"""Who goes first: tenants in turns, quiet ones before those that crowd, and nobody never.

The clock is moved by hand; no time is measured.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter

import pytest

from psoup.access.principal import ANYONE, Principal
from psoup.server.call import Call
from psoup.server.sharing.precedence import MessageTurn, Precedence
from psoup.server.sharing.shares import CHUNK_UNITS
from psoup.server.sharing.turns import Turns
from querystem.pace import spending
from tests.support.lengths import short_first


class Bench:
    """A server's messages, and the time they see."""

    def __init__(self) -> None:
        self.now = 100.0
        self.precedence = Precedence(lambda: self.now)
        self.taken: list[MessageTurn] = []
        self.waiting: set[asyncio.Task[MessageTurn]] = set()

    async def come(self, tenant: str, count: int = 1, nbytes: int = 0) -> None:
        for _ in range(count):
            self.precedence.arrived()
            turn = self.precedence.turn(tenant, "a peer", nbytes)
            task = asyncio.create_task(turn)
            task.add_done_callback(self._note)
            self.waiting.add(task)
        for _ in range(count):
            await asyncio.sleep(0)

    async def after(self, seconds: float) -> Counter[str]:
        """Who has something under way after a while."""
        self.now += seconds
        # The timers of the loop are those of the machine.
        for _ in range(3):
            await asyncio.sleep(0.0015)
        return Counter(turn.party.name for turn in self.taken)

    def end(self, name: str) -> None:
        for turn in [turn_ for turn_ in self.taken if turn_.party.name == name]:
            self.taken.remove(turn)
            turn.end()

    def _note(self, task: asyncio.Task[MessageTurn]) -> None:
        self.waiting.discard(task)
        if not task.cancelled():
            self.taken.append(task.result())


@pytest.fixture
async def bench() -> Bench:
    return Bench()


async def crowded(bench: Bench) -> None:
    """A quiet tenant called lately, and a flood has had many messages here for long."""
    await bench.come("quiet")
    await bench.after(0.01)
    bench.end("quiet")
    await bench.come("flood", 20)
    assert await bench.after(1.0) == {"flood": 2}, "one at once, and one when that was not young"


async def test_a_few_of_each_are_taken_up_in_turns() -> None:
    precedence, order = Precedence(), list[str]()

    async def one(peer: str) -> None:
        await precedence.turn("", peer)
        order.append(peer)

    flood = [asyncio.create_task(one("flood")) for _ in range(100)]
    quiet = asyncio.create_task(one("quiet"))
    await asyncio.gather(*flood, quiet)
    assert len(order) == 101 and order.index("quiet") < 10


async def test_who_has_gone_is_passed_over(bench: Bench) -> None:
    await crowded(bench)
    cancelled = [task for task in bench.waiting if not task.done()][3:12]
    for task in cancelled:
        task.cancel()
    turn_count = 0
    while bench.waiting or bench.taken:
        turn_count += len(bench.taken)
        bench.end("flood")
        await bench.after(1.0)
    assert turn_count == 20 - len(cancelled)


@pytest.mark.parametrize("tenant", ["alone", ""])
async def test_who_is_alone_or_unknown_is_never_held_up(bench: Bench, tenant: str) -> None:
    if not tenant:
        await bench.come("quiet")
        await bench.after(0.01)
    await bench.come(tenant, 200)
    under_way = await bench.after(0.01)
    assert under_way[tenant or "a peer"] == 200


async def test_one_at_a_time_beside_a_tenant_that_called_lately(bench: Bench) -> None:
    await crowded(bench)
    bench.end("flood")
    assert await bench.after(0.01) == {"flood": 1}
    await bench.come("quiet")
    assert await bench.after(0.0) == {"flood": 1, "quiet": 1}
    bench.end("quiet")
    # Five seconds later nobody else is there any more.
    assert await bench.after(6.0) == {"flood": 18}


async def test_nobody_is_taken_up_while_calls_are_handed_over(bench: Bench) -> None:
    await crowded(bench)
    bench.end("flood")
    bench.precedence.arrived()
    assert await bench.after(0.0) == {}
    await bench.come("quiet")
    assert await bench.after(0.0) == {"quiet": 1}
    assert await bench.after(0.001) == {"quiet": 1, "flood": 1}


async def test_they_rest_three_times_as_long_as_they_worked(bench: Bench) -> None:
    await crowded(bench)
    await bench.come("quiet")
    assert await bench.after(0.01) == {"flood": 2, "quiet": 1}
    bench.end("flood")
    assert await bench.after(0.02) == {"quiet": 1}, "after 10 ms they rest for more than 30"
    assert await bench.after(0.013) == {"quiet": 1, "flood": 1}
    bench.end("flood")
    assert await bench.after(0.01) == {"quiet": 1, "flood": 1}, "next to no time was spent"


async def test_they_go_on_when_the_other_is_done(bench: Bench) -> None:
    await crowded(bench)
    await bench.come("quiet")
    await bench.after(0.01)
    bench.end("flood")
    bench.end("quiet")
    assert await bench.after(0.001) == {}, "the same caller may come again"
    assert await bench.after(0.002) == {"flood": 1}


async def test_large_messages_crowd_one_by_one(bench: Bench) -> None:
    await bench.come("quiet")
    await bench.after(0.01)
    for _ in range(3):
        await bench.come("publisher", nbytes=1 << 20)
        await bench.after(0.01)
        bench.end("publisher")
    await bench.come("quiet")
    await bench.come("publisher", nbytes=1 << 20)
    await bench.after(0.01)
    assert bench.precedence.crowds("publisher") and not bench.precedence.crowds("quiet")


async def test_who_waits_or_reads_slowly_does_not_crowd(bench: Bench) -> None:
    await bench.come("quiet")
    await bench.come("patient", 4)
    await bench.after(0.01)
    for turn in bench.taken:
        turn.end()
    await bench.after(1.0)
    await bench.come("quiet")
    await bench.after(0.0)
    assert not bench.precedence.crowds("patient")


async def test_a_call_says_when_it_waits_and_when_it_sends(bench: Bench) -> None:
    call = Call(ANYONE)
    for note, later in ((call.end_turn, 0.0), (call.end_long_turn, 0.06)):
        await bench.come("patient")
        await bench.after(0.003)
        (turn,) = bench.taken
        call.turn = turn
        call.end_long_turn()
        assert bench.precedence.weight == 1, "a young one still works"
        await bench.after(later)
        # Who is young is looked at again with the next message.
        await bench.come("another")
        await bench.after(0.0)
        bench.end("another")
        note()
        assert bench.precedence.weight == 0
        bench.taken.clear()


@pytest.mark.parametrize("seed", short_first(range(10), 3))
async def test_everybody_is_taken_up_and_nothing_is_left(seed: int) -> None:
    bench, chance = Bench(), random.Random(seed)
    names = ["a", "b", "c", "d", ""]
    came = 0
    for _ in range(40):
        name = chance.choice(names)
        count = chance.choice([1, 1, 1, 5, 30])
        await bench.come(name, count, chance.choice([0, 0, 100_000]))
        came += count
        for task in chance.sample(sorted(bench.waiting, key=id), min(2, len(bench.waiting))):
            if chance.random() < 0.1:
                task.cancel()
        if chance.random() < 0.7 and bench.taken:
            bench.end(chance.choice(bench.taken).party.name)
        await bench.after(chance.choice([0.0, 0.0001, 0.003, 0.06, 2.0]))
    for _ in range(10_000):
        if not bench.waiting and not bench.taken:
            break
        for turn in list(bench.taken):
            bench.end(turn.party.name)
        bench.now += 0.1
        await asyncio.sleep(0)
    assert not bench.waiting and not bench.taken
    assert bench.precedence.weight == 0


# ---- chunks


async def test_long_work_of_many_steps_back_and_goes_on(bench: Bench) -> None:
    turns = Turns(1, precedence=bench.precedence)
    go, steps = threading.Event(), list[str]()

    def work() -> None:
        steps.append("begun")
        assert go.wait(240)
        spending()(CHUNK_UNITS // 1000)
        steps.append("on")

    try:
        await crowded(bench)
        task = asyncio.create_task(turns.run(Call(Principal("flood", "")), work))
        while not steps:
            await asyncio.sleep(0.001)
        await bench.come("quiet")
        await bench.after(0.01)
        go.set()
        while turns.running:
            await asyncio.sleep(0.001)
        assert steps == ["begun"], "its slot is free before its chunk is done"
        assert await turns.run(Call(Principal("quiet", "")), lambda: "answer") == "answer"
        await bench.after(0.035)
        await asyncio.wait_for(task, 240)
        assert steps == ["begun", "on"]
    finally:
        turns.stop()
