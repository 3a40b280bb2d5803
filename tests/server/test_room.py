"""Room for requests: who waits, who is next, who is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from datastem.memory import Memory
from psoup.errors import Overloaded
from psoup.server.sharing.room import Hold, Room

KB = 1 << 10
LIMIT = 1000 * KB


def room(patience: float = 60.0) -> Room:
    return Room(Memory(10 * LIMIT), LIMIT, patience)


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(test())  # type: ignore[arg-type]


def test_requests_wait_and_connections_have_turns() -> None:
    async def test() -> None:
        room_, done = room(), []

        async def ask(name: str, peer: str, nbytes: int) -> None:
            hold = room_.hold(peer)
            await hold.reserve(nbytes)
            done.append(name)
            await settled()
            hold.release()

        first = room_.hold("a")
        await first.reserve(900 * KB)
        names = [("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b"), ("c1", "c")]
        tasks = [asyncio.create_task(ask(name, peer, 800 * KB)) for name, peer in names]
        await settled()
        assert done == []
        await ask("small", "d", 10 * KB)
        first.release()
        await asyncio.gather(*tasks)
        assert done == ["small", "a1", "b1", "c1", "a2", "a3"]
        assert room_.used == 0

    run(test)


def test_what_is_larger_than_the_room_has_it_alone() -> None:
    async def test() -> None:
        room_ = room()
        large, small = room_.hold("a"), room_.hold("b")
        await large.reserve(5 * LIMIT)
        waiting = asyncio.create_task(small.reserve(100 * KB))
        await settled()
        assert not waiting.done()
        large.shrink(LIMIT - 100 * KB)
        await waiting
        large.release()
        small.release()
        assert room_.used == 0

    run(test)


def test_who_waits_too_long_is_refused_and_who_goes_is_forgotten() -> None:
    async def test() -> None:
        room_ = room(patience=0.01)
        first = room_.hold("a")
        await first.reserve(LIMIT)
        with pytest.raises(Overloaded) as refused:
            await room_.hold("b").reserve(LIMIT)
        assert refused.value.detail["retry_after"].total_seconds() >= 1
        room_._patience = 60.0
        cancelled = asyncio.create_task(room_.hold("b").reserve(LIMIT))
        later = asyncio.create_task(room_.hold("b").reserve(LIMIT))
        await settled()
        cancelled.cancel()
        first.release()
        await later
        assert room_.used == LIMIT

    run(test)


def test_a_hold_lasts_until_the_last_lets_go() -> None:
    async def test() -> None:
        room_ = room()
        hold = room_.hold("a")
        await hold.reserve(200 * KB)
        await hold.reserve(100 * KB)
        hold.retain()
        hold.release()
        assert room_.used == 200 * KB
        hold.release()
        assert room_.used == 0

    run(test)


def test_requests_push_out_what_can_be_read_again() -> None:
    class Block:
        evicted = False

        def evict(self, number: int) -> None:
            self.evicted = True

    async def test() -> None:
        memory, block = Memory(LIMIT), Block()
        memory.hold((block, 0), 900 * KB)
        hold = Room(memory, LIMIT // 2, 60.0).hold("a")
        await hold.reserve(200 * KB)
        assert block.evicted
        assert memory.used == 200 * KB

    run(test)


def test_messages_that_wait_have_as_much_as_there_is_room_for() -> None:
    async def test() -> None:
        room_ = room()
        first = room_.hold("a")
        await first.reserve(LIMIT)
        waiting = [room_.hold("b") for _ in range(2)]
        for hold in waiting:
            hold.arrive(LIMIT // 2)
        late = room_.hold("c")
        with pytest.raises(Overloaded):
            late.arrive(LIMIT // 2)
        late.arrive(10 * KB)
        tasks = [asyncio.create_task(hold.reserve(LIMIT // 2)) for hold in waiting]
        await settled()
        first.release()
        await asyncio.gather(*tasks)
        late.arrive(LIMIT // 2)
        for hold in (*waiting, late):
            hold.release()
        assert (room_.used, room_.arrived) == (0, 0)

    run(test)


def test_a_request_that_needs_more_gives_back_what_it_has_while_it_waits() -> None:
    async def test() -> None:
        room_ = room()
        holds = [room_.hold(name) for name in "abcd"]
        for hold in holds:
            hold.arrive(200 * KB)
            await hold.reserve(200 * KB)

        async def grow(hold: Hold) -> None:
            await hold.reserve(700 * KB)
            await settled()
            hold.release()

        # Each has a part, and there is no room for the rest of any.
        await asyncio.gather(*map(grow, holds))
        assert (room_.used, room_.arrived) == (0, 0)

    run(test)
