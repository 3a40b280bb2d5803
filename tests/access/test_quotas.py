"""Quotas: the limit and the time to wait are said, and nothing past the limit is taken."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pyarrow as pa
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from psoup.errors import QuotaExceeded
from psoup.server.group.counts import LocalCounts
from psoup.server.quotas import Quotas
from psoup.store import State
from psoup.store.state.access import Quota
from psoup.v1 import psoup_pb2 as pb
from tests.support.server.callers import NamedCaller, open_server
from tests.support.server.process import detail, ipc

ROWS = pa.table({"a": list(range(100))})


@pytest.fixture
async def stub(tmp_path: Path) -> AsyncIterator[Any]:
    async with open_server(tmp_path / "store") as (_, stub):
        boss = NamedCaller(stub, "shop", "boss", ("administrator",))
        await boss.define("CREATE STREAM s (a BIGINT)")
        yield stub


async def allow(stub: Any, *, owner: str = "", **limits: int) -> None:
    root = NamedCaller(stub, "ops", "root", ("operator",))
    quota_limits = [pb.QuotaLimit(name=name, limit=limit) for name, limit in limits.items()]
    await root.call("SetQuota", pb.SetQuotaRequest(tenant="shop", owner=owner, limits=quota_limits))


async def refused(caller: NamedCaller, rpc: str, request: Any) -> pb.ErrorDetail:
    with pytest.raises(grpc.aio.AioRpcError) as problem:
        await caller.call(rpc, request)
    assert problem.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED, problem.value
    problem_detail = detail(problem.value)
    assert (
        problem_detail.reason == "QUOTA_EXCEEDED"
        and problem_detail.hint
        and problem_detail.expected
    )
    return problem_detail


async def test_registrations_are_counted_exactly(stub: Any) -> None:
    await allow(stub, registrations=5)
    await allow(stub, owner="alice", registrations=3)
    alice, bob = (NamedCaller(stub, "shop", name, ("reader",)) for name in ("alice", "bob"))
    query = "SELECT a FROM s WHERE a > :least"

    def many(*least: int, keys: list[str] | None = None) -> pb.RegisterManyRequest:
        columns: dict[str, Any] = {"least": list(least)}
        table = pa.table(columns | ({"client_key": keys} if keys else {}))
        return pb.RegisterManyRequest(sql=query, arrow=ipc(table))

    assert (await refused(alice, "RegisterMany", many(1, 2, 3, 4))).field == "registrations"
    await alice.call("RegisterMany", many(1, 2, keys=["x", "y"]))
    await alice.call("RegisterMany", many(1, 2, keys=["x", "y"]))
    (third,) = await alice.call("Register", pb.RegisterRequest(sql="SELECT * FROM s"))
    assert (await refused(alice, "Register", pb.RegisterRequest(sql="SELECT a FROM s"))).got
    await bob.call("RegisterMany", many(1, 2))
    last = await refused(bob, "Register", pb.RegisterRequest(sql="SELECT * FROM s"))
    assert last.expected == "at most 5" and not last.HasField("retry_after")
    await alice.call("Unregister", pb.UnregisterRequest(handle=third.handle))
    await bob.call("Register", pb.RegisterRequest(sql="SELECT * FROM s"))
    (status,) = await alice.call("Status", pb.StatusRequest())
    usage = [(quota.owner, quota.limits[0].limit, quota.limits[0].used) for quota in status.quotas]
    assert usage == [("", 5, 5), ("alice", 3, 2)]


async def test_rows_a_second_leave_a_debt(stub: Any) -> None:
    await allow(stub, rows_per_second=1)
    sender = NamedCaller(stub, "shop", "sender", ("publisher",))
    batch = pb.PublishRequest(stream="s", arrow=ipc(ROWS))
    await sender.call("Publish", batch)
    for rpc in ("Publish", "PublishStream"):
        refusal = await refused(sender, rpc, batch)
        assert refusal.field == "rows_per_second" and refusal.retry_after.seconds > 60
    root = NamedCaller(stub, "ops", "root", ("operator",))
    await root.call("SetQuota", pb.SetQuotaRequest(tenant="shop", remove=["rows_per_second"]))
    await sender.call("Publish", batch)


async def test_record_batches_without_rows_are_counted(stub: Any) -> None:
    empty = pa.record_batch({"a": pa.array([], pa.int64())})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, empty.schema) as writer:
        for _ in range(5000):
            writer.write_batch(empty)
    batch = pb.PublishRequest(stream="s", arrow=sink.getvalue().to_pybytes())
    sender = NamedCaller(stub, "shop", "sender", ("publisher",))
    await allow(stub, rows_per_second=10)
    await sender.call("Publish", batch)
    refusal = await refused(sender, "Publish", batch)
    assert refusal.field == "rows_per_second" and refusal.retry_after.seconds > 60


async def test_batches_without_rows_and_new_names_are_counted(stub: Any) -> None:
    boss = NamedCaller(stub, "shop", "boss", ("administrator",))
    await boss.define("CREATE STREAM timed (a BIGINT, at TIMESTAMP) ORDERED BY at")
    sender = NamedCaller(stub, "shop", "sender", ("publisher",))

    def heartbeat(name: str, sequence: int = 1) -> pb.PublishRequest:
        at = Timestamp(seconds=1_700_000_000)
        return pb.PublishRequest(stream="timed", publisher=name, sequence=sequence, heartbeat=at)

    await allow(stub, rows_per_second=1)
    for rpc in ("Publish", "PublishStream"):
        with pytest.raises(grpc.aio.AioRpcError):
            for number in range(100):
                await sender.call(rpc, heartbeat(f"{rpc} {number}"))
    root = NamedCaller(stub, "ops", "root", ("operator",))
    await root.call("SetQuota", pb.SetQuotaRequest(tenant="shop", remove=["rows_per_second"]))
    for name in (await sender.only("ListPublishers", pb.ListPublishersRequest())).publishers:
        await sender.call("ForgetPublishers", pb.ForgetPublishersRequest(names=[name.name]))

    await allow(stub, owner="sender", publishers=2)
    await sender.call("Publish", heartbeat("a"))
    await sender.call("Publish", heartbeat("b"))
    full = await refused(sender, "Publish", heartbeat("c"))
    assert full.field == "publishers" and "forget" in full.hint
    await sender.call("Publish", heartbeat("a", 2))
    await sender.call("Publish", heartbeat("a", 2))
    await sender.call("ForgetPublishers", pb.ForgetPublishersRequest(names=["b"]))
    await sender.call("Publish", heartbeat("c"))
    await allow(stub, publishers=3)
    second_sender = NamedCaller(stub, "shop", "other", ("publisher",))
    await second_sender.call("Publish", heartbeat("a"))
    assert (await refused(second_sender, "Publish", heartbeat("b"))).expected == "at most 3"


async def test_every_kind_of_object_is_counted(stub: Any) -> None:
    boss = NamedCaller(stub, "shop", "boss", ("administrator",))

    def define(sql: str) -> tuple[str, Any]:
        return "Define", pb.DefineRequest(sql=sql)

    def key() -> tuple[str, Any]:
        return "CreateKey", pb.CreateKeyRequest(owner="boss")

    cases: dict[str, tuple[tuple[str, Any], tuple[str, Any] | None]] = {
        "streams": (define("CREATE STREAM t (a BIGINT)"), define("DROP STREAM t")),
        "views": (define("CREATE VIEW v AS SELECT a FROM s"), define("DROP VIEW v")),
        "grants": (
            define("GRANT read, register ON s TO ROLE x"),
            define("REVOKE read, register ON s FROM ROLE x"),
        ),
        "policies": (define("CREATE POLICY p ON s USING (a > 1)"), define("DROP POLICY p ON s")),
        "keys": (key(), None),
    }
    for kind, (create, end) in cases.items():
        used = {"streams": 1}.get(kind, 0)
        room = 2 if kind == "grants" else 1
        await allow(stub, owner="", **{kind: used + room - 1})
        assert (await refused(boss, *create)).field == kind
        await allow(stub, owner="", **{kind: used + room})
        if kind != "grants":
            await allow(stub, owner="boss", **{kind: used + room})
        created = await boss.only(*create)
        (listed,) = await boss.call("ListQuotas", pb.ListQuotasRequest())
        counts = {usage.name: usage.used for quota in listed.quotas for usage in quota.limits}
        assert counts[kind] == used + room
        if kind == "keys":
            assert (await refused(boss, *key())).field == kind
            end = "RevokeKey", pb.RevokeKeyRequest(id=created.key.id)
        assert end is not None
        await boss.call(*end)
        await boss.call(*create)


async def test_events_a_second(stub: Any) -> None:
    await allow(stub, events_per_second=1)
    boss = NamedCaller(stub, "shop", "boss", ("administrator",))
    table = ipc(pa.table({"least": list(range(100))}))
    many = pb.RegisterManyRequest(sql="SELECT a FROM s WHERE a > :least", arrow=table)
    (registered,) = await boss.call("RegisterMany", many)
    batch = pb.PublishRequest(stream="s", arrow=ipc(ROWS))
    for rpc, request in {
        "Publish": batch,
        "PublishStream": batch,
        "Register": pb.RegisterRequest(sql="SELECT a FROM s"),
        "RegisterMany": many,
        "Unregister": pb.UnregisterRequest(handle=registered.handles[0]),
        "Define": pb.DefineRequest(sql="DROP STREAM s"),
        "CreateKey": pb.CreateKeyRequest(owner="x"),
        "ForgetPublishers": pb.ForgetPublishersRequest(names=["x"]),
    }.items():
        refusal = await refused(boss, rpc, request)
        assert refusal.field == "events_per_second" and refusal.retry_after.seconds > 60
    await boss.call("Ask", pb.AskRequest(sql="SELECT a FROM s"))
    await allow(stub, events_per_second=0)
    root = NamedCaller(stub, "ops", "root", ("operator",))
    request = pb.SetQuotaRequest(tenant="shop", remove=["events_per_second"])
    await root.call("SetQuota", request)
    await boss.call("Publish", batch)


async def test_bytes_of_a_tenant(stub: Any) -> None:
    await allow(stub, bytes=100)
    sender = NamedCaller(stub, "shop", "sender", ("publisher",))
    batch = pb.PublishRequest(stream="s", arrow=ipc(ROWS))
    await sender.call("Publish", batch)
    assert (await refused(sender, "Publish", batch)).field == "bytes"
    boss = NamedCaller(stub, "shop", "boss", ("administrator",))
    (listed,) = await boss.call("ListQuotas", pb.ListQuotasRequest())
    assert listed.quotas[0].limits[0].used > 100


async def test_work_a_second(stub: Any) -> None:
    await allow(stub, owner="alice", work_per_second=1000)
    alice = NamedCaller(stub, "shop", "alice", ("reader",))
    request = pb.AskRequest(sql="SELECT a FROM s")
    await alice.call("Ask", request)
    refusal = await refused(alice, "Ask", request)
    assert refusal.field == "work_per_second" and refusal.HasField("retry_after")
    bob = NamedCaller(stub, "shop", "bob", ("reader",))
    await bob.call("Ask", request)


async def test_open_watches(stub: Any) -> None:
    await allow(stub, owner="alice", watches=1)
    alice = NamedCaller(stub, "shop", "alice", ("reader",))
    (registered,) = await alice.call("Register", pb.RegisterRequest(sql="SELECT * FROM s"))
    sync = pb.SyncRequest(items=[pb.SyncItem(handle=registered.handle)])
    call = stub.Watch(pb.WatchRequest(sync=sync), metadata=alice.metadata, timeout=120)
    await call.read()
    assert (await refused(alice, "Watch", pb.WatchRequest(sync=sync))).field == "watches"
    call.cancel()


async def test_who_sets_quotas(stub: Any) -> None:
    await allow(stub, registrations=10)
    boss = NamedCaller(stub, "shop", "boss", ("administrator",))
    limits = [pb.QuotaLimit(name="registrations", limit=10)]
    await boss.call("SetQuota", pb.SetQuotaRequest(owner="alice", limits=limits))
    for wrong, code in (
        (pb.SetQuotaRequest(limits=limits), grpc.StatusCode.PERMISSION_DENIED),
        (_quota("alice", "registrations", 11), grpc.StatusCode.INVALID_ARGUMENT),
        (_quota("alice", "registrations", -1), grpc.StatusCode.INVALID_ARGUMENT),
        (_quota("alice", "bytes", 1), grpc.StatusCode.INVALID_ARGUMENT),
        (_quota("alice", "wishes", 3), grpc.StatusCode.INVALID_ARGUMENT),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as problem:
            await boss.call("SetQuota", wrong)
        assert problem.value.code() is code


def _quota(owner: str, name: str, limit: int) -> pb.SetQuotaRequest:
    return pb.SetQuotaRequest(owner=owner, limits=[pb.QuotaLimit(name=name, limit=limit)])


def test_a_bucket_fills_with_time_and_holds_one_second() -> None:
    state, clock = State(), SimpleNamespace(now=0.0)
    state.access.put(Quota("t", "", (("rows_per_second", 100),)))
    follower: Any = SimpleNamespace(state=state, stored_bytes=lambda id_: 0)
    quotas = Quotas(follower, LocalCounts(lambda: clock.now))

    def publish(rows: int) -> float:
        """The seconds to wait; 0 where the rows were taken."""
        try:
            quotas.check_rows("t", "o")
        except QuotaExceeded as full:
            wait: float = full.detail["retry_after"].total_seconds()
            return wait
        quotas.charge_rows("t", "o", rows)
        return 0.0

    assert publish(60) == 0 and publish(240) == 0, "a batch may be larger than what is left"
    assert publish(1) == 2.0
    clock.now += 1.9
    assert publish(1) == pytest.approx(0.1)
    clock.now += 0.2
    assert publish(10) == 0
    clock.now += 1000
    assert publish(150) == 0 and publish(1) == 0.5, "no more than one second's rows are saved up"
