"""Sync with every point: a client that was away gets each refresh point that it missed, in order,
once, whatever is cut, lost or restarted."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pytest

from datastem.instants import SECOND, from_micros
from psoup.access.principal import Principal
from psoup.errors import BadRequest
from psoup.server.calls import sync as sync_calls
from psoup.server.calls.publish import publish
from psoup.server.calls.register import register
from psoup.server.calls.watch import watch
from psoup.server.core import Core
from psoup.server.settings import Settings
from psoup.store import Store
from psoup.v1 import psoup_pb2 as pb
from psoup.write.policies import DefinePolicy
from psoup.write.streams import Define
from querystem.language import (
    CreatePolicy,
    CreateStream,
    bind_policy,
    bind_query,
    parse_statement,
    policy_sql,
)
from querystem.query import Query
from tests.oracle.copy import Copy
from tests.oracle.points import PassedPoint, PointWalk, begin_of
from tests.oracle.refresh import Event
from tests.oracle.windows import Shown
from tests.support.server.callers import acting_as, new_call, sync_parts
from tests.support.server.epochs import HandMadeEngine
from tests.support.server.process import ipc

T = TypeVar("T")

START = 1_700_000_000 * SECOND
STREAMS = (
    "CREATE STREAM readings (room TEXT, value BIGINT, at TIMESTAMP) ORDERED BY at AHEAD 1 HOUR",
    "CREATE STREAM brief (room TEXT, value BIGINT, at TIMESTAMP) ORDERED BY at RETAIN 20 SECONDS"
    " AHEAD 1 HOUR",
    "CREATE STREAM alarms (room TEXT, value BIGINT, at TIMESTAMP) ORDERED BY at AHEAD 1 HOUR",
    "CREATE STREAM doors (room TEXT, value BIGINT)",
    "CREATE STREAM calls (room TEXT, value BIGINT) RETAIN 20 SECONDS",
    "CREATE STREAM states (room TEXT, value BIGINT) KEY (room)",
    "CREATE STREAM spots (room TEXT, value BIGINT) KEY (room) RETAIN 20 SECONDS",
)
QUERIES = (
    "SELECT room, count(*) AS n, sum(value) AS s FROM doors GROUP BY room RANGE 9 SECONDS"
    " REFRESH EVERY 2 SECONDS",
    "SELECT room, value FROM doors RANGE 20 SECONDS SLIDE 6 SECONDS REFRESH EVERY 4 SECONDS",
    "SELECT value FROM doors ROWS 4 REFRESH EVERY 3 SECONDS OFFSET 1 SECOND",
    "SELECT count(*) AS n FROM doors REFRESH ON calls WHERE value > 5",
    "SELECT room, value FROM doors RANGE 8 SECONDS REFRESH EVERY 5 SECONDS OR ON states",
    "SELECT room, value FROM calls RANGE 5 SECONDS REFRESH EVERY 2 SECONDS",
    "SELECT count(*) AS n FROM calls REFRESH EVERY 6 SECONDS",
    "SELECT room, value FROM states WHERE value > 2 REFRESH EVERY 2 SECONDS",
    "SELECT room, value FROM states REFRESH ON states WHERE value > 6",
    "SELECT sum(value) AS s FROM spots REFRESH EVERY 2 SECONDS",
    "SELECT d.room, s.value, count(*) AS n FROM doors AS d WINDOW(RANGE 9 SECONDS), states AS s"
    " WHERE d.room = s.room GROUP BY d.room, s.value REFRESH EVERY 3 SECONDS",
    "SELECT room, value FROM readings RANGE 6 SECONDS REFRESH EVERY 3 SECONDS",
    "SELECT count(*) AS n, max(value) AS m FROM readings ROWS 5 REFRESH EVERY 2 SECONDS",
    "SELECT room, value FROM brief RANGE 5 SECONDS REFRESH EVERY 2 SECONDS",
    "SELECT room FROM readings RANGE 6 SECONDS REFRESH ON readings WHERE value > 6",
    "SELECT room FROM readings RANGE 6 SECONDS REFRESH EVERY 4 SECONDS"
    " OR ON alarms WHERE value > 6",
    "SELECT room FROM readings ROWS 3 REFRESH ON alarms WHERE value > 6"
    " OR ON readings WHERE value < 2",
    "SELECT r.room, b.value FROM readings AS r WINDOW(RANGE 9 SECONDS), brief AS b"
    " WINDOW(RANGE 9 SECONDS) WHERE r.room = b.room REFRESH EVERY 4 SECONDS",
    "SELECT room, count(*) AS n FROM (SELECT room FROM doors REFRESH ON states) AS seen"
    " GROUP BY room REFRESH EVERY 3 SECONDS",
)
POLICIES = {"doors": "value > claim('least')", "calls": "value > 1", "states": "room <> 'c'"}


def schema_of(sql: str) -> Any:
    statement = parse_statement(sql)
    assert isinstance(statement, CreateStream)
    return statement.schema


SCHEMAS = {schema.name: schema for schema in map(schema_of, STREAMS)}


def bound(sql: str) -> Query:
    return bind_query(sql, SCHEMAS.get)


@dataclass
class Away:
    """A client. `passed` counts the points up to the one that its copy is of, `answer` is that."""

    sql: str
    handle: bytes
    walk: PointWalk
    copy: Copy = field(default_factory=Copy)
    passed: int = 0
    answer: list[Any] | None = None
    points_seen: int = 0
    skipped: set[int] = field(default_factory=set)

    @property
    def item(self) -> pb.SyncItem:
        token = self.copy.resume or self.copy.token
        return pb.SyncItem(handle=self.handle, token=token, every_point=True)


class World:
    """Two servers over one store, and what happened there."""

    def __init__(self, folder: Path, seed: int, policies: Mapping[str, str] | None = None) -> None:
        self.chance = random.Random(seed)
        self.loop = asyncio.new_event_loop()
        self.folder = folder
        self.clock = START
        self.policies = policies or {}
        self.cores = [self._start(), self._start()]
        self.engine = HandMadeEngine(self.cores[0].store)
        self.events: list[Event] = []
        self.counts = dict.fromkeys(SCHEMAS, 0)
        for schema in SCHEMAS.values():
            self.run(self.cores[0].appender.submit(Define("main", "main", schema)))
        for stream, condition in self.policies.items():
            self._define(stream, condition)

    def close(self) -> None:
        for core in self.cores:
            self.run(core.stop())
        self.loop.close()

    def _start(self) -> Core:
        store = Store.open(self.folder, create=True, sync=False)
        core = Core(store, Settings(self.folder, sync_bytes=200), lambda: self.clock)
        self.run(core.start())
        return core

    def _define(self, stream: str, condition: str) -> None:
        sql = policy_sql(f"p{stream}", stream, condition)
        statement = parse_statement(sql)
        assert isinstance(statement, CreatePolicy)
        where = bind_policy(sql, statement, SCHEMAS.__getitem__)
        stream_id = self.cores[0].follower.state.stream_names["main", stream]
        names = "main", "main", f"p{stream}", stream
        proposal = DefinePolicy(*names, stream_id, condition, where)
        self.run(self.cores[0].appender.submit(proposal))

    @property
    def visible(self) -> dict[str, Shown]:
        conditions: dict[str, Shown] = {
            "doors": lambda row: row["value"] > 3,
            "calls": lambda row: row["value"] > 1,
            "states": lambda row: row["room"] != "c",
        }
        return {stream: conditions[stream] for stream in self.policies}

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        caller = Principal("main", "main", frozenset({"developer"}), {"least": 3})
        if not self.policies:
            return self.loop.run_until_complete(work)
        with acting_as(caller):
            return self.loop.run_until_complete(work)

    # ---- what happens

    def act(self) -> None:
        match self.chance.randrange(14):
            case 0:
                self.engine.step()
            case 1:
                self.clock += self.chance.choice((1, 5, 12, 30)) * SECOND
            case 2 if self.chance.random() < 0.3:
                place = self.chance.randrange(2)
                self.run(self.cores[place].stop())
                self.cores[place] = self._start()
            case _:
                self.publish(self.chance.choice([*SCHEMAS]))

    def publish(self, stream: str, count: int = 0) -> None:
        """Publish a few rows; those with event time may be late, or far ahead."""
        self.clock += self.chance.choice((0, 300_000, SECOND, SECOND, 2 * SECOND)) + 1
        count = count or self.chance.choice((1, 1, 2, 4))
        schema = SCHEMAS[stream]
        rooms = [self.chance.choice("abc") for _ in range(count)]
        values = [self.chance.randrange(10) for _ in range(count)]
        late = [self.chance.choice((0, 0, SECOND, 4 * SECOND, -3 * SECOND)) for _ in range(count)]
        stamps = [self.clock - (0 if schema.ts_is_stamp else lateness) for lateness in late]
        columns: dict[str, Any] = {"room": rooms, "value": pa.array(values, pa.int64())}
        if not schema.ts_is_stamp:
            columns["at"] = pa.array(stamps, pa.int64()).view("timestamp[us]")
        ops = ["delete" if schema.key and value == 0 else "row" for value in values]
        if schema.key:
            columns["_op"] = pa.array(ops, pa.string())
        core = self.chance.choice(self.cores)
        request = pb.PublishRequest(stream=stream, arrow=ipc(pa.table(columns)))
        response = self.run(publish(core, new_call(), request))
        first = self.counts[stream]
        self.counts[stream] += count
        rows = [
            {"room": room, "value": value, "ts": ts, "at": from_micros(ts), "row_id": first + place}
            | ({"_op": "delete"} if op == "delete" else {})
            for place, (room, value, ts, op) in enumerate(
                zip(rooms, values, stamps, ops, strict=True)
            )
        ]
        assert response.first_row_id == first
        self.events.append(Event(stream, self.clock, rows, max(stamps)))

    def client(self, sql: str) -> Away:
        request = pb.RegisterRequest(sql=sql, client_key=f"{sql} {self.chance.random()}")
        registered, *_ = self.run(register(self.cores[0], new_call(), request))
        walk = PointWalk(bound(sql), SCHEMAS, self.clock, self.visible)
        return Away(sql, registered.handles[0], walk)

    # ---- syncs

    def sync(
        self, client: Away, most: int | None = None, lose_end: bool = False, **fields: Any
    ) -> bool:
        """Sync once, and check what comes. Return whether more points follow."""
        request = pb.SyncRequest(items=[client.item], **fields)
        more = True
        for part in self.parts(self.chance.choice(self.cores), request, most):
            if part.HasField("end") and lose_end and self.chance.random() < 0.4:
                break
            client.copy.take(part)
            if part.HasField("end"):
                self._check(client, part.end)
                more = part.end.more_points
        client.copy.cut()
        return more

    def catch_up(self, client: Away) -> None:
        for _ in range(1000):
            if not self.sync(client):
                return
        raise AssertionError("it never ends")

    def parts(
        self, core: Core, request: pb.SyncRequest, most: int | None = None
    ) -> list[pb.SyncPart]:
        return self.run(sync_parts(core, request, most))

    def _check(self, client: Away, end: pb.SyncEnd) -> None:
        copy, case = client.copy, (client.sql, client.passed)
        assert copy.sound() and not copy.damaged(), case
        points = client.walk.points(self.events, self.clock)
        arrival = PassedPoint(copy.now, copy.answer(copy.now))
        client.skipped.add(end.skipped_points)
        client.points_seen += 1
        if client.answer is None:
            assert end.skipped_points == pb.SKIPPED_POINTS_NO_COPY and not end.more_points, case
            client.passed = len(points)
        elif end.skipped_points != pb.SKIPPED_POINTS_NO_COPY:
            self._follow(client, end, points, arrival)
        else:
            raise AssertionError(case)
        client.answer = arrival.answer

    def _follow(
        self, client: Away, end: pb.SyncEnd, points: list[PassedPoint], arrival: PassedPoint
    ) -> None:
        """Assert that a point follows the one before. In between are only points at which nothing
        changed, or that were left out for a reason."""
        last = None if end.more_points else len(points)
        if end.skipped_points and not client.walk.is_exact and arrival not in points:
            later = (
                place for place, point in enumerate(points) if (point.now or 0) > (arrival.now or 0)
            )
            client.passed = next(later, len(points))
            return
        for place in range(client.passed, len(points)):
            point = points[place]
            if point == arrival and (last is None or place == last - 1):
                client.passed = place + 1
                return
            if last is not None and point.now == points[-1].now:
                # Of the last point the retention of today counts.
                break
            if point.answer != client.answer:
                if not client.walk.is_exact and arrival not in points[place:]:
                    # A point that a batch passed on its way.
                    client.passed = place
                    return
                assert end.skipped_points == pb.SKIPPED_POINTS_RETENTION, (
                    client.sql,
                    point,
                    arrival,
                )
                self._was_unwhole(client, point)
        assert not (end.more_points and client.walk.is_exact), (
            client.sql,
            "no such point",
            arrival,
        )
        if last is not None:
            client.passed = last

    def _was_unwhole(self, client: Away, point: PassedPoint) -> None:
        """Assert that a leg of the point reached behind what its stream retains."""
        query = client.walk.query
        retained = [leg for leg in query.legs if SCHEMAS[leg.stream].retain]
        if any(SCHEMAS[trigger.stream].retain for trigger in query.triggers):
            return
        (leg,), schema = retained, SCHEMAS[retained[0].stream]
        assert point.now is not None
        reached = [event.reached for event in self.events if event.stream == schema.name]
        present = self.clock if schema.now_is_clock else max(reached)
        begin = begin_of(leg, schema, point.now)
        assert begin is None or begin < present - schema.retain + 1, (client.sql, point)


@contextmanager
def opened(folder: Path, seed: int, policies: Mapping[str, str] | None = None) -> Iterator[World]:
    world = World(folder / "store", seed, policies)
    try:
        yield world
    finally:
        world.close()


@pytest.mark.parametrize("policies", [{}, POLICIES], ids=["all rows", "policies"])
@pytest.mark.parametrize("seed", [1, 2])
def test_oracle_every_point(tmp_path: Path, seed: int, policies: Mapping[str, str]) -> None:
    with opened(tmp_path, seed, policies) as world:
        clients = [world.client(sql) for sql in QUERIES]
        for client in clients:
            world.sync(client)
        for step in range(60):
            world.act()
            if step % 6 == 5:
                for client in world.chance.sample(clients, 5):
                    most = world.chance.choice((None, None, 1, 3, 8))
                    budget = world.chance.choice((0, 0, 0, 1, 300))
                    encoding = world.chance.choice((pb.ENCODING_ARROW, pb.ENCODING_UNSPECIFIED))
                    lost = world.chance.random() < 0.3
                    world.sync(client, most, lost, byte_budget=budget, encoding=encoding)
        for client in clients:
            world.catch_up(client)
        assert sum(client.points_seen for client in clients) > 3 * len(clients)
        skipped = set().union(*(client.skipped for client in clients))
        assert pb.SKIPPED_POINTS_RETENTION in skipped


# ---- one by one

COUNT = "SELECT count(*) AS n FROM readings RANGE 4 SECONDS REFRESH EVERY 2 SECONDS"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with opened(tmp_path, 1) as world:
        yield world


def ends(world: World, request: pb.SyncRequest) -> list[pb.SyncEnd]:
    parts = world.parts(world.cores[0], request)
    return [part.end for part in parts if part.HasField("end")]


def fill(world: World, count: int) -> None:
    """Publish readings, one every two seconds."""
    for _ in range(count):
        world.clock += 2 * SECOND
        at = pa.array([world.clock], pa.int64()).view("timestamp[us]")
        table = pa.table({"room": ["a"], "value": pa.array([1], pa.int64()), "at": at})
        request = pb.PublishRequest(stream="readings", arrow=ipc(table))
        world.run(publish(world.cores[0], new_call(), request))


def test_a_call_has_a_limit_of_points(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    client = world.client("SELECT value FROM readings REFRESH EVERY 2 SECONDS")
    fill(world, 1)
    (end,) = ends(world, pb.SyncRequest(items=[client.item]))
    client.copy.token = end.token
    fill(world, 9)
    monkeypatch.setattr(sync_calls, "MAX_POINTS", 4)
    counts = []
    for _ in range(3):
        called = ends(world, pb.SyncRequest(items=[client.item]))
        counts.append([(end.row_count, end.more_points) for end in called])
        client.copy.token = called[-1].token
    assert counts == [
        [(rows, True) for rows in (2, 3, 4, 5)],
        [(rows, True) for rows in (6, 7, 8, 9)],
        [(10, False)],
    ]


def test_a_budget_ends_a_call_between_points(world: World) -> None:
    client = world.client("SELECT value FROM readings REFRESH EVERY 2 SECONDS")
    fill(world, 1)
    (end,) = ends(world, pb.SyncRequest(items=[client.item]))
    fill(world, 5)
    for rows in (2, 3, 4, 5, 6):
        client.copy.token = end.token
        (end,) = ends(world, pb.SyncRequest(items=[client.item], byte_budget=1))
        assert (end.row_count, end.more_points) == (rows, rows < 6)


def test_a_token_serves_calls_with_every_point_and_without(world: World) -> None:
    client = world.client("SELECT value FROM readings REFRESH ON readings WHERE value = 1")
    fill(world, 1)
    (end,) = ends(world, pb.SyncRequest(items=[client.item]))
    client.copy.token = end.token
    fill(world, 3)
    first, *_ = ends(world, pb.SyncRequest(items=[client.item], byte_budget=1))
    plain = pb.SyncItem(handle=client.handle, token=first.token)
    (last,) = ends(world, pb.SyncRequest(items=[plain]))
    assert (first.row_count, first.more_points) == (2, True)
    assert (last.row_count, last.more_points, last.skipped_points) == (4, False, 0)
    client.copy.token = last.token
    fill(world, 2)
    rows = [end.row_count for end in ends(world, pb.SyncRequest(items=[client.item]))]
    assert rows == [5, 6]


def test_rows_that_refreshed_are_no_longer_retained(world: World) -> None:
    client = world.client("SELECT count(*) AS n FROM doors REFRESH ON calls")
    world.publish("calls", 1)
    world.sync(client)
    for _ in range(3):
        world.publish("doors", 1)
        world.publish("calls", 1)
    world.clock += 19 * SECOND
    world.publish("calls", 1)
    skipped = [end.skipped_points for end in ends(world, pb.SyncRequest(items=[client.item]))]
    assert skipped[0] == pb.SKIPPED_POINTS_RETENTION and not any(skipped[1:])


def test_a_watch_brings_each_point(world: World) -> None:
    client = world.client("SELECT value FROM readings REFRESH EVERY 2 SECONDS")
    fill(world, 1)
    (end,) = ends(world, pb.SyncRequest(items=[client.item]))
    client.copy.token = end.token
    fill(world, 4)

    async def rounds() -> list[pb.SyncEnd]:
        request = pb.WatchRequest(sync=pb.SyncRequest(items=[client.item]), rounds=1)
        parts = [part async for part in watch(world.cores[0], new_call(), request)]
        return [part.end for part in parts if part.HasField("end")]

    arrival = [(end.row_count, end.more_points) for end in world.run(rounds())]
    assert arrival == [(2, True), (3, True), (4, True), (5, False)]


@pytest.mark.parametrize(
    ("sql", "base_rows"),
    [
        ("SELECT value FROM readings", False),
        ("SELECT value FROM doors RANGE 5 SECONDS REFRESH EVERY 1 SECOND", True),
        (
            "SELECT d.value FROM doors AS d WINDOW(RANGE 9 SECONDS), readings AS r"
            " WHERE d.value = r.value REFRESH EVERY 2 SECONDS",
            False,
        ),
    ],
    ids=["no refresh", "base rows", "two kinds of NOW"],
)
def test_what_has_no_points_is_refused(world: World, sql: str, base_rows: bool) -> None:
    client = world.client(sql)
    item = pb.SyncItem(handle=client.handle, every_point=True, base_rows=base_rows)
    (part,) = world.parts(world.cores[0], pb.SyncRequest(items=[item]))
    assert part.refused.detail.reason == "NO_POINTS"
    assert part.refused.detail.field == "every_point"


def test_points_do_not_share_a_position(world: World) -> None:
    client = world.client(COUNT)
    request = pb.SyncRequest(items=[client.item], one_position=True)
    with pytest.raises(BadRequest, match="one_position"):
        world.parts(world.cores[0], request)
