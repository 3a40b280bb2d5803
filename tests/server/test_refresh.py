"""REFRESH: the answer changes at its points only, whoever matched the rows and however often a
server starts anew. The log itself is what the oracle walks."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest

from datastem.codec import decode, query_view
from datastem.instants import from_micros, to_micros
from datastem.schema import StreamSchema
from psoup.server.wire.values import from_instant, to_instant
from psoup.store import Data, Entry, Store
from psoup.store import StreamCreated as CreateEvent
from psoup.v1 import psoup_pb2 as pb
from querystem.language import CreateStream, bind_query, parse_statement
from querystem.query import Query
from querystem.refresh import RefreshEvery
from tests.oracle.refresh import Event, History, Refreshed
from tests.server.conftest import Start
from tests.support.server.epochs import HandMadeEngine
from tests.support.server.process import ServerProcess, detail

SECOND = 1_000_000
STREAMS = (
    "CREATE STREAM readings (room TEXT, value BIGINT, at TIMESTAMP) ORDERED BY at",
    "CREATE STREAM brief (room TEXT, value BIGINT, at TIMESTAMP) ORDERED BY at RETAIN 20 SECONDS",
    "CREATE STREAM alarms (room TEXT, value BIGINT, at TIMESTAMP) ORDERED BY at RETAIN 30 SECONDS",
    "CREATE STREAM doors (room TEXT, value BIGINT)",
)
EVERY = [
    "SELECT room, value, row_id FROM readings REFRESH EVERY 4 SECONDS",
    "SELECT count(*) AS n, sum(value) AS s FROM readings WHERE value > 3 REFRESH EVERY 1 SECOND",
    "SELECT room, value FROM readings RANGE 5 SECONDS SLIDE 2 SECONDS REFRESH EVERY 3 SECONDS",
    "SELECT room, row_id FROM readings BEGIN NOW - 6 SECONDS END NOW - 1 SECOND "
    "REFRESH EVERY 4 SECONDS",
    "SELECT row_id FROM readings WHERE value < 8 ROWS 6 SLIDE 2 REFRESH EVERY 3 SECONDS",
    "SELECT room, value FROM readings ROWS 1 PARTITION BY room REFRESH EVERY 7 SECONDS",
    "SELECT row_id FROM readings BEGIN ROW LAST - 3 END ROW LAST REFRESH EVERY 2 SECONDS",
    "SELECT room, max(value) AS top FROM brief GROUP BY room REFRESH EVERY 5 SECONDS",
    "SELECT row_id FROM brief RANGE 10 SECONDS REFRESH EVERY 10 SECONDS",
]
ON = [
    "SELECT room, value, row_id FROM readings REFRESH ON alarms WHERE value > 6",
    "SELECT count(*) AS n FROM readings WHERE value > 3 RANGE 5 SECONDS REFRESH ON alarms",
    "SELECT row_id FROM readings WHERE value > 6 REFRESH ON readings WHERE value > 6",
    "SELECT row_id FROM readings ROWS 3 REFRESH ON readings WHERE room = 'a' AND value > 4",
    "SELECT row_id FROM brief REFRESH ON alarms WHERE room = 'b'",
    "SELECT row_id FROM readings REFRESH ON alarms WHERE value > 100",
    "SELECT row_id, value FROM doors REFRESH ON alarms WHERE value > 6",
    "SELECT row_id FROM doors WHERE value > 2 REFRESH ON doors WHERE value > 7",
    "SELECT room, value FROM doors ROWS 1 PARTITION BY room REFRESH ON readings WHERE value = 9",
]
ARRIVAL = [
    "SELECT row_id FROM doors REFRESH EVERY 0.05 SECONDS",
    "SELECT count(*) AS n FROM doors WHERE value > 3 RANGE 1 SECOND REFRESH EVERY 0.2 SECONDS",
]


def schema_of(sql: str) -> StreamSchema:
    statement = parse_statement(sql)
    assert isinstance(statement, CreateStream)
    return statement.schema


SCHEMAS = {schema.name: schema for schema in map(schema_of, STREAMS)}


def bound(sql: str) -> Query:
    return bind_query(sql, SCHEMAS.get)


class Happened:
    """Every event of a log that has to do with rows, each read once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._names: dict[int, str] = {}
        self._version = 0
        self._events: list[Event] = []

    def events(self) -> list[Event]:
        latest = self._store.log.latest_version(self._version)
        for version in range(self._version + 1, latest + 1):
            for entry in self._store.log.read(version):
                self._take(entry)
        self._version = latest
        return list(self._events)

    def _take(self, entry: Entry) -> None:
        event = entry.event
        if isinstance(event, CreateEvent):
            self._names[event.stream_id] = event.schema.name
        if not isinstance(event, Data):
            return
        name, rows = self._names[event.stream_id], []
        if event.rows:
            place, first = entry.position.packed, event.first_row_id
            batch = decode(SCHEMAS[name], event.payload, first, entry.stamp, place)
            rows = [{**row, "ts": to_micros(row["ts"])} for row in query_view(batch).to_pylist()]
        assert event.max_ts is not None
        self._events.append(Event(name, entry.stamp, rows, event.max_ts))


