"""Turns: whose chunk is next, what is kept for small work, and that nobody is forgotten.

Chunks are held back and counted; no time is measured.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psoup.access.principal import Principal
from psoup.errors import OutOfTime, Stopping
from psoup.server.call import Call
from psoup.server.sharing.shares import CHUNK_UNITS, Share
from psoup.server.sharing.turns import Cut, Turns
from querystem.pace import spending


@dataclass
class Held:
    """Work of some chunks, each of which waits until it is let go. `order` gets its name for each
    chunk that begins."""

    name: str
    chunks: int
    order: list[str] = field(default_factory=list)
    gates: list[threading.Event] = field(default_factory=list)
    free: bool = False

    def __post_init__(self) -> None:
        self.gates = [threading.Event() for _ in range(self.chunks)]

    def __call__(self) -> str:
        for number, gate in enumerate(self.gates):
            if number:
                spending()(CHUNK_UNITS)
            self.order.append(self.name)
            if not self.free:
                assert gate.wait(240)
        return self.name

    def let_go(self, chunk: int) -> None:
        self.gates[chunk].set()

    def let_all_go(self) -> None:
        self.free = True
        for gate in self.gates:
            gate.set()


def caller(tenant: str, peer: str = "", until: float | None = None) -> Call:
    call = Call(Principal(tenant, ""), peer)
    call.deadline = until
    return call


@contextmanager
def turns(slots: int) -> Iterator[Turns]:
    turns_ = Turns(slots)
    try:
        yield turns_
    finally:
        turns_.stop()


async def until(condition: Callable[[], bool]) -> None:
    """Other threads have come as far as that."""
    for _ in range(20_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it never came")


async def test_a_small_call_waits_for_no_chunk_of_long_ones() -> None:
    order: list[str] = []
    with turns(4) as shared:
        long = [Held("long", 5, order) for _ in range(8)]
        tasks = [asyncio.create_task(shared.run(caller("a", "x"), work)) for work in long]
        await until(lambda: len(order) == 4)
        long[3].let_go(0)
        # The kept slot has passed from the fourth to the fifth: all others only wait.
        await until(lambda: len(order) == 5)
        small = asyncio.create_task(shared.run(caller("b"), Held("small", 1, order, free=True)))
        await asyncio.sleep(0)
        done = shared.chunks
        long[4].let_go(0)
        assert await asyncio.wait_for(small, 240) == "small"
        assert shared.chunks - done <= 2, "one it waited for, and its own"
        for work in long:
            work.let_all_go()
        await asyncio.gather(*tasks)
        assert shared.running == 0


async def test_tenants_share_alike_however_many_calls_each_has() -> None:
    order: list[str] = []
    with turns(2) as shared:
        blocker = Held("held", 1, order)
        holder = asyncio.create_task(shared.run(caller("h"), blocker))
        first = Held("first", 1, order)
        asyncio.create_task(shared.run(caller("i"), first))
        await until(lambda: len(order) == 2)
        many = [Held("many", 6, order, free=True) for _ in range(5)]
        tasks = [
            asyncio.create_task(shared.run(caller("a", str(n)), w)) for n, w in enumerate(many)
        ]
        single = asyncio.create_task(shared.run(caller("b"), Held("one", 6, order, free=True)))
        await asyncio.sleep(0)
        blocker.let_all_go()
        await holder
        await asyncio.wait_for(single, 240)
        # The slot that is left serves both in turn, until the one has its six.
        assert 6 <= order[2:14].count("many") <= 7 and order[2:15].count("one") == 6
        first.let_all_go()
        await asyncio.gather(*tasks)


async def test_callers_of_a_tenant_are_finished_in_the_order_they_came() -> None:
    order: list[str] = []
    with turns(1) as shared:
        blockers = [Held("held", 1, order) for _ in range(2)]
        holders = [asyncio.create_task(shared.run(caller("h"), blocker)) for blocker in blockers]
        await until(lambda: len(order) == 2)
        works = [Held(str(number), 3, order, free=True) for number in range(3)]
        tasks = [
            asyncio.create_task(shared.run(caller("a", str(number)), work))
            for number, work in enumerate(works)
        ]
        await asyncio.sleep(0)
        blockers[0].let_all_go()
        await asyncio.gather(*tasks)
        assert order[2:] == ["0"] * 3 + ["1"] * 3 + ["2"] * 3
        blockers[1].let_all_go()
        await asyncio.gather(*holders)


async def test_after_its_caller_has_gone_no_chunk_is_run() -> None:
    with turns(1) as shared:
        work = Held("gone", 50)
        task = asyncio.create_task(shared.run(caller("a"), work))
        await until(lambda: len(work.order) == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        work.let_all_go()
        await until(lambda: shared.running == 0)
        assert len(work.order) == 1


async def test_a_deadline_ends_the_work_at_its_chunk() -> None:
    with turns(1) as shared:
        work = Held("late", 50, free=True)
        with pytest.raises(OutOfTime):
            await shared.run(caller("a", until=time.monotonic()), work)
        assert not work.order


async def test_stop_ends_what_runs_and_what_waits() -> None:
    shared = Turns(1)
    works = [Held(str(number), 50) for number in range(4)]
    tasks = [asyncio.create_task(shared.run(caller("a"), work)) for work in works]
    await until(lambda: sum(len(work.order) for work in works) == 2)
    shared.stop()
    for work in works:
        work.let_all_go()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(end, Stopping) for end in ends)
    assert sum(len(work.order) for work in works) == 2
    with pytest.raises(Stopping):
        await shared.run(caller("a"), works[0])


async def test_a_turn_that_fails_is_over() -> None:
    with turns(1) as shared:
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                await shared.run(caller("a"), lambda: 1 // 0)
        assert shared.running == 0


async def test_one_caller_does_not_begin_without_bound() -> None:
    order: list[str] = []
    with turns(2) as shared:
        works = [Held(str(number), 2, order) for number in range(40)]
        tasks = [asyncio.create_task(shared.run(caller("a"), work)) for work in works]
        for work in works:
            work.let_go(0)
        await until(lambda: len(order) >= 17)
        for _ in range(50):
            await asyncio.sleep(0.001)
        assert len(set(order)) <= 18
        assert await shared.run(caller("a", "other"), lambda: "small") == "small"
        for work in works:
            work.let_all_go()
        await asyncio.gather(*tasks)
        assert shared.running == 0


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"), st.integers(0, 3), st.booleans()),
        max_size=16,
    ),
    st.integers(1, 4),
)
def test_slots_are_never_lost_nor_exceeded(
    steps: list[tuple[str, str, int, bool]], slots: int
) -> None:
    lock, inside = threading.Lock(), [0]

    def work(chunks: int) -> None:
        for _ in range(chunks + 1):
            with lock:
                inside[0] += 1
                assert inside[0] <= max(2, slots)
            time.sleep(0)
            with lock:
                inside[0] -= 1
            spending()(CHUNK_UNITS)

    async def run() -> None:
        with turns(slots) as shared:
            tasks = []
            for tenant, peer, chunks, gives_up in steps:
                task = asyncio.create_task(shared.run(caller(tenant, peer), work, chunks))
                tasks.append(task)
                await asyncio.sleep(0)
                if gives_up:
                    task.cancel()
            ends = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 240)
            assert all(end is None or isinstance(end, asyncio.CancelledError) for end in ends)
            await until(lambda: shared.running == 0)
            assert (shared._free_slots, shared._free_first_slots) == (max(1, slots - 1), 1)
            _check(shared._root)

    asyncio.run(run())


def _check(share: Share) -> None:
    """Nobody is counted who has left."""
    assert share.present == share.running == share.begun == 0
    for inner in share.inner.values():
        _check(inner)


def test_who_was_away_is_not_owed_what_others_had() -> None:
    root = Share()
    busy = root.enter("busy")
    for _ in range(10):
        root.choose(busy)
        busy.running -= 1
        busy.units += CHUNK_UNITS
    late = root.enter("late")
    assert busy.units - late.units == CHUNK_UNITS


def test_a_cut_is_not_an_answer() -> None:
    """What is raised in the thread of somebody who has gone is no error of the server's."""
    assert not issubclass(Cut, Stopping)
