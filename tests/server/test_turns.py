"""Turns: who began first goes first, nobody is forgotten, whoever gives up while waiting."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psoup.server.sync.turns import Turns


def test_the_oldest_is_next() -> None:
    async def run() -> list[int]:
        turns, order = Turns(1), []
        tickets = [turns.ticket() for _ in range(5)]

        async def work(ticket: int) -> None:
            async with turns.turn(ticket):
                order.append(ticket)
                await asyncio.sleep(0)

        await asyncio.gather(*(work(ticket) for ticket in [tickets[2], *reversed(tickets)]))
        return order

    assert asyncio.run(run()) == [3, 1, 2, 3, 4, 5]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=12), st.integers(1, 3))
def test_slots_are_never_lost_nor_exceeded(steps: list[tuple[bool, int]], slots: int) -> None:
    async def run() -> None:
        turns, inside = Turns(slots), 0

        async def work() -> None:
            nonlocal inside
            async with turns.turn(turns.ticket()):
                inside += 1
                assert inside <= slots
                try:
                    await asyncio.sleep(0)
                finally:
                    inside -= 1

        tasks = []
        for gives_up, pauses in steps:
            tasks.append(asyncio.create_task(work()))
            for _ in range(pauses):
                await asyncio.sleep(0)
            if gives_up:
                tasks[-1].cancel()
        await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10)
        assert turns._free == slots and not inside

    asyncio.run(run())


def test_a_turn_that_fails_is_over() -> None:
    async def run() -> None:
        turns = Turns(1)
        for _ in range(2):
            with pytest.raises(ValueError):
                async with turns.turn(turns.ticket()):
                    raise ValueError

    asyncio.run(run())
