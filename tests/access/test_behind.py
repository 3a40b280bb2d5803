"""How far the engine is behind is told of the caller's own streams: no publish into others moves
it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from psoup.server.core import Core
from psoup.v1 import psoup_pb2 as pb
from tests.support.server.callers import NamedCaller, open_server
from tests.support.server.epochs import HandMadeEngine

STREAMS = ("trades", "quotes", "names", "beats", "unused")
# Queries, and the streams each of them reads or is refreshed by.
QUERIES = {
    "SELECT a FROM trades": {"trades"},
    "SELECT t.a FROM trades t JOIN quotes q ON t.a = q.a": {"trades", "quotes"},
    "SELECT t.a FROM trades t JOIN trades u ON t.a = u.a": {"trades"},
    "SELECT a FROM trades UNION ALL SELECT a FROM names": {"trades", "names"},
    "SELECT a FROM trades WHERE a IN (SELECT a FROM quotes WHERE a > 0)": {"trades", "quotes"},
    "SELECT a FROM small": {"quotes", "names"},
    "SELECT count(*) AS n FROM trades REFRESH ON beats": {"trades", "beats"},
}


class Market:
    """Two tenants with streams of the same names, and an engine that is told when to step."""

    def __init__(self, core: Core, stub: Any) -> None:
        self.core = core
        self.ann = NamedCaller(stub, "mine", "ann", ("administrator",))
        self.bob = NamedCaller(stub, "theirs", "bob", ("administrator",))
        self.reader = NamedCaller(stub, "mine", "rea", ("field",))
        self.root = NamedCaller(stub, "ops", "root", ("operator",))
        self._engine = HandMadeEngine(core.store)

    async def prepare(self) -> None:
        for caller in (self.ann, self.bob):
            for name in STREAMS:
                await caller.define(f"CREATE STREAM {name} (a BIGINT)")
        await self.ann.define(
            "CREATE VIEW small AS SELECT q.a FROM quotes q JOIN names n ON q.a = n.a"
        )

    async def step(self) -> None:
        number = self._engine.step().number
        async with asyncio.timeout(240):
            while self.core.follower.epoch.number < number:
                await self.core.follower.moved(1)

    async def header(self, caller: NamedCaller, sql: str, **fields: Any) -> pb.AnswerHeader:
        first, *_ = await caller.call("Ask", pb.AskRequest(sql=sql, **fields))
        header: pb.AnswerHeader = first.header
        return header


@pytest.fixture
async def market(tmp_path: Path) -> AsyncIterator[Market]:
    async with open_server(tmp_path / "store", wait=0.2) as (server, stub):
        market = Market(server.core, stub)
        await market.prepare()
        yield market


@pytest.mark.parametrize("sql", QUERIES)
async def test_the_streams_of_the_query_are_counted_and_no_others(market: Market, sql: str) -> None:
    for place, name in enumerate(STREAMS):
        await market.ann.publish(name, a=[*range(1 << place)])
    counts = {name: 1 << place for place, name in enumerate(STREAMS)}
    header = await market.header(market.ann, sql)
    assert header.behind_rows == sum(counts[name] for name in QUERIES[sql])
    assert header.behind.ToTimedelta()
    await market.step()
    unread = [name for name in STREAMS if name not in QUERIES[sql]]
    for caller, names in ((market.bob, STREAMS), (market.ann, unread)):
        for name in names:
            await caller.publish(name, a=[*range(3)])
    header = await market.header(market.ann, sql)
    assert (header.behind_rows, header.behind.ToMicroseconds()) == (0, 0)


async def test_what_refreshes_counts_only_where_it_does(market: Market) -> None:
    await market.ann.publish("trades", a=[0])
    await market.step()
    await market.ann.publish("beats", a=[*range(5)])
    sql = "SELECT count(*) AS n FROM trades REFRESH ON beats"
    assert (await market.header(market.ann, sql)).behind_rows == 5
    assert (await market.header(market.ann, sql, unrefreshed=True)).behind_rows == 0


async def test_the_age_is_that_of_the_own_rows(market: Market) -> None:
    await market.bob.publish("trades", a=[0])
    await asyncio.sleep(0.3)
    await market.ann.publish("trades", a=[0])
    age = (await market.header(market.ann, "SELECT a FROM trades")).behind.ToMicroseconds()
    # Asked for later, so that it is greater by at least the pause, however slow the calls are.
    whole = (await market.root.only("Status", pb.StatusRequest())).behind.ToMicroseconds()
    assert 0 < age < whole - 200_000


async def test_an_invoke_that_waits_is_told_of_its_own_streams(market: Market) -> None:
    await market.bob.publish("trades", a=[*range(100)])
    await market.ann.publish("trades", a=[*range(7)])
    sql = "SELECT a FROM trades WHERE a > 3"
    handle = await market.ann.register(sql)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await market.ann.invoke(handle, wait_for_engine=True)
    assert (refused.value.details() or "").endswith("it is 7 rows behind")


async def test_status_is_of_the_streams_that_the_caller_reads(market: Market) -> None:
    await market.ann.define("GRANT read ON trades TO ROLE field")
    await market.ann.define("GRANT publish ON quotes TO ROLE field")
    await market.bob.publish("trades", a=[*range(100)])
    await market.ann.publish("trades", a=[*range(3)])
    await market.ann.publish("quotes", a=[*range(5)])

    async def statuses(of: Callable[[pb.StatusResponse], Any]) -> list[Any]:
        callers = (market.reader, market.ann, market.bob, market.root)
        return [of(await caller.only("Status", pb.StatusRequest())) for caller in callers]

    assert await statuses(lambda status: status.behind_rows) == [3, 8, 100, 108]
    await market.step()
    await market.ann.register("SELECT a FROM trades")
    await market.step()
    unmatched = await statuses(lambda status: status.backfill_rows + status.rest_rows)
    assert unmatched == [0, 0, 0, 3], "of the whole store"
    await market.ann.publish("quotes", a=[*range(5)])
    behind = await statuses(
        lambda status: (status.behind_rows, bool(status.behind.ToMicroseconds()))
    )
    assert behind == [(0, False), (5, True), (0, False), (5, True)]


async def test_whoever_reads_only_the_view_is_told_no_number(market: Market) -> None:
    for stream, count in (("quotes", 3), ("names", 4)):
        await market.ann.publish(stream, a=[*range(count)])
    await market.ann.define("GRANT read, register ON small TO ROLE field")
    handle = await market.reader.register("SELECT a FROM small")
    for all_shown in (False, True):
        header = await market.header(market.reader, "SELECT a FROM small")
        numbers = (header.computed_rows, header.joined_pairs, header.behind_rows)
        assert (header.row_count, any(numbers)) == (3, all_shown)
        assert header.HasField("behind") == all_shown
        explained = await market.reader.only("Explain", pb.ExplainRequest(handle=handle))
        counted = [(leg.stream_rows, leg.considered_rows) for leg in explained.legs]
        assert counted == ([(3, 3), (4, 4)] if all_shown else [(0, 0), (0, 0)])
        assert [leg.row_count for leg in explained.legs] == [3, 4]
        for stream in ("quotes", "names"):
            await market.ann.define(f"GRANT read ON {stream} TO ROLE field")
