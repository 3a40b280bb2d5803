"""What a caller may not do is refused, and what a caller may not see is not there."""

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
    """A tenant with two streams, and a view over the one that few may read."""

    def __init__(self, stub: Any) -> None:
        self.stub = stub
        self.boss = NamedCaller(stub, "shop", "boss", ("administrator",))
        self.alice = NamedCaller(stub, "shop", "alice", ("field",))
        self.bob = NamedCaller(stub, "shop", "bob", ("field",))

    async def prepare(self) -> None:
        for name in ("orders", "order_costs"):
            await self.define(f"CREATE STREAM {name} (region TEXT, amount BIGINT)")
            await self.boss.publish(name, region=["north", "south"], amount=[1, 2])
        await self.define(
            "CREATE VIEW northern AS SELECT * FROM order_costs WHERE region = 'north'"
        )
        await self.define("GRANT read, register ON orders TO ROLE field")

    async def define(self, sql: str) -> None:
        await self.boss.define(sql)


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    async with open_server(tmp_path / "store") as (_, stub):
        shop = Shop(stub)
        await shop.prepare()
        yield shop


async def refused(caller: NamedCaller, rpc: str, request: Any) -> tuple[str, str, pb.ErrorDetail]:
    with pytest.raises(grpc.aio.AioRpcError) as problem:
        await caller.call(rpc, request)
    error = problem.value
    return error.code().name, error.details() or "", detail(error)


async def amounts(caller: NamedCaller, handle: bytes) -> list[int]:
    _, *parts = await caller.call("Invoke", pb.InvokeRequest(handle=handle))
    return [row.values[0].bigint for part in parts for row in part.rows.rows]


async def test_a_stream_nobody_showed_me_is_like_one_that_is_not_there(shop: Shop) -> None:
    for sql in ("SELECT amount FROM {}", "SELECT nothing FROM {}", "SELECT a FROM orders, {}"):
        hidden, unknown = [
            await refused(shop.alice, "Ask", pb.AskRequest(sql=sql.format(name)))
            for name in ("order_costs", "order_casts")
        ]
        assert hidden[0] == unknown[0] == "NOT_FOUND"
        assert hidden[1] == unknown[1].replace("order_casts", "order_costs")
        assert hidden[2].hint == unknown[2].hint and "order_costs" not in hidden[2].hint
    near = await refused(shop.boss, "Ask", pb.AskRequest(sql="SELECT amount FROM order_casts"))
    assert "order_costs" in near[2].hint, "whoever sees it is helped"
    (listed,) = await shop.alice.call("ListStreams", pb.ListStreamsRequest())
    assert [stream.name for stream in listed.streams] == ["orders"]
    (views,) = await shop.alice.call("ListViews", pb.ListViewsRequest())
    assert not views.views


async def test_read_on_a_view_is_enough(shop: Shop) -> None:
    sql = "SELECT amount FROM northern"
    assert (await refused(shop.alice, "Ask", pb.AskRequest(sql=sql)))[0] == "NOT_FOUND"
    await shop.define("GRANT read, register ON northern TO OWNER 'alice'")
    handle = await shop.alice.register(sql)
    assert await amounts(shop.alice, handle) == [1]
    (views,) = await shop.alice.call("ListViews", pb.ListViewsRequest())
    assert [(view.name, view.sql, list(view.over)) for view in views.views] == [
        ("northern", "", [])
    ]
    (description,) = await shop.alice.call(
        "DescribeRegistration", pb.DescribeRegistrationRequest(handle=handle)
    )
    assert (description.stream, description.stream_rows, list(description.views)) == (
        "",
        0,
        ["northern"],
    )
    both = "SELECT n.amount FROM northern n JOIN order_costs c ON n.amount = c.amount"
    assert (await refused(shop.alice, "Ask", pb.AskRequest(sql=both)))[0] == "NOT_FOUND"
    inside = "SELECT amount FROM orders WHERE amount IN (SELECT amount FROM order_costs)"
    assert (await refused(shop.alice, "Ask", pb.AskRequest(sql=inside)))[0] == "NOT_FOUND"
    refreshed = "SELECT amount FROM orders REFRESH ON order_costs WHERE amount > 0"
    assert (await refused(shop.alice, "Ask", pb.AskRequest(sql=refreshed)))[0] == "NOT_FOUND"
    await shop.define("GRANT publish ON order_costs TO OWNER 'alice'")
    for text in (both, inside, refreshed):
        code, message, _ = await refused(shop.alice, "Ask", pb.AskRequest(sql=text))
        assert (code, "read on order_costs" in message) == ("PERMISSION_DENIED", True), text
    assert await amounts(shop.alice, handle) == [1]