class World:
    """Publishes at random to a server; sometimes it is another one, sometimes an engine steps."""

    def __init__(self, start: Start, folder: Path, seed: int, engine: bool) -> None:
        self._start = start
        self.made = random.Random(seed)
        self.server = start()
        store = Store.open(folder)
        self.log = Happened(store)
        self.engine = HandMadeEngine(store) if engine else None
        for sql in STREAMS:
            self.server.define(sql)
        self._reached = 0

    def act(self) -> None:
        match self.made.randrange(12):
            case 0 if self.engine is not None:
                self.engine.step()
            case 1:
                stream = self.made.choice(["readings", "brief", "alarms"])
                self._reached += self.made.randrange(4) * SECOND
                self.server.publish(stream, heartbeat=from_instant(self._reached))
            case 2 if self.made.random() < 0.2:
                self.server.kill()
                self.server = self._start()
            case _:
                self.publish(self.made.choice([*SCHEMAS, "readings", "alarms"]))

    def publish(self, stream: str) -> None:
        """Rows may be late, and the last of them is not always the newest."""
        count = self.made.choice([1, 1, 2, 5])
        self._reached += self.made.choice([0, 300_000, SECOND, 2 * SECOND])
        late = [self.made.choice([0, 0, 0, SECOND, 7 * SECOND]) for _ in range(count)]
        columns: dict[str, Any] = {
            "room": [self.made.choice("abc") for _ in range(count)],
            "value": pa.array([self.made.randrange(10) for _ in range(count)], pa.int64()),
            "at": [from_micros(max(0, self._reached - lateness)) for lateness in late],
        }
        names = [column.name for column in SCHEMAS[stream].columns]
        self.server.publish(stream, pa.table({name: columns[name] for name in names}))


def check(header: pb.AnswerHeader, answer: pa.Table, expected: Refreshed, case: object) -> None:
    assert [tuple(row.values()) for row in answer.to_pylist()] == expected.answer, case
    refreshed = to_instant(header.refreshed_at) if header.HasField("refreshed_at") else None
    now = to_instant(header.now) if header.HasField("now") else None
    assert (refreshed, now) == (expected.instant, expected.now), case


@pytest.mark.process
@pytest.mark.parametrize(("seed", "engine"), [(1, False), (2, True)])
def test_oracle_refreshed_answers(start: Start, tmp_path: Path, seed: int, engine: bool) -> None:
    world = World(start, tmp_path / "store", seed, engine)
    queries = [*EVERY, *ON]
    handles: dict[str, bytes] = {}
    for step in range(72):
        world.act()
        for sql in queries:
            if sql not in handles and world.made.random() < 0.1:
                handles[sql] = world.server.register(sql).handle
        if step % 6 == 5:
            events = world.log.events()
            history = History(SCHEMAS, events, 0)
            stamps = [event.stamp for event in events]
            for sql in world.made.sample(queries, 8):
                expected = history.ask(bound(sql))
                if sql in handles:
                    check(*world.server.invoke(handles[sql]), expected, (step, sql))
                check(*world.server.ask(sql), expected, (step, sql))
            for sql in world.made.sample(queries, 4):
                as_of_then = world.made.choice(stamps)
                past = History(SCHEMAS, events, 1 << 60, as_of_then)
                fields = {"as_of": from_instant(as_of_then)}
                check(*world.server.ask(sql, **fields), past.ask(bound(sql)), (step, sql, fields))
                instant = world.made.randrange(60 * SECOND)
                if "FROM doors" in sql:
                    instant = as_of_then
                today = History(SCHEMAS, events, 1 << 60, instant, today=True)
                moment = {"as_of": from_instant(instant), "knowledge": pb.KNOWLEDGE_TODAY}
                check(*world.server.ask(sql, **moment), today.ask(bound(sql)), (step, sql, moment))


