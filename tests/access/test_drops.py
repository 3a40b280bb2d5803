"""DROP ends what protects rows only for those who administer, and names what ends with it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest

from psoup.errors import PermissionDenied
from psoup.v1 import psoup_pb2 as pb
from psoup.write.streams import Drop
from tests.support.server.callers import NamedCaller, open_server
from tests.support.server.process import ipc

POLICY = "CREATE POLICY mine ON orders USING (region = claim('region'))"


@pytest.fixture
async def stub(tmp_path: Path) -> AsyncIterator[Any]:
    async with open_server(tmp_path / "store") as (_, stub):
        boss = administrator(stub)
        await boss.define("CREATE STREAM orders (region TEXT, amount BIGINT)")
        await boss.define("CREATE VIEW large AS SELECT amount FROM orders WHERE amount > 100")
        await boss.define("GRANT read ON large TO ROLE field")
        await boss.define("GRANT define ON orders TO OWNER dana")
        yield stub


def administrator(stub: Any) -> NamedCaller:
    return NamedCaller(stub, "shop", "boss", ("administrator",))


async def test_a_stream_with_policies_is_dropped_by_those_who_administer(stub: Any) -> None:
    boss = administrator(stub)
    await boss.define(POLICY)
    for owner, roles in (("dev", ("developer",)), ("dana", ())):
        for statement in ("DROP STREAM orders", "DROP STREAM orders CASCADE"):
            with pytest.raises(grpc.aio.AioRpcError) as problem:
                await NamedCaller(stub, "shop", owner, roles).define(statement)
            assert problem.value.code() is grpc.StatusCode.PERMISSION_DENIED, problem.value
    stream = await boss.only("DescribeStream", pb.DescribeStreamRequest(name="orders"))
    assert len(stream.policies) == 1
    await boss.define("DROP STREAM orders CASCADE")
    dev = NamedCaller(stub, "shop", "dev", ("developer",))
    await dev.define("CREATE STREAM orders (region TEXT)")
    await dev.define("DROP STREAM orders")


async def test_the_reply_names_what_ends(stub: Any) -> None:
    boss = administrator(stub)
    await boss.define(POLICY)
    reader = NamedCaller(stub, "shop", "ann", ("reader",))
    handle = await reader.register("SELECT amount FROM orders", client_key="mine")
    await reader.register("SELECT amount FROM large")
    table = ipc(pa.table({"least": list(range(200))}))
    sql = "SELECT amount FROM orders WHERE amount > :least"
    await boss.call("RegisterMany", pb.RegisterManyRequest(sql=sql, arrow=table))
    ended = (await boss.define("DROP VIEW large")).ended
    assert [grant.action for grant in ended.grants] == ["read"] and ended.grants[0].role == "field"
    assert (ended.registration_count, len(ended.registrations)) == (1, 1)
    assert list(ended.policies) == list(ended.views) == []
    await boss.define("CREATE VIEW large AS SELECT amount FROM orders")
    ended = (await boss.define("DROP STREAM orders CASCADE")).ended
    assert list(ended.views) == ["large"] and list(ended.policies) == ["mine"]
    assert [(grant.action, grant.object, grant.owner) for grant in ended.grants] == [
        ("define", "orders", "dana")
    ]
    assert ended.registration_count == 202 and len(ended.registrations) == 100
    first = ended.registrations[0]
    assert (first.handle, first.owner, first.client_key) == (handle, "ann", "mine")


async def test_others_see_of_it_what_is_theirs(stub: Any) -> None:
    dev = NamedCaller(stub, "shop", "dev", ("developer",))
    await administrator(stub).register("SELECT amount FROM orders")
    handle = await dev.register("SELECT amount FROM orders")
    ended = (await dev.define("DROP STREAM orders CASCADE")).ended
    assert list(ended.views) == ["large"] and not ended.grants and not ended.policies
    assert [registration.handle for registration in ended.registrations] == [
        handle
    ] and ended.registration_count == 1


async def test_a_policy_that_comes_just_before_the_drop_counts(tmp_path: Path) -> None:
    """The check is made over the state that the drop is appended to, not over an older one."""
    async with open_server(tmp_path / "store") as (server, stub):
        boss = administrator(stub)
        await boss.define("CREATE STREAM orders (region TEXT, amount BIGINT)")
        await boss.define(POLICY)
        with pytest.raises(PermissionDenied):
            await server.core.appender.submit(Drop("shop", "dev", "orders"))
