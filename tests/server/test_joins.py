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
    timestamp = Timestamp()
    timestamp.FromDatetime(at(minute))
    return timestamp


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
    registration = market.stub.DescribeRegistration(request)
    (leg,) = registration.legs
    assert (leg.stream, leg.window, leg.stream_rows) == ("trades", "RANGE 1 HOUR", 3)
    assert (leg.stream, leg.window, leg.matched_rows, leg.stream_rows) == (
        registration.stream,
        registration.window,
        registration.matched_rows,
        registration.stream_rows,
    )


def describe(server: ServerProcess, handle: bytes) -> pb.Registration:
    request = pb.DescribeRegistrationRequest(tenant=server.tenant, handle=handle)
    registration: pb.Registration = server.stub.DescribeRegistration(request)
    return registration


BOTH = "SELECT t.symbol, q.price FROM trades t JOIN quotes q ON t.symbol = q.symbol RANGE 1 HOUR"


def test_a_join_waits_for_the_stream_that_lags(market: ServerProcess) -> None:
    handle = market.register(BOTH).handle
    header, answer = market.invoke(handle)
    assert (header.now, header.complete_until, header.latest) == (stamp(6), stamp(6), stamp(9))
    assert header.window_end == stamp(6)
    assert answer.num_rows == 3
    header, answer = market.invoke(handle, latest=True)
    assert (header.now, header.complete_until, header.latest) == (stamp(9), stamp(6), stamp(9))
    assert answer.num_rows == 5
    assert market.ask(BOTH, latest=True)[1] == answer


def test_nobody_waits_for_a_table_of_names(market: ServerProcess) -> None:
    sql = """
        SELECT t.price, n.name
        FROM trades t WINDOW(RANGE 1 HOUR), names n WHERE t.symbol = n.symbol"""
    header, answer = market.ask(sql)
    assert header.now == header.complete_until == header.latest == stamp(9)
    assert answer["name"].to_pylist() == ["Big Blue", "Sunshine", "Big Blue"]
    assert not header.HasField("window_begin") and not header.HasField("window_end")


def test_every_leg_of_a_registration_is_described(market: ServerProcess) -> None:
    sql = """
        SELECT t.price, n.name
        FROM trades t WINDOW(RANGE 1 HOUR) JOIN names n ON t.symbol = n.symbol
        WHERE t.price > 50 AND n.name = 'Big Blue'"""
    registered = market.register(sql)
    registration = describe(market, registered.handle)
    legs = [(leg.stream, leg.window, leg.stream_rows) for leg in registration.legs]
    assert legs == [("trades", "RANGE 1 HOUR", 3), ("names", "UNBOUNDED", 2)]
    assert (registration.stream, registration.window) == ("trades", "RANGE 1 HOUR")
    assert registration.pattern == registered.pattern == pb.UPDATE_PATTERN_STR
    request = pb.ListRegistrationsRequest(tenant=market.tenant)
    assert market.stub.ListRegistrations(request).registrations[0] == registration


def test_a_stream_counts_registrations_over_every_leg(market: ServerProcess) -> None:
    handle = market.register(BOTH).handle
    market.register("SELECT a.price FROM trades a, trades b WHERE a.price < b.price")
    streams = market.stub.ListStreams(pb.ListStreamsRequest(tenant=market.tenant)).streams
    assert {stream.name: stream.registration_count for stream in streams} == {
        "trades": 2,
        "quotes": 1,
        "names": 0,
    }
    market.stub.Unregister(pb.UnregisterRequest(tenant=market.tenant, handle=handle))
    streams = market.stub.ListStreams(pb.ListStreamsRequest(tenant=market.tenant)).streams
    assert [stream.registration_count for stream in streams] == [0, 0, 1]


def test_the_dropped_stream_of_a_join_is_named(market: ServerProcess) -> None:
    handle = market.register(BOTH).handle
    market.define("DROP STREAM quotes")
    with pytest.raises(grpc.RpcError) as caught:
        market.invoke(handle)
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert detail(caught.value).reason == "STREAM_DROPPED"
    assert "stream quotes was dropped" in str(caught.value.details())


INVALID, NOT_FOUND = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND
MANY = "SELECT a.price FROM trades a" + "".join(f", trades t{n}" for n in range(64))
TWO_CLOCKS = "SELECT t.price FROM trades t WINDOW(RANGE 1 HOUR), names n WINDOW(RANGE 1 HOUR)"


@pytest.mark.parametrize(
    ("sql", "place", "reason", "code"),
    [
        (MANY, "trades t63", "TOO_MANY_REFERENCES", INVALID),
        (TWO_CLOCKS, "names", "MIXED_CLOCKS", INVALID),
        ("SELECT symbol FROM trades, quotes", "symbol", "AMBIGUOUS_NAME", INVALID),
        ("SELECT * FROM trades, quotes", "*", "DUPLICATE_NAME", INVALID),
        ("SELECT a.price FROM trades a, qoutes b", "qoutes", "UNKNOWN_STREAM", NOT_FOUND),
        ("SELECT c.price FROM trades a, quotes b", "c", "BAD_NAME", INVALID),
    ],
)
def test_a_bad_text_over_several_streams_is_underlined(
    market: ServerProcess, sql: str, place: str, reason: str, code: grpc.StatusCode
) -> None:
    for call in (market.ask, market.register):
        with pytest.raises(grpc.RpcError) as caught:
            call(sql)
        problem = detail(caught.value)
        assert (caught.value.code(), problem.reason) == (code, reason)
        assert problem.line == 1 and problem.hint
        assert sql[problem.column - 1 :].startswith(place)
        underlined = problem.excerpt.splitlines()[1]
        start = len(underlined) - len(underlined.lstrip())
        assert problem.excerpt[start:].startswith(place)
