"""Functions through a server: who may call and drop them, and what their end changes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from psoup.v1 import psoup_pb2 as pb
from tests.support.server.callers import NamedCaller, open_server
from tests.support.server.process import detail


class Shop:
    """A tenant with a stream and two functions, and a caller who may read the stream."""

    def __init__(self, stub: Any) -> None:
        self.boss = NamedCaller(stub, "shop", "boss", ("administrator",))
        self.alice = NamedCaller(stub, "shop", "alice", ("field",))

    async def prepare(self) -> None:
        for sql in (
            "CREATE STREAM orders (region TEXT, amount DOUBLE)",
            "CREATE FUNCTION euro(x DOUBLE) AS x * 0.5",
            "CREATE FUNCTION gross(x DOUBLE) AS euro(x) + 1",
            "GRANT read, register ON orders TO ROLE field",
        ):
            await self.boss.define(sql)
        await self.boss.publish("orders", region=["north", "south"], amount=[10.0, 20.0])


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    async with open_server(tmp_path / "store") as (_, stub):
        shop = Shop(stub)
        await shop.prepare()
        yield shop


async def refused(caller: NamedCaller, sql: str) -> tuple[str, pb.ErrorDetail]:
    rpc, request = (
        ("Ask", pb.AskRequest(sql=sql))
        if sql.startswith("SELECT")
        else ("Define", pb.DefineRequest(sql=sql))
    )
    with pytest.raises(grpc.aio.AioRpcError) as problem:
        await caller.call(rpc, request)
    return problem.value.details() or "", detail(problem.value)


async def listed(caller: NamedCaller) -> dict[str, pb.Function]:
    response = await caller.only("ListViews", pb.ListViewsRequest())
    return {function.name: function for function in response.functions}


async def test_calling_takes_read_on_the_function_alone(shop: Shop) -> None:
    sql = "SELECT gross(amount) AS g FROM orders"
    assert await shop.boss.ask(sql) == [6.0, 11.0]
    assert (await refused(shop.alice, sql))[1].reason == "UNKNOWN_FUNCTION"
    assert not await listed(shop.alice)
    await shop.boss.define("GRANT define ON gross TO ROLE field")
    assert (await refused(shop.alice, sql))[1].reason == "PERMISSION_DENIED"
    await shop.boss.define("GRANT read ON gross TO ROLE field")
    assert await shop.alice.ask(sql) == [6.0, 11.0], "euro is the business of who made gross"
    assert (await refused(shop.alice, "SELECT euro(amount) AS e FROM orders"))[1].reason == (
        "UNKNOWN_FUNCTION"
    )
    (function,) = (await listed(shop.alice)).values()
    assert (function.name, function.sql, list(function.over)) == ("gross", "", [])
    all_ = await listed(shop.boss)
    assert all_["gross"].sql == "CREATE FUNCTION gross(x DOUBLE) AS euro(x) + 1"
    assert (list(all_["gross"].over), all_["gross"].type) == (["euro"], "DOUBLE")


async def test_a_view_calls_functions_that_its_readers_may_not(shop: Shop) -> None:
    await shop.boss.define("CREATE VIEW priced AS SELECT euro(amount) AS e FROM orders")
    await shop.boss.define("GRANT read ON priced TO ROLE field")
    assert await shop.alice.ask("SELECT e FROM priced") == [5.0, 10.0]
    message, problem = await refused(shop.boss, "DROP FUNCTION euro")
    assert problem.reason == "NAMED_BY_VIEWS" and "gross, priced" in message
    ended = (await shop.boss.define("DROP FUNCTION euro CASCADE")).ended
    assert sorted(ended.views) == ["gross", "priced"]
    assert not await listed(shop.boss)


async def test_makers_of_views_functions_and_policies_may_call_what_they_name(shop: Shop) -> None:
    await shop.boss.define("GRANT define ON ALL TO OWNER 'alice'")
    for sql in (
        "CREATE VIEW mine AS SELECT euro(amount) AS e FROM orders",
        "CREATE FUNCTION mine(x DOUBLE) AS euro(x)",
    ):
        assert (await refused(shop.alice, sql))[1].reason == "PERMISSION_DENIED"
    assert (await refused(shop.alice, "DROP FUNCTION mine"))[1].reason == "UNKNOWN_STREAM"


async def test_registrations_and_policies_stay_as_they_were_bound(shop: Shop) -> None:
    handle = await shop.boss.register("SELECT euro(amount) AS e FROM orders WHERE euro(amount) > 5")
    await shop.boss.define("CREATE POLICY big ON orders USING (euro(amount) > 5)")
    await shop.boss.define("DROP FUNCTION euro CASCADE")
    await shop.boss.define("CREATE FUNCTION euro(x DOUBLE) AS x * 100")
    assert (await shop.boss.invoke(handle))[1] == [10.0]
    assert await shop.alice.ask("SELECT amount FROM orders") == [20.0]
    assert await shop.boss.ask("SELECT euro(amount) AS e FROM orders") == [1000.0, 2000.0]


async def test_names_are_of_one_kind(shop: Shop) -> None:
    for sql in (
        "CREATE STREAM euro (a BIGINT)",
        "CREATE VIEW euro AS SELECT amount FROM orders",
        "CREATE FUNCTION orders(x DOUBLE) AS x",
        "CREATE FUNCTION euro(x DOUBLE) AS x",
    ):
        assert (await refused(shop.boss, sql))[1].reason == "STREAM_EXISTS"
    for sql in ("DROP VIEW euro", "DROP STREAM euro", "DROP FUNCTION orders"):
        assert (await refused(shop.boss, sql))[1].reason in ("UNKNOWN_STREAM", "NOT_A_STREAM")
    assert (await refused(shop.boss, "SELECT * FROM euro"))[1].reason == "NOT_A_STREAM"


async def test_another_server_reads_them_from_the_log(tmp_path: Path) -> None:
    async with open_server(tmp_path / "store") as (_, stub):
        shop = Shop(stub)
        await shop.prepare()
    async with open_server(tmp_path / "store") as (_, stub):
        shop = Shop(stub)
        assert await shop.boss.ask("SELECT gross(amount) AS g FROM orders") == [6.0, 11.0]