async def test_a_view_hands_on_only_what_its_maker_may_read(shop: Shop) -> None:
    await shop.define("GRANT define ON ALL TO OWNER 'alice'")
    request = pb.DefineRequest(sql="CREATE VIEW leak AS SELECT * FROM order_costs")
    assert (await refused(shop.alice, "Define", request))[0] == "PERMISSION_DENIED"
    await shop.alice.call(
        "Define", pb.DefineRequest(sql="CREATE VIEW mine AS SELECT * FROM orders")
    )


async def test_somebody_else_s_handle_is_an_unknown_one(shop: Shop) -> None:
    handle = await shop.alice.register("SELECT amount FROM orders", client_key="mine")
    bobs_handle = await shop.bob.register("SELECT region FROM orders", client_key="mine")
    assert handle != bobs_handle, "client keys are per owner"
    for rpc in ("Invoke", "Explain", "DescribeRegistration", "Unregister"):
        request_type = getattr(pb, f"{rpc}Request")
        refusals = [
            await refused(shop.bob, rpc, request_type(handle=tried))
            for tried in (handle, bytes(16))
        ]
        for _, _, problem in refusals:
            problem.ClearField("got")
        assert refusals[0] == refusals[1] and refusals[0][2].reason == "UNKNOWN_HANDLE"
    items = [pb.SyncItem(handle=handle), pb.SyncItem(handle=bytes(16))]
    parts = await shop.bob.call("Sync", pb.SyncRequest(items=items))
    for part in parts:
        part.refused.detail.ClearField("got")
    assert parts[0].refused == parts[1].refused
    (listed,) = await shop.bob.call("ListRegistrations", pb.ListRegistrationsRequest())
    assert [registration.handle for registration in listed.registrations] == [bobs_handle]
    foreign_request = pb.ListRegistrationsRequest(owner="alice")
    assert (await refused(shop.bob, "ListRegistrations", foreign_request))[0] == "PERMISSION_DENIED"
    assert await amounts(shop.boss, handle) == [1, 2]
    named = pb.RegisterRequest(sql="SELECT * FROM orders", owner="alice")
    assert (await refused(shop.bob, "Register", named))[0] == "PERMISSION_DENIED"


async def test_a_token_is_of_use_to_its_own_caller_only(shop: Shop) -> None:
    handle = await shop.alice.register("SELECT amount FROM orders")
    request = pb.SyncRequest(items=[pb.SyncItem(handle=handle)])
    token = (await shop.alice.call("Sync", request))[-1].end.token
    request = pb.SyncRequest(items=[pb.SyncItem(handle=handle, token=token)])
    again = await shop.alice.call("Sync", request)
    assert again[0].begin.mode == pb.SYNC_MODE_UNSPECIFIED
    for caller in (shop.boss, NamedCaller(shop.stub, "ops", "root", ("operator",))):
        request = pb.SyncRequest(tenant="shop", items=[pb.SyncItem(handle=handle, token=token)])
        parts = await caller.call("Sync", request)
        assert parts[0].begin.reason == pb.SYNC_REASON_UNREADABLE_TOKEN


async def test_a_grant_that_is_gone_empties_the_copy(shop: Shop) -> None:
    handle = await shop.alice.register("SELECT amount FROM orders")

    async def sync(token: bytes) -> list[pb.SyncPart]:
        item = pb.SyncItem(handle=handle, token=token)
        return await shop.alice.call("Sync", pb.SyncRequest(items=[item]))

    token = (await sync(b""))[-1].end.token
    await shop.define("REVOKE read ON orders FROM ROLE field")
    assert (await refused(shop.alice, "Invoke", pb.InvokeRequest(handle=handle)))[0] == (
        "PERMISSION_DENIED"
    )
    begin, end = await sync(token)
    assert begin.begin.mode == pb.SYNC_MODE_WHOLE
    assert begin.begin.reason == pb.SYNC_REASON_PERMISSION
    assert (end.end.row_count, end.end.digest) == (0, bytes(16))
    begin, end = await sync(end.end.token)
    assert begin.begin.mode == pb.SYNC_MODE_UNSPECIFIED, "the client knows"
    await shop.define("GRANT read ON orders TO ROLE field")
    back = await sync(end.end.token)
    assert back[0].begin.reason == pb.SYNC_REASON_PERMISSION
    assert back[-1].end.row_count == 2
    await shop.alice.call("Unregister", pb.UnregisterRequest(handle=handle))


