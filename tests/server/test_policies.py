"""Row policies, case by case, through gRPC: what each caller sees, and what nobody is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pyarrow as pa
import pytest

from psoup.access.principal import Principal
from psoup.server.calls.sync import sync
from psoup.store import Data, Entry, Position
from psoup.v1 import psoup_pb2 as pb
from tests.oracle.copy import Copy
from tests.support.server.callers import (
    NamedCaller,
    TenantServer,
    acting_as,
    new_call,
    tenant_server,
)
from tests.support.server.epochs import HandMadeEngine
from tests.support.server.process import detail

pytestmark = pytest.mark.usefixtures("counted_ids")

MINE = "CREATE POLICY mine ON {} USING (region = claim('region'))"
ORDERS = "CREATE STREAM orders (id BIGINT, region TEXT, total BIGINT) KEY (id)"
EVENTS = "CREATE STREAM events (region TEXT, n BIGINT)"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[TenantServer]:
    async with tenant_server(tmp_path / "store") as running:
        yield running


async def _orders(server: TenantServer) -> tuple[NamedCaller, NamedCaller, NamedCaller]:
    """A keyed stream with a policy; its administrator, and two callers."""
    boss = server.administrator
    await boss.define(ORDERS)
    await boss.define(MINE.format("orders"))
    await boss.publish("orders", id=[1, 2, 3], region=["eu", "us", "eu"], total=[10, 20, 30])
    return boss, server.caller(region="eu"), server.caller(region="us")


async def _events(server: TenantServer) -> tuple[NamedCaller, NamedCaller]:
    """A plain stream with a policy, and a caller who sees every second row."""
    boss = server.administrator
    await boss.define(EVENTS)
    await boss.define(MINE.format("events"))
    await boss.publish("events", region=["eu", "us"] * 5, n=list(range(10)))
    return boss, server.caller(region="eu")


# ---- what is shown


async def test_an_order_that_moves_to_another_region_leaves_the_answer(
    server: TenantServer,
) -> None:
    boss, eu, us = await _orders(server)
    handle = await boss.register("SELECT id, total FROM orders")
    copies = {"eu": Copy(), "us": Copy()}
    for name, caller in (("eu", eu), ("us", us)):
        await caller.sync(handle, copies[name], changes=True)
    assert (await eu.invoke(handle))[1] == [(1, 10), (3, 30)]
    assert (await us.invoke(handle))[1] == [(2, 20)]
    await boss.publish("orders", id=[1], region=["us"], total=[11])
    assert (await eu.invoke(handle))[1] == [(3, 30)], "never shown as it was"
    assert (await us.invoke(handle))[1] == [(2, 20), (1, 11)]
    for name, caller in (("eu", eu), ("us", us)):
        begin = await caller.sync(handle, copies[name], changes=True)
        assert begin.mode == pb.SYNC_MODE_UNSPECIFIED
    assert copies["eu"].answer(copies["eu"].now) == [(3, 30)]
    assert copies["us"].answer(copies["us"].now) == [(2, 20), (1, 11)]
    assert len((await boss.invoke(handle))[1]) == 3, "an administrator sees all"


async def test_a_missing_claim_shows_nothing_and_several_policies_are_joined_by_or(
    server: TenantServer,
) -> None:
    boss, eu, _ = await _orders(server)
    text = "SELECT id FROM orders"
    for caller in (server.caller(), server.caller(region=None), server.caller(region=5)):
        assert await caller.ask(text) == []
    await boss.define("CREATE POLICY large ON orders USING (total >= claim('least'))")
    assert await server.caller(least=20).ask(text) == [2, 3]
    assert await server.caller(region="eu", least=20).ask(text) == [1, 2, 3]
    await boss.define("CREATE POLICY everybody ON orders USING (id = 2)")
    assert await server.caller().ask(text) == [2]
    await boss.define("DROP POLICY mine ON orders")
    assert await eu.ask(text) == [2]


async def test_a_claim_that_cannot_be_evaluated_shows_nothing_and_leaves_the_log_alone(
    server: TenantServer,
) -> None:
    boss, eu, _ = await _orders(server)
    before = server.core.follower.state.position
    # An authenticator that let the text through: what is filled in is tried before it is appended.
    assert await server.caller(region="\ud800").ask("SELECT id FROM orders") == []
    await boss.define("CREATE STREAM later (a BIGINT)")
    after = server.core.follower.state.position
    assert after.version == before.version + 1, "the policy with that claim is not in the log"
    assert await eu.ask("SELECT id FROM orders") == [1, 3]


async def test_the_owner_and_the_tenant_are_claims(server: TenantServer) -> None:
    boss = server.administrator
    await boss.define("CREATE STREAM notes (owner TEXT, tenant TEXT, n BIGINT)")
    await boss.publish("notes", owner=["main", "bob"], tenant=["main", "other"], n=[1, 2])
    await boss.define("CREATE POLICY own ON notes USING (owner = claim('sub'))")
    assert await server.caller().ask("SELECT n FROM notes") == [1]
    assert await server.caller(sub="bob").ask("SELECT n FROM notes") == [2]
    await boss.define("CREATE POLICY us ON notes USING (tenant = claim('tenant'))")
    assert await server.caller(sub="bob").ask("SELECT n FROM notes") == [1, 2]


async def test_rows_are_counted_among_those_that_are_shown(server: TenantServer) -> None:
    boss, eu = await _events(server)
    assert await eu.ask("SELECT n FROM events ROWS 2") == [6, 8]
    assert await boss.ask("SELECT n FROM events ROWS 2") == [8, 9]
    assert await eu.ask("SELECT n FROM events BEGIN ROW LAST - 3 END ROW LAST") == [6, 8]
    assert await eu.ask("SELECT row_id FROM events BEGIN ROW 3 END ROW 6") == [4, 6]
    # The window moves with every fourth row of the stream: now with the eighth.
    assert await eu.ask("SELECT n FROM events ROWS 2 SLIDE 4") == [4, 6]
    await boss.define("CREATE POLICY nine ON events USING (n = 9)")
    text = "SELECT region, n FROM events ROWS 1 PARTITION BY region"
    assert await eu.ask(text) == [("eu", 8), ("us", 9)]
    await boss.publish("events", region=["us", "eu"], n=[10, 11])
    assert await eu.ask(text) == [("us", 9), ("eu", 11)]


async def test_newest_current_rows_are_counted_among_those_that_are_shown(
    server: TenantServer,
) -> None:
    boss, eu, us = await _orders(server)
    await boss.publish("orders", id=[3], region=["us"], total=[31])
    assert await eu.ask("SELECT id FROM orders ROWS 1") == [1]
    assert await us.ask("SELECT id FROM orders ROWS 2") == [2, 3]
    assert await us.ask("SELECT id FROM orders ROWS 1 PARTITION BY region") == [3]
    ops = pa.array(["delete"])
    await boss.publish("orders", id=[1], region=["us"], total=[0], _op=ops)
    assert await eu.ask("SELECT id FROM orders ROWS 1") == []


async def test_only_rows_that_are_shown_refresh(server: TenantServer) -> None:
    boss, eu = await _events(server)
    await boss.define("CREATE STREAM ticks (n BIGINT)")
    await boss.publish("ticks", n=[1])
    handle = await boss.register("SELECT count(*) AS c FROM ticks REFRESH ON events")
    await boss.publish("ticks", n=[2])
    await boss.publish("events", region=["us"], n=[100])
    assert (await boss.invoke(handle))[1] == [2]
    assert (await eu.invoke(handle))[1] == [0], "the hidden row is no refresh point"
    await boss.publish("events", region=["eu"], n=[101])
    assert (await eu.invoke(handle))[1] == [2]


async def test_every_leg_is_bound(server: TenantServer) -> None:
    boss, eu, us = await _orders(server)
    await boss.define("CREATE STREAM lines (o BIGINT, item TEXT)")
    await boss.publish("lines", o=[1, 2, 3], item=["a", "b", "c"])
    left_join = "SELECT l.o, o.total FROM lines l LEFT JOIN orders o ON o.id = l.o ORDER BY l.o"
    assert await eu.ask(left_join) == [(1, 10), (2, None), (3, 30)]
    exists = "SELECT o FROM lines l WHERE EXISTS (SELECT 1 FROM orders o WHERE o.id = l.o)"
    assert await us.ask(exists) == [2]
    missing = exists.replace("EXISTS", "NOT EXISTS")
    assert await us.ask(missing) == [1, 3]
    assert await eu.ask("SELECT sum(total) AS s, count(*) AS n FROM orders") == [(40, 2)]
    assert await eu.ask(
        "SELECT total FROM orders WHERE total > (SELECT avg(total) FROM orders)"
    ) == [30]
    union = "SELECT id FROM orders UNION ALL SELECT o FROM lines"
    assert sorted(await us.ask(union)) == [1, 2, 2, 3]
    await boss.define("CREATE VIEW big AS SELECT id, total FROM orders WHERE total > 15")
    assert await eu.ask("SELECT id FROM big") == [3]


async def test_versions_that_are_looked_up_are_those_of_all_rows(server: TenantServer) -> None:
    boss, eu, us = await _orders(server)
    await boss.define("CREATE STREAM visits (o BIGINT)")
    await boss.publish("orders", id=[1], region=["us"], total=[11])
    await boss.publish("visits", o=[1])
    text = "SELECT o.total FROM visits v JOIN orders AS OF v.ts o ON o.id = v.o"
    assert await us.ask(text) == [11]
    assert await eu.ask(text) == [], "the version before is not current, though it is shown"


async def test_base_rows_and_changes_are_those_that_are_shown(server: TenantServer) -> None:
    boss, eu = await _events(server)
    handle = await boss.register("SELECT region, count(*) AS n FROM events GROUP BY region")
    copy, base = Copy(), Copy()
    await eu.sync(handle, copy, changes=True)
    await eu.sync(handle, base, base_rows=True)
    assert copy.answer(copy.now) == [("eu", 5)]
    assert len(base.rows) == 5 and all("us" not in row.values for row in base.rows.values())


# ---- copies


async def test_a_copy_is_whole_when_other_policies_bind_and_stays_with_a_renewed_credential(
    server: TenantServer,
) -> None:
    boss, eu, us = await _orders(server)
    handle = await boss.register("SELECT id FROM orders")
    copy = Copy()

    async def synced(caller: NamedCaller) -> tuple[int, list[object]]:
        begin = await caller.sync(handle, copy)
        return begin.reason, [row[0] for row in copy.answer(copy.now)]

    assert await synced(eu) == (pb.SYNC_REASON_FIRST, [1, 3])
    assert await synced(server.caller(region="eu", name="another")) == (0, [1, 3])
    assert await synced(us) == (pb.SYNC_REASON_PERMISSION, [2])
    assert await synced(us) == (0, [2])
    assert await synced(server.caller()) == (pb.SYNC_REASON_PERMISSION, [])
    assert await synced(boss) == (pb.SYNC_REASON_PERMISSION, [1, 2, 3])
    await boss.define("CREATE POLICY one ON orders USING (id = 1)")
    assert await synced(boss) == (0, [1, 2, 3])
    assert await synced(us) == (pb.SYNC_REASON_PERMISSION, [1, 2])
    await boss.define("DROP POLICY one ON orders")
    assert await synced(us) == (pb.SYNC_REASON_PERMISSION, [2])
    await boss.define("DROP POLICY mine ON orders")
    assert await synced(us) == (pb.SYNC_REASON_PERMISSION, [1, 2, 3])


async def test_a_token_of_one_caller_shows_another_nothing(server: TenantServer) -> None:
    boss, eu, us = await _orders(server)
    handle = await boss.register("SELECT id FROM orders")
    copy = Copy()
    await eu.sync(handle, copy)
    stolen = Copy(token=copy.token)
    assert (await us.sync(handle, stolen)).reason == pb.SYNC_REASON_PERMISSION
    assert stolen.answer(stolen.now) == [(2,)]


async def test_a_transfer_ends_when_a_policy_comes_under_way(tmp_path: Path) -> None:
    """Nothing of what the policy hides is sent from then on, and the next sync begins anew."""
    async with tenant_server(tmp_path / "store", sync_bytes=200) as server:
        boss, eu = await _events(server)
        await boss.publish("events", region=["eu"] * 100, n=list(range(100, 200)))
        handle = await boss.register("SELECT n, region FROM events")
        caller = Principal("main", "main", frozenset({"developer"}), eu.claims)
        copy, parts = Copy(), 0
        with acting_as(caller):
            request = pb.SyncRequest(items=[pb.SyncItem(handle=handle)])
            async for part in sync(server.core, new_call(), request):
                assert not part.HasField("end")
                copy.take(part)
                parts += 1
                if parts == 5:
                    await boss.define("DROP POLICY mine ON events")
                    await boss.define("CREATE POLICY low ON events USING (n < 5)")
        copy.cut()
        assert parts < 10 and copy.resume
        assert (await eu.sync(handle, copy)).reason == pb.SYNC_REASON_PERMISSION
        assert [row[0] for row in copy.answer(copy.now)] == [0, 1, 2, 3, 4]


async def test_a_watch_is_told_when_a_policy_comes(server: TenantServer) -> None:
    boss, eu = await _events(server)
    handle = await boss.register("SELECT n FROM events")
    items = [pb.SyncItem(handle=handle)]
    request = pb.WatchRequest(sync=pb.SyncRequest(items=items), rounds=2)
    call = eu.stub.Watch(request, metadata=eu.metadata, timeout=120)
    copy, reasons = Copy(), []
    async for part in call:
        if part.HasField("beat"):
            continue
        copy.take(part)
        if part.HasField("begin"):
            reasons.append(part.begin.reason)
        if part.HasField("end") and len(reasons) == 1:
            assert len(copy.rows) == 5
            await boss.define("CREATE POLICY seven ON events USING (n = 7)")
    assert reasons == [pb.SYNC_REASON_FIRST, pb.SYNC_REASON_PERMISSION] and len(copy.rows) == 6


# ---- what is not told


async def test_whoever_is_bound_is_told_no_number_of_hidden_rows(server: TenantServer) -> None:
    boss, eu = await _events(server)
    handle = await boss.register("SELECT n FROM events WHERE n >= 2 RANGE 1 HOUR")
    await boss.register("SELECT n FROM events WHERE n > 3")
    header, values = await eu.invoke(handle)
    assert values == [2, 4, 6, 8] and header.row_count == 4
    assert (header.computed_rows, header.behind_rows, header.joined_pairs) == (0, 0, 0)
    assert (await boss.invoke(handle))[0].behind_rows > 0
    explained = await eu.only("Explain", pb.ExplainRequest(handle=handle))
    (leg,) = explained.legs
    assert leg.row_count == 4
    assert (leg.stream_rows, leg.matched_rows, leg.considered_rows) == (0, 0, 0)
    assert (leg.registration_count, leg.other_predicates, leg.compared_predicates) == (0, 0, 0)
    assert (explained.stream_rows, explained.matched_rows) == (0, 0)
    assert (explained.run.considered_rows, explained.run.computed_rows) == (0, 0)
    assert explained.run.answer_rows == 4
    described = await eu.only("DescribeRegistration", pb.DescribeRegistrationRequest(handle=handle))
    assert (described.stream_rows, described.legs[0].matched_rows) == (0, 0)
    stream = await eu.only("DescribeStream", pb.DescribeStreamRequest(name="events"))
    assert stream.row_count == 0 and not stream.policies
    (listed,) = (await eu.only("ListStreams", pb.ListStreamsRequest())).streams
    assert listed.row_count == 0
    description = await boss.only("DescribeStream", pb.DescribeStreamRequest(name="events"))
    assert description.row_count == 10 and list(description.policies) == [MINE.format("events")]
    whole = await boss.only("Explain", pb.ExplainRequest(handle=handle))
    assert whole.stream_rows == 10 and whole.other_predicates == 2
    for caller, count in ((eu, 0), (boss, 10)):
        status = await caller.only("Status", pb.StatusRequest())
        assert (status.behind_rows, status.HasField("behind")) == (count, True)
        assert bool(status.behind.ToTimedelta()) == bool(count)


async def test_status_does_not_say_which_hidden_rows_are_lost(server: TenantServer) -> None:
    boss, eu = await _events(server)
    core = server.core
    state, version = core.follower.state, core.follower.version + 1
    junk = Data(1, "", 0, 5, 10, state.clock, state.clock, None, None, b"", b"", b"junk")
    entry = Entry(Position(version, 0), state.clock, "main", "main", junk)
    core.store.log.append(version, [entry])
    await core.follower.catch_up()
    holes = []
    for caller in (eu, boss, server.caller("operator")):
        (hole,) = (await caller.only("Status", pb.StatusRequest())).holes
        holes.append((hole.stream, hole.first_row_id, hole.row_count, bool(hole.file)))
    assert holes == [("events", 0, 0, False), ("events", 10, 5, False), ("events", 10, 5, True)]


async def test_errors_tell_no_number_of_hidden_rows(tmp_path: Path) -> None:
    async with tenant_server(tmp_path / "store", compute_rows=7, wait=0.2) as server:
        boss, eu = await _events(server)
        handle = await boss.register("SELECT n FROM events WHERE n > 3")
        for caller, message in ((boss, "it did 7 and"), (eu, "it did some and")):
            with pytest.raises(grpc.RpcError) as refused:
                await caller.invoke(handle)
            assert detail(refused.value).reason == "TOO_MUCH_WORK"
            assert message in (refused.value.details() or "")
        handle = await boss.register("SELECT n FROM events WHERE n > 5")
        for caller, message in ((boss, "it is 10 rows behind"), (eu, "over all its rows")):
            with pytest.raises(grpc.RpcError) as refused:
                await caller.invoke(handle, wait_for_engine=True)
            assert (refused.value.details() or "").endswith(message)


async def test_another_query_is_not_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from psoup.answers.matching import matcher

    for name, value in (
        ("MIN_LOOKUP_ROWS", 1),
        ("_CANDIDATE_SPARSITY", 1),
        ("_MIN_READ_WEIGHT", 0),
    ):
        monkeypatch.setattr(matcher, name, value)
    async with tenant_server(tmp_path / "store") as server:
        boss, eu = await _events(server)
        engine = HandMadeEngine(server.core.store)
        await boss.register("SELECT n FROM events WHERE n > 4")
        engine.step()
        await boss.publish("events", region=["eu", "us"] * 20, n=list(range(40)))
        engine.step()
        await server.core.follower.refresh()
        handle = await boss.register("SELECT n FROM events WHERE n > 30")
        assert (await eu.invoke(handle))[1] == [32, 34, 36, 38]
        explained = await eu.only("Explain", pb.ExplainRequest(handle=handle))
        implied = explained.legs[0].implied_by
        assert implied.condition == "n > 4", "the caller's own"
        assert (implied.rows, implied.looked_at_rows) == (0, 0)
        neighbour = NamedCaller(server.stub, "main", "other", eu.roles, eu.claims)
        handle = await neighbour.register("SELECT n FROM events WHERE n > 30")
        explained = await neighbour.only("Explain", pb.ExplainRequest(handle=handle))
        implied = explained.legs[0].implied_by
        assert implied.condition == "another query"


# ---- statements


async def test_policies_are_made_and_dropped_by_name(server: TenantServer) -> None:
    boss, _, _ = await _orders(server)
    await boss.define("CREATE VIEW big AS SELECT id FROM orders")
    for sql, reason in (
        (MINE.format("orders"), "POLICY_EXISTS"),
        ("DROP POLICY other ON orders", "UNKNOWN_POLICY"),
        ("DROP POLICY mine ON nothing", "UNKNOWN_STREAM"),
        (MINE.format("nothing"), "UNKNOWN_STREAM"),
        (MINE.format("big"), "NOT_A_STREAM"),
    ):
        with pytest.raises(grpc.RpcError) as refused:
            await boss.define(sql)
        assert detail(refused.value).reason == reason, sql
    await boss.define("DROP POLICY mine ON orders")
    response = await boss.define(MINE.format("orders"))
    assert list(response.stream.policies) == [MINE.format("orders")]


# ---- the predicates of policies with claims filled in


def _filled(server: TenantServer) -> list[str]:
    return [policy.key for policy in server.core.follower.state.access.filled.values()]


def _sharing(server: TenantServer, predicate_id: int) -> int:
    return server.core.follower.state.predicates[predicate_id].registrations


async def _noted(server: TenantServer, count: int) -> None:
    async with asyncio.timeout(240):
        while len(_filled(server)) != count:
            await asyncio.sleep(0.01)


async def test_a_policy_is_a_predicate_for_all_callers_with_equal_claims(tmp_path: Path) -> None:
    path = tmp_path / "store"
    async with tenant_server(path) as server:
        boss, eu = await _events(server)
        handle = await boss.register("SELECT n FROM events WHERE region = 'eu'")
        for caller in (eu, server.caller(region="eu", other=1), server.caller(region="us")):
            await caller.invoke(handle)
        await _noted(server, 2)
        shared = server.core.follower.state.predicates.find(1, _filled(server)[0])
        assert shared == 1 and _sharing(server, 1) == 2
        engine = HandMadeEngine(server.core.store)
        engine.step()
    async with tenant_server(path) as server:
        boss, eu = server.administrator, server.caller(region="eu")
        assert len(_filled(server)) == 2 and _sharing(server, 1) == 2
        await boss.publish("events", region=["eu", "us"], n=[10, 11])
        engine.step()
        await server.core.follower.refresh()
        everything = await boss.register("SELECT n FROM events")
        assert (await eu.invoke(everything))[1] == [0, 2, 4, 6, 8, 10]
        await boss.only("Unregister", pb.UnregisterRequest(handle=handle))
        assert _sharing(server, 1) == 1
        await boss.define("DROP POLICY mine ON events")
        await _noted(server, 0)
        assert 1 not in server.core.follower.state.predicates


async def test_the_predicates_of_policies_end_unused_and_with_the_stream(tmp_path: Path) -> None:
    async with tenant_server(tmp_path / "store", policy_lease=0) as server:
        boss, eu = await _events(server)
        await eu.ask("SELECT n FROM events")
        await _noted(server, 1)
        assert await server.core.policies.end_unused() == 1
        assert not _filled(server) and not server.core.follower.state.predicates
        assert await eu.ask("SELECT n FROM events") == [0, 2, 4, 6, 8]
        await _noted(server, 1)
        await boss.define("DROP STREAM events")
        await _noted(server, 0)
        state = server.core.follower.state
        assert not state.predicates and not state.access.policies
