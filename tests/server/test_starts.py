"""Messages are taken up in turns by tenant, and all of them are."""

from __future__ import annotations

import asyncio

from psoup.server.starts import Starts


async def test_a_flood_delays_another_by_a_few() -> None:
    starts, order = Starts(), list[str]()

    async def one(name: str) -> None:
        await starts.turn(name)
        order.append(name)

    flood = [asyncio.create_task(one("flood")) for _ in range(100)]
    quiet = asyncio.create_task(one("quiet"))
    await asyncio.gather(*flood, quiet)
    assert len(order) == 101 and order.index("quiet") < 10


async def test_who_has_gone_is_passed_over() -> None:
    starts = Starts()
    waiting = [asyncio.create_task(starts.turn("a")) for _ in range(50)]
    await asyncio.sleep(0)
    for task in waiting[10:40]:
        task.cancel()
    done = await asyncio.gather(*waiting, return_exceptions=True)
    assert sum(one is None for one in done) >= 20
    await starts.turn("b")
