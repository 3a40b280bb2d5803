"""The rules of publishing and registering, and the rest of the wire."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from psoup.server.calls.define import define
from psoup.server.calls.publish import publish
from psoup.server.core import Core
from psoup.server.settings import Settings
from psoup.store import Store
from psoup.v1 import psoup_pb2 as pb
from psoup.write.draft import RecentBatches
from tests.support.server.callers import new_call
from tests.support.server.process import ServerProcess, detail, ipc, rows_of

pytestmark = pytest.mark.process


def numbers(*values: int) -> pa.Table:
    return pa.table({"a": pa.array(values, pa.int64())})


@pytest.fixture
def stream(server: ServerProcess) -> ServerProcess:
    notes = server.define("CREATE STREAM s (a BIGINT)").notes
    assert "for ever" in notes[0]
    return server


def test_a_sequence_is_taken_once(stream: ServerProcess) -> None:
    first = stream.publish("s", numbers(1), publisher="p", sequence=1)
    second = stream.publish("s", numbers(2), publisher="p", sequence=2)
    for sequence, table, old in ((1, numbers(1), first), (2, numbers(2), second)):
        again = stream.publish("s", table, publisher="p", sequence=sequence)
        assert again.duplicate and again.position == old.position
        assert again.first_row_id == old.first_row_id
        with pytest.raises(grpc.RpcError) as caught:
            stream.publish("s", numbers(9), publisher="p", sequence=sequence)
        assert caught.value.code() == grpc.StatusCode.ALREADY_EXISTS
        assert detail(caught.value).reason == "SEQUENCE_REUSED"
    with pytest.raises(grpc.RpcError) as caught:
        stream.publish("s", numbers(4), publisher="p", sequence=4)
    assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert (detail(caught.value).expected, detail(caught.value).got) == ("3", "4")
    handle = stream.register("SELECT a FROM s").handle
    assert stream.values(handle) == [[1], [2]]


def test_a_repeat_whose_rows_are_forgotten_says_so(tmp_path: Path) -> None:
    async def replies() -> list[pb.PublishResponse]:
        core = Core(Store.open(tmp_path / "store", create=True), Settings(tmp_path))
        await core.start()
        core.follower.recent = RecentBatches(capacity=0)
        await define(core, new_call(), pb.DefineRequest(sql="CREATE STREAM s (a BIGINT)"))
        batches = [(1, 1), (2, 2), (2, 2), (1, 1), (9, 1)]
        responses = [
            await publish(
                core,
                new_call(),
                pb.PublishRequest(
                    stream="s", publisher="p", sequence=sequence, arrow=ipc(numbers(value))
                ),
            )
            for value, sequence in batches
        ]
        await core.stop()
        return responses

    *_, last, right, wrong = asyncio.run(replies())
    assert (last.duplicate, last.unverified, last.first_row_id) == (True, False, 1)
    for forgotten in (right, wrong):
        assert (forgotten.duplicate, forgotten.unverified) == (True, True)
        assert forgotten.first_row_id == -1


def test_every_error_names_the_store_it_comes_from(stream: ServerProcess) -> None:
    store_id = stream.stub.Status(pb.StatusRequest()).store_id
    calls: list[Callable[[], Any]] = [
        lambda: stream.define("CREATE STREAM s (a BIGINT)"),
        lambda: stream.publish("nowhere", numbers(1)),
        lambda: stream.register("SELECT nothing FROM s"),
        lambda: stream.values(b"0" * 16),
        lambda: list(stream.stub.PublishStream(iter([pb.PublishRequest(stream="nowhere")]))),
    ]
    for call in calls:
        with pytest.raises(grpc.RpcError) as caught:
            call()
        assert detail(caught.value).store_id == store_id
    items = [pb.SyncItem(handle=b"0" * 16)]
    (part,) = stream.stub.Sync(pb.SyncRequest(tenant=stream.tenant, items=items))
    assert part.refused.detail.store_id == store_id


def test_status_says_how_large_a_batch_may_be(stream: ServerProcess) -> None:
    limits = stream.stub.Status(pb.StatusRequest()).limits
    assert (limits.message_bytes, limits.batch_rows) == (16 << 20, 1_000_000)
    assert (limits.batch_bytes, limits.value_bytes) == (64 << 20, 1 << 20)


def test_the_same_rows_in_another_encoding_are_the_same(stream: ServerProcess) -> None:
    stream.publish("s", numbers(1, 2), publisher="p", sequence=1)
    rows = rows_of(["a"], [pb.Value(bigint=1)], [pb.Value(bigint=2)])
    assert stream.publish("s", rows=rows, publisher="p", sequence=1).duplicate


def test_a_client_key_names_one_query(stream: ServerProcess) -> None:
    first = stream.register("SELECT a FROM s WHERE a = :x", client_key="k",
                            parameters={"x": pb.Value(bigint=1)})  # fmt: skip
    again = stream.register("SELECT a FROM s WHERE a = :x", client_key="k",
                            parameters={"x": pb.Value(bigint=1)})  # fmt: skip
    assert (again.handle, again.created, first.created) == (first.handle, False, True)
    for sql, value in (("SELECT a FROM s WHERE a = :x", 2), ("SELECT a FROM s WHERE a <> :x", 1)):
        with pytest.raises(grpc.RpcError) as caught:
            stream.register(sql, client_key="k", parameters={"x": pb.Value(bigint=value)})
        assert caught.value.code() == grpc.StatusCode.ALREADY_EXISTS
    of_another_owner = stream.register("SELECT a FROM s", client_key="k", owner="someone")
    assert of_another_owner.created and of_another_owner.handle != first.handle
    stream.stub.Unregister(pb.UnregisterRequest(tenant=stream.tenant, handle=first.handle))
    fresh = stream.register("SELECT a FROM s", client_key="k")
    assert fresh.created and fresh.handle != first.handle
    with pytest.raises(grpc.RpcError) as caught:
        stream.values(first.handle)
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND


def test_many_registrations_at_once(stream: ServerProcess) -> None:
    sql = "SELECT a FROM s WHERE a >= :low AND a < :high"
    table = pa.table({"low": [0, 5, 0], "high": [5, 10, 5], "client_key": ["x", "y", None]})
    request = pb.RegisterManyRequest(tenant=stream.tenant, sql=sql, arrow=ipc(table))
    registered = stream.stub.RegisterMany(request)
    assert registered.created_count == 3
    stream.publish("s", numbers(*range(10)))
    answers = [[row[0] for row in stream.values(handle)] for handle in registered.handles]
    assert answers == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [0, 1, 2, 3, 4]]
    again = stream.stub.RegisterMany(request)
    assert again.created_count == 1
    assert list(again.handles[:2]) == list(registered.handles[:2])
    described = [
        stream.stub.DescribeRegistration(
            pb.DescribeRegistrationRequest(tenant=stream.tenant, handle=handle)
        )
        for handle in registered.handles
    ]
    assert described[1].parameters["low"].bigint == 5
    rows = rows_of(
        ["low", "high", "client_key"],
        [pb.Value(bigint=1), pb.Value(bigint=2), pb.Value(text="new")],
        [pb.Value(bigint=1), pb.Value(bigint=2), pb.Value(text="x")],
    )
    with pytest.raises(grpc.RpcError) as caught:
        stream.stub.RegisterMany(pb.RegisterManyRequest(tenant=stream.tenant, sql=sql, rows=rows))
    assert caught.value.code() == grpc.StatusCode.ALREADY_EXISTS
    listed = stream.stub.ListRegistrations(pb.ListRegistrationsRequest(tenant=stream.tenant))
    assert "new" not in [registration.client_key for registration in listed.registrations], (
        "all or none"
    )


def test_a_call_that_repeats_itself_registers_once(stream: ServerProcess) -> None:
    table = pa.table({"n": [1, 2, 1, 1], "client_key": ["a", "b", "a", None]})
    request = pb.RegisterManyRequest(
        tenant=stream.tenant, sql="SELECT a FROM s WHERE a = :n", arrow=ipc(table)
    )
    registered = stream.stub.RegisterMany(request)
    assert registered.created_count == 3
    assert registered.handles[0] == registered.handles[2] and len(set(registered.handles)) == 3
    stream.stub.Unregister(pb.UnregisterRequest(tenant=stream.tenant, handle=registered.handles[0]))
    again = stream.stub.RegisterMany(request)
    assert again.created_count == 2 and again.handles[1] == registered.handles[1]
    differing = pa.table({"n": [1, 2], "client_key": ["c", "c"]})
    with pytest.raises(grpc.RpcError) as caught:
        stream.stub.RegisterMany(
            pb.RegisterManyRequest(tenant=stream.tenant, sql=request.sql, arrow=ipc(differing))
        )
    assert caught.value.code() == grpc.StatusCode.ALREADY_EXISTS


@pytest.mark.parametrize("sql", ["SELECT a FROM s WHERE a < :n", "SELECT a FROM s LIMIT :n"])
def test_many_registrations_are_listed_in_their_order(stream: ServerProcess, sql: str) -> None:
    """The second text differs in more than its WHERE, so its rows are bound one by one."""
    table = pa.table({"n": list(range(25))})
    registered = stream.stub.RegisterMany(
        pb.RegisterManyRequest(tenant=stream.tenant, sql=sql, arrow=ipc(table))
    )
    registrations: list[pb.Registration] = []
    token = ""
    while True:
        page = stream.stub.ListRegistrations(
            pb.ListRegistrationsRequest(tenant=stream.tenant, page_size=4, page_token=token)
        )
        registrations += page.registrations
        token = page.next_page_token
        if not token:
            break
    assert [registration.handle for registration in registrations] == list(registered.handles)
    assert [registration.parameters["n"].bigint for registration in registrations] == list(
        range(25)
    )
    stream.publish("s", numbers(*range(30)))
    assert [len(stream.values(registration.handle)) for registration in registrations[:3]] == [
        0,
        1,
        2,
    ]


def test_registrations_come_in_pages(stream: ServerProcess) -> None:
    handles = [stream.register("SELECT a FROM s", owner=f"o{n % 2}").handle for n in range(7)]
    listed: list[bytes] = []
    token = ""
    while True:
        page = stream.stub.ListRegistrations(
            pb.ListRegistrationsRequest(tenant=stream.tenant, page_size=3, page_token=token)
        )
        listed += [registration.handle for registration in page.registrations]
        token = page.next_page_token
        if not token:
            break
    assert listed == handles
    of_one_owner = pb.ListRegistrationsRequest(tenant=stream.tenant, owner="o1")
    assert len(stream.stub.ListRegistrations(of_one_owner).registrations) == 3


def test_streams_are_listed_described_and_dropped(stream: ServerProcess) -> None:
    stream.define("CREATE STREAM e (a DECIMAL(5,2), at TIMESTAMP) ORDERED BY at RETAIN 1 DAY")
    listed = stream.stub.ListStreams(pb.ListStreamsRequest(tenant=stream.tenant)).streams
    assert [stream_.name for stream_ in listed] == ["e", "s"]
    assert listed[0].retain.ToSeconds() == 86400
    assert not listed[0].HasField("now") and listed[1].HasField("now")
    assert listed[0].columns[0].type == "DECIMAL(5,2)"
    handle = stream.register("SELECT a FROM s").handle
    stream.publish("s", numbers(1))
    dropped = stream.define("DROP STREAM s").stream
    assert (dropped.name, dropped.row_count, dropped.registration_count) == ("s", 1, 1)
    with pytest.raises(grpc.RpcError) as caught:
        stream.values(handle)
    assert detail(caught.value).reason == "STREAM_DROPPED"
    again = stream.define(listed[1].sql).stream
    assert again.id != dropped.id and again.row_count == 0


def test_batches_in_flight_are_answered_in_order(stream: ServerProcess) -> None:
    def requests(count: int) -> Iterator[pb.PublishRequest]:
        for number in range(1, count + 1):
            yield pb.PublishRequest(
                tenant=stream.tenant, stream="s", publisher="p", sequence=number,
                arrow=ipc(numbers(number)),
            )  # fmt: skip

    responses = list(stream.stub.PublishStream(requests(200)))
    assert [response.first_row_id for response in responses] == list(range(200))
    assert [response.position for response in responses] == sorted(
        response.position for response in responses
    )
    assert all(response.duplicate for response in stream.stub.PublishStream(requests(200)))


def test_nothing_after_a_refused_batch_is_taken(stream: ServerProcess) -> None:
    def request(**fields: Any) -> pb.PublishRequest:
        return pb.PublishRequest(tenant=stream.tenant, stream="s", **fields)

    good, bad = ipc(numbers(1)), ipc(pa.table({"b": [1]}))
    calls = [
        [request(arrow=good), request(arrow=bad), request(arrow=good)],
        [
            request(arrow=good),
            request(arrow=good, publisher="p", sequence=7),
            request(arrow=good),
        ],
    ]
    for number, batches in enumerate(calls, 1):
        response_count = 0
        with pytest.raises(grpc.RpcError):
            for _ in stream.stub.PublishStream(iter(batches)):
                response_count += 1
        assert response_count == 1
        described = stream.stub.DescribeStream(
            pb.DescribeStreamRequest(tenant=stream.tenant, name="s")
        )
        assert described.row_count == number


def test_status_health_and_reflection(server: ServerProcess) -> None:
    status = server.stub.Status(pb.StatusRequest())
    assert len(status.store_id) == 32
    assert (status.epoch, status.HasField("epoch_at")) == (0, False)
    assert status.cache_limit_bytes == 512 << 20
    health = health_pb2_grpc.HealthStub(server.channel)
    for name in ("", "psoup.v1.Psoup"):
        answer = health.Check(health_pb2.HealthCheckRequest(service=name))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    stub = reflection_pb2_grpc.ServerReflectionStub(server.channel)
    requests = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="psoup.v1.Psoup"),
    ]
    services, file = stub.ServerReflectionInfo(iter(requests))
    names = {service.name for service in services.list_services_response.service}
    assert {"psoup.v1.Psoup", "grpc.health.v1.Health"} <= names
    described = FileDescriptorProto.FromString(
        file.file_descriptor_response.file_descriptor_proto[0]
    )
    methods = {method.name for method in described.service[0].method}
    assert {"Define", "Register", "Publish", "PublishStream", "Invoke", "Status"} <= methods
