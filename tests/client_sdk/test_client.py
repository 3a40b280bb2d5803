"""What a client remembers, what it accepts, and what users' tests can do with it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pandas
import pyarrow as pa
import pytest

import client_sdk
from client_sdk import (
    AsyncClient,
    Client,
    ErrorDetail,
    LimitExceeded,
    MockTransport,
    NotFound,
    PsoupError,
    RowProblem,
    ServerError,
    answer,
)
from client_sdk._grpc.channels import error_for
from client_sdk._wire.values import from_value, to_value
from psoup.v1 import psoup_pb2 as pb

HANDLE = bytes(range(16))


def connect(**handlers: Any) -> tuple[Client, MockTransport]:
    transport = MockTransport(handlers)
    return Client(transport=transport), transport


def an_answer(position: bytes) -> Callable[[Any], Any]:
    return lambda request: answer({"a": "BIGINT"}, position=position)


def least(transport: MockTransport) -> bytes:
    requests: bytes = transport.requests("Invoke")[-1].least_position
    return requests


def test_a_client_reads_its_own_writes() -> None:
    client, transport = connect(Define=[pb.DefineResponse(position=b"1")], Invoke=an_answer(b"2"))
    client.define("DROP STREAM s")
    client.invoke(HANDLE)
    assert least(transport) == b"1"
    client.invoke(HANDLE)
    assert least(transport) == b"2"
    client.invoke(HANDLE, least_position=None)
    assert least(transport) == b""
    client.invoke(HANDLE, least_position=b"9")
    assert least(transport) == b"9"


def test_an_answer_about_the_past_does_not_move_the_position_back() -> None:
    client, _ = connect(Invoke=an_answer(b"old"))
    client.position = b"new"
    client.invoke(HANDLE, as_of=datetime(2026, 1, 1))
    client.invoke(HANDLE, least_position=None)
    assert client.position == b"new"


def test_a_refreshed_answer_does_not_move_the_position_back() -> None:
    point = datetime(2026, 11, 16, tzinfo=UTC)
    moment = pb.AnswerHeader().refreshed_at
    moment.FromDatetime(point)

    def reply(request: Any) -> Any:
        if request.unrefreshed:
            return answer({"a": "BIGINT"}, position=b"new")
        return answer({"a": "BIGINT"}, position=b"old", refreshed_at=moment)

    client, _ = connect(Invoke=reply, Ask=reply)
    client.position = b"before"
    assert client.invoke(HANDLE).refreshed_at == point
    with client.ask_stream("SELECT 1") as stream:
        assert stream.header.refreshed_at == point
    assert client.position == b"before"
    assert client.invoke(HANDLE, unrefreshed=True).refreshed_at is None
    assert client.position == b"new"


def test_a_known_key_does_not_move_the_position_back() -> None:
    client, _ = connect(Register=[pb.RegisterResponse(handle=HANDLE, position=b"old")])
    client.position = b"new"
    client.register("SELECT a FROM s", key="k")
    assert client.position == b"new"


@pytest.mark.parametrize("handle", [HANDLE, HANDLE.hex(), HANDLE.hex().upper()])
def test_a_handle_is_bytes_or_hex(handle: Any) -> None:
    client, transport = connect(Unregister=[pb.UnregisterResponse()])
    client.unregister(handle)
    assert transport.requests("Unregister")[0].handle == HANDLE


@pytest.mark.parametrize(
    "misuse",
    [
        lambda client: client.invoke(b"short"),
        lambda client: client.invoke(""),
        lambda client: client.invoke(5),
        lambda client: client.invoke(HANDLE, knowledge="today"),
        lambda client: client.invoke(HANDLE, knowledge="never"),
        lambda client: client.publish("s", [], publisher="p"),
        lambda client: client.publish("s", [], sequence=1),
        lambda client: client.publisher(""),
        lambda client: client.publisher("p", next_sequence=0),
        lambda client: client.register("SELECT 1", parameters={"a": object()}),
        lambda client: client.register("SELECT 1", parameters={"a": 2**63}),
        lambda client: client.register_many("SELECT 1", [{"a": 1}, {"b": 1}]),
    ],
)
def test_misuse_is_noticed_before_anything_is_sent(misuse: Callable[[Client], Any]) -> None:
    client, transport = connect()
    with pytest.raises((ValueError, TypeError)):
        misuse(client)
    assert transport.calls == []


def test_tenant_and_owner_go_with_every_request() -> None:
    transport = MockTransport({"Register": [pb.RegisterResponse(handle=HANDLE)]})
    client = Client(transport=transport, tenant="acme", owner="ann")
    client.register("SELECT a FROM s", lease=timedelta(days=1))
    request = transport.requests("Register")[0]
    assert (request.tenant, request.owner, request.lease.seconds) == ("acme", "ann", 86_400)


def test_a_schema_is_fetched_once() -> None:
    stream = pb.Stream(name="s", id=1, columns=[pb.Column(name="a", type="BIGINT")])
    client, transport = connect(
        DescribeStream=lambda request: stream, Publish=lambda request: pb.PublishResponse()
    )
    for _ in range(3):
        client.publish("s", [{"a": 1}])
    assert len(transport.requests("DescribeStream")) == 1
    with pytest.raises(RowProblem):
        client.publish("s", [{"b": 1}])
    assert len(transport.requests("Publish")) == 3


def test_a_batch_past_the_limit_is_not_sent() -> None:
    stream = pb.Stream(name="s", id=1, columns=[pb.Column(name="a", type="TEXT")])
    transport = MockTransport({"DescribeStream": lambda request: stream})
    client = Client(transport=transport, max_message_bytes=10_000)
    with pytest.raises(LimitExceeded, match="publish_many"):
        client.publish("s", [{"a": "x" * 1000} for _ in range(20)])


TEXTS = [{"a": "x" * 1000} for _ in range(20)]


@pytest.mark.parametrize(
    "rows",
    [
        [TEXTS],
        TEXTS,
        iter(TEXTS),
        pa.Table.from_pylist(TEXTS),
        pa.RecordBatch.from_pylist(TEXTS),
        pandas.DataFrame(TEXTS),
        [pandas.DataFrame(TEXTS[:10]), pandas.DataFrame(TEXTS[10:])],
    ],
    ids=["batches", "dicts", "iterator", "table", "record batch", "pandas", "pandas batches"],
)
def test_a_publisher_cuts_what_is_too_large(rows: Any) -> None:
    stream = pb.Stream(name="s", id=1, columns=[pb.Column(name="a", type="TEXT")])
    transport = MockTransport(
        {"DescribeStream": lambda request: stream, "Publish": lambda r: pb.PublishResponse()}
    )
    client = Client(transport=transport, max_message_bytes=10_000)
    client.publisher("me").publish_many("s", rows)
    sent = transport.requests("PublishStream")
    assert [request.sequence for request in sent] == list(range(1, len(sent) + 1))
    assert len(sent) > 2
    assert all(request.ByteSize() <= 10_000 for request in sent)
    tables = [pa.ipc.open_stream(request.arrow).read_all() for request in sent]
    assert pa.concat_tables(tables).to_pylist() == TEXTS


@pytest.mark.parametrize("rows", ["text", b"bytes", {"a": "x"}])
def test_what_is_no_rows_is_refused(rows: Any) -> None:
    stream = pb.Stream(name="s", id=1, columns=[pb.Column(name="a", type="TEXT")])
    client = Client(transport=MockTransport({"DescribeStream": lambda request: stream}))
    with pytest.raises(TypeError):
        client.publisher("me").publish_many("s", rows)


@pytest.mark.parametrize(
    "value",
    [None, True, 5, -(2**63), 0.5, Decimal("1.50"), "x", date(2026, 1, 1),
     datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)],
)  # fmt: skip
def test_values_come_back_from_the_wire(value: Any) -> None:
    assert from_value(to_value(value)) == value


@pytest.mark.parametrize("code", list(__import__("grpc").StatusCode))
def test_every_status_has_a_place_in_the_tree(code: Any) -> None:
    error = error_for(code.name, "message", ErrorDetail(reason="WHY"))
    assert isinstance(error, PsoupError)
    assert (error.code, error.reason) == (code.name, "WHY")


def test_the_tree_is_drawn_completely() -> None:
    from client_sdk import _exceptions

    drawn = _exceptions.__doc__ or ""
    kinds = [
        error_class for error_class in vars(_exceptions).values() if isinstance(error_class, type)
    ]
    for kind in kinds:
        if issubclass(kind, PsoupError):
            assert kind.__name__ in drawn
            assert kind.__name__ in client_sdk.__all__


def test_a_mock_without_a_handler_says_so() -> None:
    client, _ = connect()
    with pytest.raises(ServerError, match="no handler for ListStreams"):
        client.streams()
    assert client.status().store_id == "mock"


async def test_one_mock_serves_both_clients() -> None:
    transport = MockTransport(
        {"Invoke": an_answer(b"p"), "DescribeStream": [NotFound("no stream s")]}
    )
    with Client(transport=transport) as client:
        assert client.invoke(HANDLE).rows == []
    async with AsyncClient(transport=transport) as async_client:
        assert (await async_client.invoke(HANDLE)).rows == []
        with pytest.raises(NotFound):
            await async_client.stream("s")
    assert transport.closed


def test_an_answer_can_be_left_early() -> None:
    client, _ = connect(Invoke=lambda request: answer({"a": "BIGINT"}, [{"a": 1}, {"a": 2}]))
    with client.invoke_stream(HANDLE) as stream:
        assert stream.header.row_count == 2
    with pytest.raises(ServerError, match="0 rows of 2"):
        list(stream)
