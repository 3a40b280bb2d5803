"""Whatever a client sends: a fitting code, a reason, a message; and the store is unharmed."""

from __future__ import annotations

import datetime
from typing import Any

import grpc
import numpy as np
import pyarrow as pa
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from psoup.v1 import psoup_pb2 as pb
from tests.server.conftest import Start
from tests.support.server.process import ServerProcess, detail, ipc, rows_of

pytestmark = pytest.mark.process

INVALID = grpc.StatusCode.INVALID_ARGUMENT
NOT_FOUND = grpc.StatusCode.NOT_FOUND
NOW = datetime.datetime(2025, 3, 3, tzinfo=datetime.UTC)


@pytest.fixture(scope="module")
def victim(shared_server: ServerProcess) -> ServerProcess:
    server = shared_server.of("victim")
    server.define(
        "CREATE STREAM s (t TEXT, i BIGINT, d DOUBLE, n DECIMAL(5,2), y DATE, at TIMESTAMP) "
        "ORDERED BY at RETAIN 30 DAYS"
    )
    server.publish("s", good())
    return server


def good(**changes: Any) -> pa.Table:
    columns = {
        "t": ["a", None],
        "i": [1, 2],
        "d": [float("nan"), float("inf")],
        "n": pa.array([1, None]),
        "y": pa.nulls(2),
        "at": [NOW, NOW],
    }
    return pa.table({**columns, **changes})


def instants(*values: Any, unit: str = "us") -> pa.Array:
    return pa.array(values, pa.int64()).view(pa.timestamp(unit))


def bad_text() -> pa.Array:
    offsets = pa.py_buffer(np.array([0, 1, 3], np.int32))
    return pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"a\xff\xfe")])


AHEAD = int((datetime.datetime.now(datetime.UTC).timestamp() + 7300) * 1e6)