async def test_a_watch_is_told_of_a_revocation(shop: Shop) -> None:
    handle = await shop.alice.register("SELECT amount FROM orders")
    sync = pb.SyncRequest(items=[pb.SyncItem(handle=handle)])
    request = pb.WatchRequest(sync=sync, rounds=2)
    call = shop.stub.Watch(request, metadata=shop.alice.metadata, timeout=120)
    while not (await call.read()).HasField("end"):
        pass
    await shop.define("REVOKE read ON orders FROM ROLE field")
    begin = await call.read()
    assert begin.begin.reason == pb.SYNC_REASON_PERMISSION


async def test_grants_end_with_what_they_are_on(shop: Shop) -> None:
    await shop.define("GRANT read ON northern TO OWNER 'alice'")
    (grants,) = await shop.boss.call("ListGrants", pb.ListGrantsRequest())
    named = [(grant.object, grant.action, grant.role, grant.owner) for grant in grants.grants]
    assert named == [
        ("northern", "read", "", "alice"),
        ("orders", "read", "field", ""),
        ("orders", "register", "field", ""),
    ]
    await shop.define("DROP STREAM order_costs CASCADE")
    await shop.define("DROP STREAM orders")
    (grants,) = await shop.boss.call("ListGrants", pb.ListGrantsRequest())
    assert not grants.grants
    await shop.define("CREATE STREAM orders (region TEXT, amount BIGINT)")
    code, _, _ = await refused(shop.alice, "Ask", pb.AskRequest(sql="SELECT * FROM orders"))
    assert code == "NOT_FOUND", "a grant is on a stream, not on its name"
    revoked = pb.DefineRequest(sql="REVOKE read ON orders FROM ROLE field")
    assert (await refused(shop.boss, "Define", revoked))[2].reason == "NO_SUCH_GRANT"


async def test_whoever_administers_one_stream_grants_on_that_one(shop: Shop) -> None:
    await shop.define("GRANT administer ON orders TO OWNER 'bob'")
    await shop.bob.define("GRANT publish ON orders TO OWNER 'carol'")
    for sql in ("GRANT read ON ALL TO OWNER 'bob'", "GRANT read ON order_costs TO OWNER 'bob'"):
        code, _, _ = await refused(shop.bob, "Define", pb.DefineRequest(sql=sql))
        assert code == ("NOT_FOUND" if "costs" in sql else "PERMISSION_DENIED")


async def test_views_that_may_not_be_seen_are_not_named(shop: Shop) -> None:
    await shop.define("GRANT define ON order_costs TO OWNER 'alice'")
    for sql in ("DROP STREAM order_costs", "DROP STREAM order_costs CASCADE"):
        code, message, _ = await refused(shop.alice, "Define", pb.DefineRequest(sql=sql))
        assert code == "FAILED_PRECONDITION" and "northern" not in message


async def test_status_and_clock_say_nothing_of_others(shop: Shop) -> None:
    root = NamedCaller(shop.stub, "ops", "root", ("operator",))
    sql = "CREATE STREAM theirs (a BIGINT)"
    await root.call("Define", pb.DefineRequest(tenant="else", sql=sql))
    await shop.alice.register("SELECT * FROM orders")
    await shop.bob.register("SELECT * FROM orders")
    counts = []
    for caller in (shop.alice, shop.boss, root):
        (status,) = await caller.call("Status", pb.StatusRequest())
        counts.append((status.stream_count, status.registration_count, status.predicate_count))
        is_operator = caller is root
        assert (status.server != "") == is_operator and status.server_count == int(is_operator)
    assert counts == [(1, 1, 0), (2, 2, 0), (3, 2, 1)]
    (clock,) = await shop.boss.call("Clock", pb.ClockRequest())
    assert not clock.server and clock.HasField("clock")
    confirm = pb.ClockRequest(confirm=[1])
    assert (await refused(shop.boss, "Clock", confirm))[0] == "PERMISSION_DENIED"
    assert (await refused(root, "Clock", confirm))[0] == "INVALID_ARGUMENT"
