"""Queries over several streams, as a client sees them over the wire."""

from __future__ import annotations

import datetime

import grpc
import pyarrow as pa
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from psoup.v1 import psoup_pb2 as pb
from tests.support.server.process import ServerProcess, detail

pytestmark = pytest.mark.process

NOON = datetime.datetime(2025, 3, 3, 12, tzinfo=datetime.UTC)


def at(minute: int) -> datetime.datetime:
    return NOON + datetime.timedelta(minutes=minute)


def stamp(minute: int) -> Timestamp:
    found = Timestamp()
    found.FromDatetime(at(minute))
    return found


@pytest.fixture
def market(server: ServerProcess) -> ServerProcess:
    """Trades that have come further than quotes, and names, which nobody waits for."""
    server.define("CREATE STREAM trades (at TIMESTAMP, symbol TEXT, price DOUBLE) ORDERED BY at")
    server.define("CREATE STREAM quotes (at TIMESTAMP, symbol TEXT, price DOUBLE) ORDERED BY at")
    server.define("CREATE STREAM names (symbol TEXT, name TEXT) KEY (symbol)")
    send(server, "trades", (0, "IBM", 100.0), (5, "SUN", 12.0), (9, "IBM", 105.0))
    send(server, "quotes", (0, "IBM", 101.0), (4, "SUN", 11.0), (6, "IBM", 104.0))
    names = {"symbol": ["IBM", "SUN"], "name": ["Big Blue", "Sunshine"]}
    server.publish("names", pa.table(names))
    return server


def send(server: ServerProcess, stream: str, *rows: tuple[int, str, float]) -> None:
    minutes, symbols, prices = zip(*rows, strict=True)
    columns = {"at": [at(minute) for minute in minutes], "symbol": symbols, "price": prices}
    server.publish(stream, pa.table({name: list(column) for name, column in columns.items()}))


def test_the_header_tells_how_far_event_time_has_come(market: ServerProcess) -> None:
    header, _ = market.ask("SELECT price FROM trades RANGE 1 HOUR", latest=True)
    assert header.now == header.complete_until == header.latest == stamp(9)
    header, _ = market.ask("SELECT name FROM names")
    assert not header.HasField("complete_until") and not header.HasField("latest")
    market.define("CREATE STREAM later (at TIMESTAMP) ORDERED BY at")
    header, _ = market.ask("SELECT at FROM later")
    assert not header.HasField("complete_until") and not header.HasField("latest")


def test_an_answer_is_of_one_instant(market: ServerProcess) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        market.ask("SELECT name FROM names", latest=True, as_of=stamp(3))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert detail(caught.value).field == "latest"


def test_a_registration_over_one_stream_has_one_leg(market: ServerProcess) -> None:
    handle = market.register("SELECT price FROM trades WHERE symbol = 'IBM' RANGE 1 HOUR").handle
    request = pb.DescribeRegistrationRequest(tenant=market.tenant, handle=handle)
    found = market.stub.DescribeRegistration(request)
    (leg,) = found.legs
    assert (leg.stream, leg.window, leg.stream_rows) == ("trades", "RANGE 1 HOUR", 3)
    assert (leg.stream, leg.window, leg.predicate_id, leg.matched_rows, leg.stream_rows) == (
        found.stream,
        found.window,
        found.predicate_id,
        found.matched_rows,
        found.stream_rows,
    )