@pytest.mark.parametrize(
    ("table", "reason", "row", "field"),
    [
        (good().drop_columns(["i"]), "MISSING_COLUMN", -1, "i"),
        (good(extra=[1, 2]), "EXTRA_COLUMN", -1, "extra"),
        (good(i=["1", "2"]), "WRONG_TYPE", -1, "i"),
        (good(i=[1.5, 2]), "WRONG_TYPE", -1, "i"),
        (good(d=[1, 2**53 + 1]), "NOT_EXACT", 1, "d"),
        (good(n=[1, 1000]), "NOT_EXACT", 1, "n"),
        (good(t=["a", "x" * 10_000_000]), "VALUE_TOO_LONG", 1, "t"),
        (good(t=bad_text()), "INVALID_UTF8", 1, "t"),
        (good(at=pa.array([NOW, None])), "NULL_EVENT_TIME", 1, "at"),
        (good(at=instants(0, 2**62)), "OUT_OF_RANGE", 1, "at"),
        (good(at=instants(0, 1, unit="ns")), "TOO_FINE", 1, "at"),
        (good(at=instants(0, AHEAD)), "TOO_FAR_AHEAD", 1, "at"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_rows(victim: ServerProcess, table: pa.Table, reason: str, row: int, field: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        victim.publish("s", table, publisher="p", sequence=1)
    problem = detail(caught.value)
    assert caught.value.code() == INVALID
    assert (problem.reason, problem.row, problem.field) == (reason, row, field)
    assert caught.value.details()
    assert row_count(victim) == 2


def row_count(server: ServerProcess) -> int:
    request = pb.DescribeStreamRequest(tenant=server.tenant, name="s")
    return int(server.stub.DescribeStream(request).row_count)


V = pb.Value
GOOD = [
    V(text="a"),
    V(bigint=1),
    V(double=1),
    V(decimal="1.5"),
    V(date="2025-01-01"),
    V(timestamp=Timestamp(seconds=0)),
]
NAMES = ["t", "i", "d", "n", "y", "at"]


@pytest.mark.parametrize(
    ("place", "value", "reason"),
    [
        (0, V(bigint=1), "WRONG_TYPE"),
        (1, V(double=1), "WRONG_TYPE"),
        (2, V(bigint=2**53 + 1), "NOT_EXACT"),
        (3, V(decimal="1.555"), "NOT_EXACT"),
        (3, V(decimal="NaN"), "BAD_VALUE"),
        (3, V(decimal="1e999999999"), "BAD_VALUE"),
        (3, V(decimal="a lot"), "BAD_VALUE"),
        (4, V(date="2025-13-01"), "BAD_VALUE"),
        (4, V(date="yesterday"), "BAD_VALUE"),
        (5, V(timestamp=Timestamp(nanos=1)), "TOO_FINE"),
        (5, V(timestamp=Timestamp(seconds=2**60)), "OUT_OF_RANGE"),
        (5, V(timestamp=Timestamp(nanos=-1000)), "OUT_OF_RANGE"),
        (5, V(), "NULL_EVENT_TIME"),
    ],
    ids=str,
)
def test_values(victim: ServerProcess, place: int, value: V, reason: str) -> None:
    row = [*GOOD[:place], value, *GOOD[place + 1 :]]
    with pytest.raises(grpc.RpcError) as caught:
        victim.publish("s", rows=rows_of(NAMES, GOOD, row))
    problem = detail(caught.value)
    assert caught.value.code() == INVALID
    assert (problem.reason, problem.row, problem.field) == (reason, 1, NAMES[place])
    assert row_count(victim) == 2


def publish(**fields: Any) -> pb.PublishRequest:
    return pb.PublishRequest(tenant="victim", **{"stream": "s", **fields})


HEADER = ipc(good())
WIDE = f"CREATE STREAM w ({', '.join(f'c{n} TEXT' for n in range(1001))})"


@pytest.mark.parametrize(
    ("method", "request_", "code", "reason"),
    [
        ("Publish", publish(), INVALID, "BAD_REQUEST"),
        ("Publish", publish(arrow=b""), INVALID, "MALFORMED_ARROW"),
        ("Publish", publish(arrow=b"junk" * 100), INVALID, "MALFORMED_ARROW"),
        ("Publish", publish(arrow=HEADER[: len(HEADER) // 2]), INVALID, "MALFORMED_ARROW"),
        ("Publish", publish(arrow=HEADER, stream="nowhere"), NOT_FOUND, "UNKNOWN_STREAM"),
        ("Publish", publish(arrow=HEADER, publisher="p"), INVALID, "BAD_REQUEST"),
        ("Publish", publish(arrow=HEADER, sequence=1), INVALID, "BAD_REQUEST"),
        ("Publish", publish(arrow=HEADER, publisher="p", sequence=-1), INVALID, "BAD_REQUEST"),
        ("Publish", publish(arrow=HEADER, publisher="p" * 999, sequence=1), INVALID,
         "NAME_TOO_LONG"),
        ("Publish", publish(arrow=HEADER, publisher="p\n", sequence=1), INVALID, "BAD_NAME"),
        ("Define", pb.DefineRequest(tenant="a\x1b[2J", sql="CREATE STREAM s (a TEXT)"), INVALID,
         "BAD_NAME"),
        ("Define", pb.DefineRequest(tenant="victim", sql="GRANT read ON ALL TO ROLE 'a\nb'"),
         INVALID, "BAD_NAME"),
        ("Register", pb.RegisterRequest(tenant="victim", sql="SELECT t FROM s",
                                        client_key="\x9b"), INVALID, "BAD_NAME"),
        ("SetQuota", pb.SetQuotaRequest(tenant="victim", owner="a\u2028b"), INVALID, "BAD_NAME"),
        ("Publish", publish(arrow=HEADER, publisher="new", sequence=2),
         grpc.StatusCode.FAILED_PRECONDITION, "SEQUENCE_GAP"),
        ("Publish", publish(rows=rows_of(NAMES, GOOD[:3])), INVALID, "WRONG_LENGTH"),
        ("Publish", publish(heartbeat=Timestamp(nanos=5)), INVALID, "TOO_FINE"),
        ("Publish", publish(heartbeat=Timestamp(seconds=AHEAD // 10**6)), INVALID,
         "TOO_FAR_AHEAD"),
        ("Define", pb.DefineRequest(sql="CREATE STREAM"), INVALID, ""),
        ("Define", pb.DefineRequest(sql=""), INVALID, ""),
        ("Define", pb.DefineRequest(sql="SELECT 1 FROM s"), INVALID, "WRONG_STATEMENT"),
        ("Define", pb.DefineRequest(sql="DROP STREAM nowhere"), NOT_FOUND, "UNKNOWN_STREAM"),
        ("Define", pb.DefineRequest(tenant="victim", sql="CREATE STREAM s (a TEXT)"),
         grpc.StatusCode.ALREADY_EXISTS, "STREAM_EXISTS"),
        ("Define", pb.DefineRequest(sql="x" * 70_000), INVALID, "TEXT_TOO_LONG"),
        ("Define", pb.DefineRequest(sql=WIDE),
         INVALID, "TOO_MANY_COLUMNS"),
        ("Define", pb.DefineRequest(sql="CREATE STREAM k (a TEXT) KEY (b)"), INVALID,
         "UNKNOWN_COLUMN"),
        ("Register", pb.RegisterRequest(tenant="victim", sql="SELEC t FROM s"), INVALID, ""),
        ("Register", pb.RegisterRequest(tenant="victim", sql="SELECT zz FROM s"), INVALID,
         "UNKNOWN_COLUMN"),
        ("Register", pb.RegisterRequest(tenant="victim", sql="SELECT t FROM zz"), NOT_FOUND,
         "UNKNOWN_STREAM"),
        ("Register", pb.RegisterRequest(tenant="other", sql="SELECT t FROM s"), NOT_FOUND,
         "UNKNOWN_STREAM"),
        ("Register", pb.RegisterRequest(tenant="victim", sql="SELECT t FROM s WHERE t > 1"),
         INVALID, "TYPE_MISMATCH"),
        ("Register", pb.RegisterRequest(tenant="victim", sql="SELECT t FROM s RANGE 31 DAYS"),
         INVALID, "WINDOW_PAST_RETENTION"),
        ("Register", pb.RegisterRequest(tenant="victim", sql="SELECT sum(i) OVER () AS s FROM s"),
         grpc.StatusCode.UNIMPLEMENTED, "NOT_YET"),
        ("Register", pb.RegisterRequest(tenant="victim", sql="SELECT t FROM s WHERE i = :x"),
         INVALID, "UNKNOWN_PARAMETER"),
        ("Register", pb.RegisterRequest(tenant="victim", sql="SELECT t FROM s WHERE i = :x",
                                        parameters={"x": V(decimal="zz")}), INVALID, "BAD_VALUE"),
        ("Register", pb.RegisterRequest(tenant="victim", sql="SELECT t FROM s",
                                        lease=Duration(seconds=-1)), INVALID, "BAD_REQUEST"),
        ("RegisterMany", pb.RegisterManyRequest(tenant="victim", sql="SELECT t FROM s"), INVALID,
         "BAD_REQUEST"),
        ("RegisterMany", pb.RegisterManyRequest(tenant="victim", sql="SELECT t FROM s WHERE i = :x",
                                                arrow=b"zzz"), INVALID, "MALFORMED_ARROW"),
        ("Unregister", pb.UnregisterRequest(handle=b"x" * 16), NOT_FOUND, "UNKNOWN_HANDLE"),
        ("DescribeRegistration", pb.DescribeRegistrationRequest(handle=b""), NOT_FOUND,
         "UNKNOWN_HANDLE"),
        ("DescribeStream", pb.DescribeStreamRequest(name="zz"), NOT_FOUND, "UNKNOWN_STREAM"),
        ("ListRegistrations", pb.ListRegistrationsRequest(page_token="x"), INVALID, "BAD_REQUEST"),
        ("ListRegistrations", pb.ListRegistrationsRequest(page_size=-1), INVALID, "BAD_REQUEST"),
    ],
)  # fmt: skip
def test_requests(
    victim: ServerProcess, method: str, request_: Any, code: grpc.StatusCode, reason: str
) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        getattr(victim.stub, method)(request_)
    assert caught.value.code() == code, caught.value.details()
    problem = detail(caught.value)
    assert problem.reason == reason or (problem.reason and not reason)
    assert row_count(victim) == 2


def compressed_bomb() -> bytes:
    """Return a batch of 400 MB in some kilobytes."""
    sink = pa.BufferOutputStream()
    table = pa.table({"t": ["x" * (1 << 20)] * 400})
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def test_a_batch_that_grows_when_it_is_unpacked(victim: ServerProcess) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        victim.stub.Publish(publish(arrow=compressed_bomb()))
    assert caught.value.code() == INVALID
    assert detail(caught.value).reason == "BATCH_TOO_LARGE"
    assert row_count(victim) == 2


@pytest.mark.parametrize(
    ("fields", "code", "reason"),
    [
        ({"handle": b"\0" * 16}, NOT_FOUND, "UNKNOWN_HANDLE"),
        ({"handle": b"short"}, NOT_FOUND, "UNKNOWN_HANDLE"),
        ({"tenant": "other"}, NOT_FOUND, "UNKNOWN_HANDLE"),
        ({"window": "RANGE 31 DAYS"}, INVALID, "WINDOW_PAST_RETENTION"),
        ({"window": "tomorrow"}, INVALID, "SYNTAX"),
        ({"window": "RANGE 1 DAY; DROP STREAM s"}, INVALID, ""),
        ({"least_position": b"zzz"}, INVALID, "FOREIGN_POSITION"),
        ({"least_position": b"\0" * 24}, INVALID, "FOREIGN_POSITION"),
        ({"as_of": Timestamp(seconds=2**60)}, INVALID, "OUT_OF_RANGE"),
        pytest.param(
            {"as_of": Timestamp(seconds=AHEAD // 10**6)}, INVALID, "OUT_OF_RANGE", id="ahead"
        ),
        ({"encoding": 99}, INVALID, "BAD_REQUEST"),
    ],
    ids=str,
)
def test_invokes(
    victim: ServerProcess, fields: dict[str, Any], code: grpc.StatusCode, reason: str
) -> None:
    handle = victim.register("SELECT t FROM s", client_key="bad-input").handle
    request = pb.InvokeRequest(**{"tenant": "victim", "handle": handle, **fields})
    with pytest.raises(grpc.RpcError) as caught:
        list(victim.stub.Invoke(request))
    assert caught.value.code() == code
    assert detail(caught.value).reason == reason or not reason


def test_a_position_past_the_end_of_the_log_is_foreign(victim: ServerProcess) -> None:
    answered = victim.register("SELECT t FROM s", client_key="bad-input")
    future = bytearray(answered.position)
    future[8] = 1
    request = pb.InvokeRequest(
        tenant="victim", handle=answered.handle, least_position=bytes(future)
    )
    for _ in range(2):
        with pytest.raises(grpc.RpcError) as caught:
            list(victim.stub.Invoke(request, timeout=120))
        assert caught.value.code() == INVALID
        assert detail(caught.value).reason == "FOREIGN_POSITION"


def test_a_message_past_the_limit(victim: ServerProcess) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        victim.stub.Publish(publish(arrow=b"x" * (17 << 20)))
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert row_count(victim) == 2


def test_limits_are_settings(start: Start) -> None:
    server = start("--batch-rows", "2", "--value", "10", "--query", "1KB", "--columns", "3")
    server.define("CREATE STREAM s (t TEXT)")
    refused = [
        (lambda: server.publish("s", pa.table({"t": ["a"] * 3})), "BATCH_TOO_LARGE", "2"),
        (lambda: server.publish("s", pa.table({"t": ["a" * 11]})), "VALUE_TOO_LONG", "10"),
        (lambda: server.register("SELECT t FROM s" + " " * 1024), "TEXT_TOO_LONG", "1024"),
        (lambda: server.define("CREATE STREAM w (a TEXT, b TEXT, c TEXT, d TEXT)"),
         "TOO_MANY_COLUMNS", "3"),
    ]  # fmt: skip
    for call, reason, limit in refused:
        with pytest.raises(grpc.RpcError) as caught:
            call()
        assert caught.value.code() == INVALID
        assert detail(caught.value).reason == reason
        assert limit in str(caught.value.details()).replace(",", "")
    assert server.publish("s", pa.table({"t": ["a" * 10] * 2})).row_count == 2
