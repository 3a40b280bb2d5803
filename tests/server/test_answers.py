"""Register, publish, invoke, without an engine: fresh, complete, and equal to the naive answer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import numpy as np
import pyarrow as pa
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from psoup.v1 import psoup_pb2 as pb
from tests.server.conftest import Start
from tests.support.generators import START, TRAFFIC_SQL, traffic
from tests.support.server.process import ServerProcess, detail, rows_of

pytestmark = pytest.mark.process

MINUTE = timedelta(minutes=1)


def stamp(moment: datetime) -> Timestamp:
    timestamp = Timestamp()
    timestamp.FromDatetime(moment)
    return timestamp


def naive(table: pa.Table, begin: datetime, now: datetime, keep: Any) -> list[dict[str, Any]]:
    """The rows with begin <= at <= now that `keep` keeps, in (ts, row_id) order."""
    rows = [(row["at"], number, row) for number, row in enumerate(table.to_pylist())]
    return [
        row for at, _, row in sorted(rows, key=lambda r: r[:2]) if begin <= at <= now and keep(row)
    ]


def fast(row: dict[str, Any]) -> bool:
    return row["speed"] is not None and row["speed"] > 90 and row["lane"] in (1, 2)


FAST = "SELECT * FROM traffic WHERE speed > 90 AND lane IN (1, 2) BEGIN NOW - 10 MINUTES END NOW"


def test_answers_are_fresh_with_the_engine_never_started(server: ServerProcess) -> None:
    server.define(f"{TRAFFIC_SQL} ORDERED BY at")
    before = server.register(FAST).handle
    table = traffic(20_000, late=0.05, nulls=0.02)
    for number in range(20):
        sent = server.publish(
            "traffic", table.slice(number * 1000, 1000), publisher="p", sequence=number + 1
        )
        assert (sent.row_count, sent.first_row_id) == (1000, number * 1000)
    after = server.register(FAST).handle
    now = max(table["at"].to_pylist())
    expected = naive(table, now - 10 * MINUTE, now, fast)
    for handle in (before, after):
        header, answer = server.invoke(handle, least_position=sent.position)
        assert answer.to_pylist() == expected
        assert header.now.ToDatetime(UTC) == now
        assert header.epoch == 0
        assert header.behind_rows >= 20_000
    assert header.computed_rows == 0, "the second asked for the same predicate"
    assert len(server.values(before)) == len(expected)


def test_another_window_and_projection(server: ServerProcess) -> None:
    server.define(f"{TRAFFIC_SQL} ORDERED BY at")
    handle = server.register("SELECT lane + 1 AS next, speed, ts, row_id FROM traffic").handle
    table = traffic(3000)
    server.publish("traffic", table)
    _, everything = server.invoke(handle)
    assert everything["next"].to_pylist() == [lane + 1 for lane in table["lane"].to_pylist()]
    assert everything["row_id"].to_pylist() == list(range(3000))
    _, newest = server.invoke(handle, window="RANGE 10 SECONDS")
    assert newest.num_rows == 100
    begin, end = START + MINUTE, START + 2 * MINUTE
    _, fixed = server.invoke(
        handle, window=f"BEGIN '{begin:%Y-%m-%d %H:%M:%S}' END '{end:%Y-%m-%d %H:%M:%S}'"
    )
    assert fixed["ts"].to_pylist()[0] == begin and fixed["ts"].to_pylist()[-1] == end


def test_a_restart_changes_nothing(start: Start) -> None:
    first = start()
    first.define(f"{TRAFFIC_SQL} ORDERED BY at")
    handle = first.register(FAST, client_key="k").handle
    first.publish("traffic", traffic(5000), publisher="p", sequence=1)
    _, expected = first.invoke(handle)
    assert first.stop() == 0
    second = start()
    assert second.invoke(handle)[1] == expected
    assert second.publish("traffic", traffic(5000), publisher="p", sequence=1).duplicate
    again = second.register(FAST, client_key="k")
    assert (again.handle, again.created) == (handle, False)


def test_event_time_now_moves_with_rows_and_heartbeats(server: ServerProcess) -> None:
    server.define("CREATE STREAM s (a BIGINT, at TIMESTAMP) ORDERED BY at RETAIN 1 HOUR")
    handle = server.register("SELECT a FROM s RANGE 10 MINUTES").handle
    header, rows = server.invoke(handle)
    assert not header.HasField("now") and rows.num_rows == 0
    server.publish("s", pa.table({"a": [1, 2], "at": [START, START + 5 * MINUTE]}))
    assert server.values(handle) == [[1], [2]]
    beat = stamp(START + 12 * MINUTE)
    server.publish("s", heartbeat=beat)
    assert server.values(handle) == [[2]]
    server.publish("s", heartbeat=stamp(START))
    assert server.values(handle) == [[2]], "NOW never runs backwards"
    server.publish("s", heartbeat=stamp(START + 59 * MINUTE))
    header, rows = server.invoke(handle, window=f"BEGIN '{START:%Y-%m-%d %H:%M}' END NOW")
    assert rows["a"].to_pylist() == [1, 2]
    server.publish("s", heartbeat=stamp(START + 60 * MINUTE))
    header, rows = server.invoke(handle, window=f"BEGIN '{START:%Y-%m-%d %H:%M}' END NOW")
    assert rows["a"].to_pylist() == [2], "ts > NOW - RETAIN"
    assert "retention" in header.notes[0]


def test_as_of_shows_what_was_known_then_or_is_today(server: ServerProcess) -> None:
    server.define("CREATE STREAM s (a BIGINT, at TIMESTAMP) ORDERED BY at")
    handle = server.register("SELECT a FROM s RANGE 1 HOUR").handle
    now = datetime.now(UTC)
    first = server.publish("s", pa.table({"a": [1], "at": [now - 30 * MINUTE]}))
    between = datetime.now(UTC)
    server.publish("s", pa.table({"a": [2], "at": [now - 40 * MINUTE]}))
    then = stamp(between)
    header, rows = server.invoke(handle, as_of=then)
    assert rows["a"].to_pylist() == [1]
    assert header.position == first.position
    assert header.now == then
    _, rows = server.invoke(handle, as_of=then, knowledge=pb.KNOWLEDGE_TODAY)
    assert rows["a"].to_pylist() == [2, 1]
    _, rows = server.invoke(handle, as_of=stamp(now - 35 * MINUTE), knowledge=pb.KNOWLEDGE_TODAY)
    assert rows["a"].to_pylist() == [2]
    header, rows = server.invoke(handle, as_of=stamp(now - 35 * MINUTE))
    assert rows.num_rows == 0


def test_arrival_time_is_the_clock(server: ServerProcess) -> None:
    server.define("CREATE STREAM s (a BIGINT)")
    handle = server.register("SELECT a, ts FROM s RANGE 1 HOUR").handle
    before = datetime.now(UTC)
    server.publish("s", pa.table({"a": [1, 2]}))
    header, rows = server.invoke(handle)
    assert rows["a"].to_pylist() == [1, 2]
    assert before <= rows["ts"][0].as_py() <= header.now.ToDatetime(UTC) <= datetime.now(UTC)


def test_values_of_every_type_travel_both_ways(server: ServerProcess) -> None:
    server.define(
        "CREATE STREAM s "
        "(b BOOLEAN, i BIGINT, d DOUBLE, n DECIMAL(10,2), t TEXT, at TIMESTAMP, y DATE)"
    )
    handle = server.register("SELECT * FROM s").handle
    moment = Timestamp(seconds=-62135596800, nanos=0)
    full = [
        pb.Value(boolean=True),
        pb.Value(bigint=-(2**63)),
        pb.Value(double=float("-inf")),
        pb.Value(decimal="-12.50"),
        pb.Value(text="héllo\0"),
        pb.Value(timestamp=moment),
        pb.Value(date="9999-12-31"),
    ]
    names = ["b", "i", "d", "n", "t", "at", "y"]
    server.publish("s", rows=rows_of(names, full, [pb.Value()] * 7))
    first, second = server.values(handle)
    assert first == [True, -(2**63), float("-inf"), "-12.50", "héllo\0", moment, "9999-12-31"]
    assert second == [None] * 7


def test_a_large_answer_comes_in_pieces(server: ServerProcess) -> None:
    server.define("CREATE STREAM s (a BIGINT, t TEXT)")
    handle = server.register("SELECT a, t FROM s WHERE a >= 0").handle
    table = pa.table({"a": np.arange(100_000), "t": ["x" * 40] * 100_000})
    server.publish("s", table)
    request = pb.InvokeRequest(tenant=server.tenant, handle=handle, encoding=pb.ENCODING_ARROW)
    header, *pieces = server.stub.Invoke(request)
    assert len(pieces) > 3
    assert max(len(part.arrow) for part in pieces) <= 1 << 20
    answer = pa.ipc.open_stream(b"".join(part.arrow for part in pieces)).read_all()
    assert answer.equals(table)
    assert len(server.values(handle)) == header.header.row_count == 100_000


def test_late_rows_in_many_blocks_are_found(server: ServerProcess) -> None:
    server.define(f"{TRAFFIC_SQL} ORDERED BY at")
    handle = server.register(FAST).handle
    table = traffic(150_000, late=0.3, every=timedelta(milliseconds=20))
    for start_ in range(0, 150_000, 50_000):
        server.publish("traffic", table.slice(start_, 50_000))
    now = max(table["at"].to_pylist())
    _, answer = server.invoke(handle)
    assert answer.to_pylist() == naive(table, now - 10 * MINUTE, now, fast)


def test_too_much_work_goes_on_where_it_stopped(start: Start) -> None:
    server = start("--compute-rows", "70000")
    server.define("CREATE STREAM s (a BIGINT)")
    handle = server.register("SELECT a FROM s WHERE a < 10").handle
    for _ in range(4):
        server.publish("s", pa.table({"a": np.arange(50_000)}))
    refusals = 0
    while True:
        try:
            rows = server.values(handle)
            break
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert detail(error).reason == "TOO_MUCH_WORK"
            refusals += 1
    assert 1 <= refusals <= 4
    assert [row[0] for row in rows] == list(range(10)) * 4


def test_waiting_for_an_engine_that_is_not_there(start: Start) -> None:
    server = start("--wait", "0.3")
    server.define("CREATE STREAM s (a BIGINT)")
    handle = server.register("SELECT a FROM s WHERE a = 1").handle
    server.publish("s", pa.table({"a": [1]}))
    with pytest.raises(grpc.RpcError) as caught:
        server.invoke(handle, wait_for_engine=True)
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert detail(caught.value).reason == "NOT_REACHED"
    assert server.values(handle) == [[1]]
    assert server.values(handle, wait_for_engine=True) == [[1]], "known from the answer before"