@pytest.mark.process
def test_oracle_arrival_time_every(start: Start, tmp_path: Path) -> None:
    world = World(start, tmp_path / "store", 4, False)
    handles = [world.server.register(sql).handle for sql in ARRIVAL]
    for _ in range(15):
        world.publish("doors")
        for sql, handle in zip(ARRIVAL, handles, strict=True):
            query = bound(sql)
            assert isinstance(query.refresh, RefreshEvery)
            before = time.time_ns() // 1000
            header, answer = world.server.invoke(handle)
            after = time.time_ns() // 1000
            point = to_instant(header.refreshed_at)
            assert point % query.refresh.period == 0
            assert query.refresh.point(before) <= point <= after
            expected = History(SCHEMAS, world.log.events(), point).ask(query)
            check(header, answer, expected, sql)
            unrefreshed, fresh = world.server.invoke(handle, unrefreshed=True)
            assert not unrefreshed.HasField("refreshed_at")
            if "row_id" in sql:
                assert fresh.num_rows == sum(len(event.rows) for event in world.log.events())


# ---- one by one


def at(second: float) -> datetime:
    return from_micros(int(second * SECOND))


def reading(room: str, value: int, second: float) -> pa.Table:
    return pa.table({"room": [room], "value": [value], "at": [at(second)]})


@pytest.fixture
def rooms(server: ServerProcess) -> Iterator[ServerProcess]:
    for sql in STREAMS:
        server.define(sql)
    yield server


def ids(answer: tuple[pb.AnswerHeader, pa.Table]) -> list[int]:
    row_ids: list[int] = answer[1]["row_id"].to_pylist()
    return row_ids


@pytest.mark.process
def test_between_the_points_nothing_moves(rooms: ServerProcess) -> None:
    handle = rooms.register("SELECT row_id FROM readings REFRESH EVERY 10 SECONDS").handle
    header, empty = rooms.invoke(handle)
    assert empty.num_rows == 0 and not header.HasField("now")
    rooms.publish("readings", reading("a", 1, 12))
    rooms.publish("readings", reading("a", 1, 9))
    assert ids(rooms.invoke(handle)) == [], "the row at 9 came after the point at 10 had passed"
    assert ids(rooms.invoke(handle, knowledge=pb.KNOWLEDGE_TODAY)) == [], "as of nothing"
    assert ids(rooms.invoke(handle, unrefreshed=True)) == [1, 0]
    rooms.publish("readings", heartbeat=from_instant(19 * SECOND))
    assert ids(rooms.invoke(handle)) == []
    rooms.publish("readings", heartbeat=from_instant(20 * SECOND))
    assert ids(rooms.invoke(handle)) == [1, 0], "a heartbeat passes the point at 20"
    rooms.publish("readings", reading("a", 1, 15))
    header, answer = rooms.invoke(handle)
    assert answer["row_id"].to_pylist() == [1, 0]
    assert header.refreshed_at == header.now == from_instant(20 * SECOND)


@pytest.mark.process
def test_the_row_that_refreshes_is_in_its_answer(rooms: ServerProcess) -> None:
    sql = "SELECT row_id FROM readings REFRESH ON readings WHERE value = 9"
    handle = rooms.register(sql).handle
    rooms.publish("readings", reading("a", 1, 1))
    header, answer = rooms.invoke(handle)
    assert answer.num_rows == 0 and "refreshed" in header.notes[0]
    rooms.publish("readings", reading("a", 9, 2))
    rooms.publish("readings", reading("a", 1, 2))
    assert ids(rooms.invoke(handle)) == ids(rooms.ask(sql)) == [0, 1]
    count = rooms.ask("SELECT count(*) AS n FROM readings REFRESH ON alarms")[1]
    assert count["n"].to_pylist() == [0], "over no rows SQL's answer has a row"


