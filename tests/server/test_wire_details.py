"""Continued transfers, encodings, leases and decimals as docs/reference/protocol.md has them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from psoup.server.wire.values import BadValue, parse_date
from psoup.v1 import psoup_pb2 as pb
from tests.oracle.copy import Copy
from tests.support.server.process import ServerProcess, detail, rows_of
from tests.support.server.syncing import SQL, begin_of, item_of, numbers, parts_of, recharge

pytestmark = pytest.mark.process

DAY = 24 * 3600
ARROW, TYPED = pb.ENCODING_ARROW, pb.ENCODING_UNSPECIFIED


@pytest.fixture
def filled(server: ServerProcess) -> tuple[ServerProcess, bytes]:
    server.define(SQL)
    server.publish("s", numbers(0, 3000))
    return server, server.register("SELECT a, b FROM s").handle


# ---- begin, continued


def test_a_continued_begin_says_the_mode_and_nothing_else(
    filled: tuple[ServerProcess, bytes],
) -> None:
    server, handle = filled
    copy, begins = Copy(), []
    while copy.end is None:
        parts = parts_of(server, item_of(handle, copy), byte_budget=40_000)
        begins.append(begin_of(parts))
        for part in parts:
            copy.take(part)
    first, *later = begins
    assert not first.continued and first.columns and first.reason == pb.SYNC_REASON_FIRST
    assert len(later) > 1
    assert all(begin == pb.SyncBegin(mode=first.mode, continued=True) for begin in later)
    assert copy.sound() and len(copy.rows) == 3000


def test_changes_that_are_continued_have_an_empty_mode(filled: tuple[ServerProcess, bytes]) -> None:
    server, handle = filled
    copy = Copy()
    recharge(server, handle, copy)
    server.publish("s", numbers(3000, 1500))
    begins: list[pb.SyncBegin] = []
    while copy.resume or not begins:
        parts = parts_of(server, item_of(handle, copy), byte_budget=20_000)
        begins.append(begin_of(parts))
        for part in parts:
            copy.take(part)
    assert begins[0] == pb.SyncBegin()
    assert len(begins) > 2 and set(map(str, begins[1:])) == {str(pb.SyncBegin(continued=True))}
    assert copy.sound() and len(copy.rows) == 4500


def test_who_lost_what_was_staged_sends_the_token_of_the_copy(
    filled: tuple[ServerProcess, bytes],
) -> None:
    server, handle = filled
    copy = Copy()
    for part in parts_of(server, item_of(handle, copy), byte_budget=40_000):
        copy.take(part)
    assert copy.resume and not copy.token
    copy.resume, copy.staged = b"", None
    parts = recharge(server, handle, copy)
    assert not begin_of(parts).continued and begin_of(parts).columns


def test_a_resume_that_only_holds_a_position_is_not_continued(
    filled: tuple[ServerProcess, bytes],
) -> None:
    server, handle = filled
    copies = [Copy(), Copy()]
    items = [item_of(handle, copy) for copy in copies]
    for part in parts_of(server, *items, byte_budget=1000, one_position=True):
        copies[part.item].take(part)
    assert copies[1].resume and not copies[1].rows_received
    parts = parts_of(server, item_of(handle, copies[1]))
    assert not begin_of(parts).continued and begin_of(parts).columns


# ---- encoding


def test_each_call_may_have_another_encoding(filled: tuple[ServerProcess, bytes]) -> None:
    """In the middle of a transfer too: a token holds none."""
    server, handle = filled
    copy, kinds, calls = Copy(), [], 0
    while copy.end is None:
        encoding = (ARROW, TYPED)[calls % 2]
        item = item_of(handle, copy)
        parts = parts_of(server, item, byte_budget=40_000, encoding=encoding)
        kinds.append({part.WhichOneof("part") for part in parts} & {"rows", "arrow"})
        for part in parts:
            copy.take(part)
        calls += 1
    assert "arrow" in kinds[0] and kinds[1] == {"rows"}
    assert copy.sound() and not copy.damaged() and len(copy.rows) == 3000
    server.publish("s", numbers(9000, 1))
    few = parts_of(server, item_of(handle, copy), encoding=ARROW)
    assert [part.WhichOneof("part") for part in few] == ["begin", "rows", "end"]


# ---- leases


@pytest.mark.parametrize(
    ("lease", "is_accepted"),
    [
        (Duration(), False),
        (Duration(seconds=-1), False),
        (Duration(nanos=999), False),
        (Duration(nanos=1000), True),
        (Duration(seconds=1), True),
        (Duration(seconds=36_600 * DAY), True),
        (Duration(seconds=36_600 * DAY, nanos=1000), False),
    ],
)
def test_bounds_of_a_lease(server: ServerProcess, lease: Duration, is_accepted: bool) -> None:
    server.define("CREATE STREAM s (a BIGINT)")
    rows = rows_of(["client_key"], [pb.Value(text="k")])

    def one() -> Any:
        return server.register("SELECT a FROM s", lease=lease)

    def many() -> Any:
        return server.stub.RegisterMany(
            pb.RegisterManyRequest(
                tenant=server.tenant, sql="SELECT a FROM s", rows=rows, lease=lease
            )
        )

    for call in (one, many):
        if is_accepted:
            call()
            continue
        with pytest.raises(grpc.RpcError) as caught:
            call()
        problem = detail(caught.value)
        assert (problem.reason, problem.field) == ("BAD_REQUEST", "lease")


def test_the_first_lease_of_a_key_stays(server: ServerProcess) -> None:
    server.define("CREATE STREAM s (a BIGINT)")
    leases = (Duration(seconds=3600), Duration(seconds=7200), None)
    handles = {
        server.register("SELECT a FROM s", client_key="k", lease=lease).handle for lease in leases
    }
    request = pb.DescribeRegistrationRequest(tenant=server.tenant, handle=handles.pop())
    described = server.stub.DescribeRegistration(request)
    assert not handles and described.lease == Duration(seconds=3600)
    assert described.lease_until.nanos == 0


# ---- decimals


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-12.50", "-12.50"), ("+3", "3.00"), ("1e3", "1000.00"), ("1E+3", "1000.00"),
        ("125e-2", "1.25"), (".5", "0.50"), ("5.", "5.00"), ("-0", "0.00"), ("007", "7.00"),
        ("0.0000", "0.00"), ("1.2300", "1.23"),
    ],
)  # fmt: skip
def test_a_decimal_may_have_an_exponent_and_comes_back_without(
    server: ServerProcess, text: str, value: str
) -> None:
    server.define("CREATE STREAM d (x DECIMAL(10,2))")
    server.publish("d", rows=rows_of(["x"], [pb.Value(decimal=text)]))
    handle = server.register("SELECT x FROM d").handle
    assert server.values(handle) == [[value]]
    same = server.register(
        "SELECT x FROM d WHERE x = :x", parameters={"x": pb.Value(decimal=text)}
    ).handle
    assert server.values(same) == [[value]]
    assert Decimal(value) == Decimal(text)


@pytest.mark.parametrize(
    "text",
    ["", " 1", "1 ", "1_000", "1,5", "0x10", "NaN", "Infinity", "--1", "1e", "e5", ".", "１２",
     "1e99", "1e-99", "1" * 161],
)  # fmt: skip
def test_what_is_no_decimal(server: ServerProcess, text: str) -> None:
    server.define("CREATE STREAM d (x DECIMAL(10,2))")
    with pytest.raises(grpc.RpcError) as caught:
        server.publish("d", rows=rows_of(["x"], [pb.Value(decimal=text)]))
    assert detail(caught.value).reason == "BAD_VALUE"
    with pytest.raises(grpc.RpcError) as caught:
        server.register("SELECT x FROM d WHERE x = :x", parameters={"x": pb.Value(decimal=text)})
    assert detail(caught.value).reason == "BAD_VALUE"


@pytest.mark.parametrize(
    "text", ["20261116", "2026-W47-1", "2026-11-1", "٢٠٢٦-11-16", "2026-13-01"]
)
def test_dates_have_one_form(text: str) -> None:
    with pytest.raises(BadValue, match="not a date such as 2026-11-16"):
        parse_date(text)
