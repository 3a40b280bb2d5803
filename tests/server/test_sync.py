"""Sync through servers as processes: bytes, tokens, restarts, repair, cuts."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest
from google.protobuf.duration_pb2 import Duration

from psoup.v1 import psoup_pb2 as pb
from tests.oracle.copy import Copy, runs_of
from tests.server.conftest import Start
from tests.support.server.process import ServerProcess, detail, rows_of
from tests.support.server.syncing import (
    SQL,
    begin_of,
    item_of,
    numbers,
    parts_of,
    recharge,
    size_of,
)

pytestmark = pytest.mark.process


# ---- bytes


def test_nothing_new_is_short_and_a_row_costs_little_more_than_itself(
    server: ServerProcess,
) -> None:
    server.define(SQL)
    server.publish("s", numbers(0, 10_000))
    handle = server.register("SELECT a, b FROM s RANGE 1 HOUR").handle
    copy = Copy()
    recharge(server, handle, copy)
    assert len(copy.rows) == 10_000
    assert size_of(recharge(server, handle, copy)) <= 200
    server.publish("s", rows=rows_of(["a", "b"], [pb.Value(bigint=7), pb.Value(text="x" * 50)]))
    row_size = pb.Row(values=[pb.Value(bigint=7), pb.Value(text="x" * 50)]).ByteSize()
    parts = recharge(server, handle, copy)
    assert len(copy.rows) == 10_001 and size_of(parts) <= 3 * row_size + 200


def test_arrow_for_many_rows_values_for_few(server: ServerProcess) -> None:
    server.define(SQL)
    server.publish("s", numbers(0, 1000))
    handle = server.register("SELECT a, b FROM s").handle
    copy = Copy()
    for part in parts_of(server, item_of(handle, copy), encoding=pb.ENCODING_ARROW):
        assert part.WhichOneof("part") != "rows"
        copy.take(part)
    server.publish("s", numbers(1000, 3))
    for part in parts_of(server, item_of(handle, copy), encoding=pb.ENCODING_ARROW):
        assert part.WhichOneof("part") != "arrow"
        copy.take(part)
    assert copy.sound() and copy.answer(copy.now) == [(n, "some text") for n in range(1003)]


def test_pieces_fit_into_what_any_client_receives(server: ServerProcess) -> None:
    """Also where a few rows are much larger than the others, and values than they are stored."""
    columns = [f"c{n}" for n in range(250)]
    server.define(f"CREATE STREAM wide (t TEXT, {', '.join(f'{c} BOOLEAN' for c in columns)})")
    texts = ["x" * 900_000] * 8 + [""] * 2500
    flags = {name: [True] * len(texts) for name in columns}
    server.publish("wide", pa.table({"t": texts, **flags}))
    handle = server.register("SELECT * FROM wide").handle
    for encoding in (pb.ENCODING_UNSPECIFIED, pb.ENCODING_ARROW):
        parts = parts_of(server, pb.SyncItem(handle=handle), encoding=encoding)
        assert max(part.ByteSize() for part in parts) < 2 << 20
        assert parts[-1].end.row_count == len(texts)


def test_a_sliding_window_sends_no_removals(server: ServerProcess) -> None:
    server.define("CREATE STREAM e (a BIGINT, at TIMESTAMP) ORDERED BY at")
    handle = server.register("SELECT a FROM e RANGE 10 SECONDS").handle
    copy = Copy()
    for second in range(0, 40, 4):
        at = datetime(2025, 1, 1, 0, 0, second)
        table = pa.table({"a": [second], "at": pa.array([at], pa.timestamp("us"))})
        server.publish("e", table)
        recharge(server, handle, copy)
    assert copy.answer(copy.now) == [(28,), (32,), (36,)]
    assert copy.rows_received == 10 and copy.removed_received == 0


def test_groups_change_and_go_by_their_key(server: ServerProcess) -> None:
    server.define("CREATE STREAM g (a BIGINT, b TEXT)")
    texts = [f"{n:04}" for n in range(300)]
    server.publish("g", pa.table({"a": range(300), "b": texts}))
    handle = server.register("SELECT b, sum(a) AS total FROM g GROUP BY b ROWS 300").handle
    copy = Copy()
    recharge(server, handle, copy)
    server.publish("g", pa.table({"a": [1000], "b": ["0007"]}))
    before = copy.rows_received
    parts = recharge(server, handle, copy)
    row_size = pb.Row(values=[pb.Value(text="0007"), pb.Value(bigint=1007)]).ByteSize()
    assert size_of(parts) <= 3 * row_size + 240
    assert begin_of(parts).mode == pb.SYNC_MODE_UNSPECIFIED
    assert (copy.rows_received - before, copy.removed_received) == (1, 1)
    assert copy.answer(copy.now)[6] == ("0007", 1007)


# ---- tokens


def test_what_becomes_of_tokens_that_can_t_be_honoured(server: ServerProcess, start: Start) -> None:
    server.define(SQL)
    server.publish("s", numbers(0, 3))
    handle, other_handle = (
        server.register(f"SELECT a FROM s WHERE a > {n}").handle for n in (0, 1)
    )
    copy = Copy()
    recharge(server, handle, copy)
    token = copy.token
    flipped = bytes([*token[:30], token[30] ^ 1, *token[31:]])
    elsewhere = start()
    elsewhere.define(SQL)
    foreign = Copy()
    recharge(elsewhere, elsewhere.register("SELECT a FROM s").handle, foreign)
    cases: list[tuple[pb.SyncItem, Any]] = [
        (pb.SyncItem(handle=handle), pb.SYNC_REASON_FIRST),
        (pb.SyncItem(handle=handle, token=token, whole=True), pb.SYNC_REASON_ASKED),
        (pb.SyncItem(handle=handle, token=flipped), pb.SYNC_REASON_UNREADABLE_TOKEN),
        (pb.SyncItem(handle=handle, token=b"x"), pb.SYNC_REASON_UNREADABLE_TOKEN),
        (pb.SyncItem(handle=handle, token=foreign.token), pb.SYNC_REASON_FOREIGN_TOKEN),
        (pb.SyncItem(handle=other_handle, token=token), pb.SYNC_REASON_OTHER_REGISTRATION),
        (
            pb.SyncItem(handle=handle, token=token, window="RANGE 1 HOUR"),
            pb.SYNC_REASON_OTHER_WINDOW,
        ),
    ]
    for item, reason in cases:
        parts = parts_of(server, item)
        assert begin_of(parts).mode == pb.SYNC_MODE_WHOLE and begin_of(parts).reason == reason
        anew = Copy()
        for part in parts:
            anew.take(part)
        assert anew.sound()
    same = parts_of(server, pb.SyncItem(handle=handle, token=token, window="UNBOUNDED"))
    assert begin_of(same).mode == pb.SYNC_MODE_UNSPECIFIED, "the registered window, written out"


def test_an_item_that_can_t_be_answered_does_not_stop_the_others(server: ServerProcess) -> None:
    server.define(SQL)
    server.define("CREATE STREAM gone (a BIGINT)")
    well, dropped = (server.register(f"SELECT a FROM {name}").handle for name in ("s", "gone"))
    ended = server.register("SELECT a FROM s").handle
    server.stub.Unregister(pb.UnregisterRequest(tenant=server.tenant, handle=ended))
    server.define("DROP STREAM gone")
    parts = parts_of(server, *(pb.SyncItem(handle=handle) for handle in (ended, dropped, well)))
    reasons = {part.item: part.refused.detail.reason for part in parts if part.HasField("refused")}
    assert reasons == {0: "UNKNOWN_HANDLE", 1: "STREAM_DROPPED"}
    assert all(part.refused.detail.hint for part in parts if part.HasField("refused"))
    assert [part.WhichOneof("part") for part in parts if part.item == 2] == ["begin", "end"]


@pytest.mark.parametrize(
    "request_",
    [
        pb.SyncRequest(),
        pb.SyncRequest(items=[pb.SyncItem()], byte_budget=-1),
        pb.SyncRequest(items=[pb.SyncItem()], encoding=7),  # type: ignore[arg-type]
        pb.SyncRequest(items=[pb.SyncItem()], away=Duration(seconds=-1)),
        pb.SyncRequest(items=[pb.SyncItem(have=pb.Ids(runs=[0, 30_000_000]))] * 2),
    ],
)
def test_requests_that_are_none(server: ServerProcess, request_: pb.SyncRequest) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        list(server.stub.Sync(request_, timeout=120))
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert detail(caught.value).field or detail(caught.value).reason


# ---- servers


def test_tokens_survive_restarts_and_hold_on_every_server(start: Start) -> None:
    first, second = start(), start()
    first.define(SQL)
    handle = first.register("SELECT a FROM s ROWS 5").handle
    copy = Copy()
    for server in (first, second, first, start()):
        server.publish("s", numbers(10 * len(copy.rows), 2))
        position = server.publish("s", numbers(0, 1)).position
        parts = parts_of(second, item_of(handle, copy), least_position=position)
        for part in parts:
            copy.take(part)
        assert copy.sound()
    first.kill()
    parts = recharge(start(), handle, copy)
    assert [part.WhichOneof("part") for part in parts] == ["begin", "end"]


def test_a_transfer_resumes_on_another_server(start: Start) -> None:
    first, second = start(), start()
    first.define(SQL)
    first.publish("s", numbers(0, 5000))
    handle = first.register("SELECT a, b FROM s").handle
    copy, calls = Copy(), 0
    while copy.end is None:
        server = (first, second)[calls % 2]
        for part in parts_of(server, item_of(handle, copy), byte_budget=40_000):
            copy.take(part)
        first.publish("s", numbers(9000 + calls, 1))
        calls += 1
    assert calls > 5 and copy.rows_received == 5000
    assert [a for a, _ in copy.answer(copy.now)] == list(range(5000))
    first.stop()
    recharge(second, handle, copy)
    assert len(copy.rows) == 5000 + calls


def test_a_server_behind_the_token_says_so(start: Start, tmp_path: Path) -> None:
    first = start()
    first.define(SQL)
    handle = first.register("SELECT a FROM s").handle
    ahead = Copy()
    first.publish("s", numbers(0, 3))
    recharge(first, handle, ahead)
    lagging = Copy(token=ahead.token)
    parts = parts_of(start(), item_of(handle, lagging))
    assert [part.WhichOneof("part") for part in parts] == ["begin", "end"]


def test_priorities_and_a_budget(server: ServerProcess) -> None:
    server.define(SQL)
    server.publish("s", numbers(0, 4000))
    handles = [server.register(f"SELECT a, b FROM s WHERE a >= {n}").handle for n in range(3)]
    copies = [Copy() for _ in handles]
    order: list[int] = []
    for _ in range(200):
        items = [
            item_of(handle, copy, priority=place % 2)
            for place, (handle, copy) in enumerate(zip(handles, copies, strict=True))
        ]
        parts = parts_of(server, *items, byte_budget=100_000, one_position=True)
        for part in parts:
            copies[part.item].take(part)
            if part.HasField("end") and part.item not in order:
                order.append(part.item)
        if all(copy.end and not copy.resume for copy in copies):
            break
        server.publish("s", numbers(5000, 1))
    assert order == [1, 0, 2]
    assert len({copy.end.position for copy in copies if copy.end}) == 1
    assert [len(copy.rows) for copy in copies] == [4000, 3999, 3998]


def test_removals_are_cut_and_resumed_too(server: ServerProcess) -> None:
    server.define(SQL)
    texts = [f"{n:06}" for n in range(4000)]
    server.publish("s", pa.table({"a": range(4000), "b": texts}))
    handle = server.register("SELECT b, count(*) AS n FROM s GROUP BY b ROWS 4000").handle
    copy = Copy()
    recharge(server, handle, copy)
    last = server.publish("s", pa.table({"a": [0] * 1500, "b": ["one"] * 1500})).position
    copy.removed_received = calls = 0
    while copy.end is None or copy.end.position != last:
        parts = parts_of(server, item_of(handle, copy), byte_budget=3000)
        assert size_of(parts) < 4000 and begin_of(parts).continued == (calls > 0)
        for part in parts:
            copy.take(part)
        calls += 1
    assert copy.sound() and copy.removed_received == 1500 and calls > 4
    assert copy.answer(copy.now) == [*((text, 1) for text in texts[1500:]), ("one", 1500)]


# ---- repair


@pytest.mark.parametrize(
    "select", ["SELECT a, b FROM s", "SELECT a, count(*) AS n FROM s GROUP BY a"]
)
def test_damage_is_repaired_with_what_differs(server: ServerProcess, select: str) -> None:
    server.define(SQL)
    server.publish("s", numbers(0, 500))
    handle = server.register(select).handle
    copy = Copy()
    recharge(server, handle, copy)
    right = copy.answer(copy.now)
    spoiled = sorted(copy.rows)[3]
    del copy.rows[spoiled]
    before = copy.rows_received
    recharge(server, handle, copy, resend=runs_of({spoiled}))
    assert copy.rows_received == before + 1
    missing = sorted(copy.rows)[10:12]
    for row_id in missing:
        del copy.rows[row_id]
    recharge(server, handle, copy, have=runs_of({*copy.rows, 2**61}))
    assert copy.rows_received == before + 3 and copy.removed_received == 1
    assert copy.answer(copy.now) == right