@pytest.mark.process
def test_a_predicate_that_refreshes_is_one_like_any_other(rooms: ServerProcess) -> None:
    def describe(handle: bytes) -> pb.Registration:
        request = pb.DescribeRegistrationRequest(tenant=rooms.tenant, handle=handle)
        registration: pb.Registration = rooms.stub.DescribeRegistration(request)
        return registration

    def predicates() -> int:
        status: pb.StatusResponse = rooms.stub.Status(pb.StatusRequest())
        return status.predicate_count

    before = predicates()
    sql = "SELECT row_id FROM readings WHERE value > 3 REFRESH ON alarms WHERE value > 6"
    first, second = rooms.register(sql).handle, rooms.register(sql).handle
    alone = rooms.register("SELECT row_id FROM alarms WHERE value > 6").handle
    assert predicates() == before + 2
    described = describe(first)
    assert described.refresh == "REFRESH ON alarms WHERE value > 6"
    explained = rooms.stub.Explain(pb.ExplainRequest(tenant=rooms.tenant, handle=first))
    assert explained.refresh == described.refresh
    rooms.publish("alarms", reading("a", 9, 1))
    assert rooms.invoke(alone)[0].computed_rows == 1
    assert rooms.invoke(first)[0].computed_rows == 0, "what was computed for one serves the other"
    for handle, predicate_count in ((first, 2), (alone, 2), (second, 0)):
        rooms.stub.Unregister(pb.UnregisterRequest(tenant=rooms.tenant, handle=handle))
        assert predicates() == before + predicate_count
    self_refreshing = rooms.register(
        "SELECT 1 AS x FROM alarms WHERE value > 6 REFRESH ON alarms WHERE 6 < value"
    )
    assert predicates() == before + 1, "the condition and the trigger are one predicate"
    rooms.stub.Unregister(pb.UnregisterRequest(tenant=rooms.tenant, handle=self_refreshing.handle))
    assert predicates() == before


@pytest.mark.process
def test_the_stream_that_refreshes_is_dropped(rooms: ServerProcess) -> None:
    handle = rooms.register("SELECT row_id FROM readings REFRESH ON alarms").handle
    rooms.publish("readings", reading("a", 1, 1))
    rooms.define("DROP STREAM alarms")
    for calls in (lambda: rooms.invoke(handle), lambda: rooms.invoke(handle, window="ROWS 1")):
        with pytest.raises(grpc.RpcError) as caught:
            calls()
        assert detail(caught.value).reason == "STREAM_DROPPED"
        assert "unrefreshed" in detail(caught.value).hint
    assert ids(rooms.invoke(handle, unrefreshed=True)) == [0]


@pytest.mark.process
def test_another_window_counts_the_period_too(rooms: ServerProcess) -> None:
    handle = rooms.register("SELECT row_id FROM brief RANGE 5 SECONDS REFRESH EVERY 10 SECONDS")
    with pytest.raises(grpc.RpcError) as caught:
        rooms.invoke(handle.handle, window="RANGE 15 SECONDS")
    assert detail(caught.value).reason == "WINDOW_PAST_RETENTION"
    rooms.invoke(handle.handle, window="RANGE 15 SECONDS", unrefreshed=True)
    rooms.invoke(handle.handle, window="RANGE 10 SECONDS")


@pytest.mark.process
def test_parameters(rooms: ServerProcess) -> None:
    sql = "SELECT row_id FROM readings REFRESH ON alarms WHERE room = :room"
    handles = [
        rooms.register(sql, parameters={"room": pb.Value(text=room)}).handle for room in "ab"
    ]
    rooms.publish("readings", reading("a", 1, 1))
    rooms.publish("alarms", reading("b", 1, 1))
    assert [ids(rooms.invoke(handle)) for handle in handles] == [[], [0]]


@pytest.mark.process
def test_a_parameter_in_offset(rooms: ServerProcess) -> None:
    sql = "SELECT row_id FROM readings REFRESH EVERY :period SECONDS OFFSET :begin SECONDS"
    handles = []
    for begin in (0, 1, 3, 5):
        values = {"period": pb.Value(bigint=4), "begin": pb.Value(bigint=begin)}
        handles.append(rooms.register(sql, parameters=values).handle)
    rooms.publish("readings", reading("a", 1, 6))
    answers = [rooms.invoke(handle)[0] for handle in handles]
    assert [to_instant(header.refreshed_at) for header in answers] == [
        second * SECOND for second in (4, 5, 3, 5)
    ]
