"""Back-fill matches rows that a window can reach; other matches are omitted, or dropped."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from datastem.instants import DAY, HOUR, MINUTE, SECOND
from psoup.engine.ledger import Ledger
from psoup.engine.settings import EngineSettings, Rest
from psoup.server.calls.invoke import invoke
from psoup.server.calls.register import register
from psoup.server.core import Core
from psoup.server.settings import Settings
from psoup.store import Interest, Store
from psoup.v1 import psoup_pb2 as pb
from results.window import UNBOUNDED, Bound, CountWindow, TimeWindow, Window
from tests.support.engine.author import Author, sensor_is, timed
from tests.support.engine.killing import MortalEngine
from tests.support.engine.pump import QUIET, Pump
from tests.support.engine.reading import covered, matched, pieces, stem_rows
from tests.support.lengths import short_first
from tests.support.server.callers import new_call
from tests.support.server.process import received

pytestmark = pytest.mark.spark

BEGIN = 1_800_000_000 * SECOND
SMALL = replace(QUIET, merge_files=100, cut_rows=8, slice_rows=7, slice_seconds=0.0, rest=Rest.IDLE)
NEVER = replace(SMALL, rest=Rest.NEVER)
BUSY = replace(SMALL, idle=3600.0)
EAGER = replace(SMALL, merge_files=6)


def last(span: int) -> Window:
    return TimeWindow(Bound(1 - span, True))


def rows(instants: Iterable[int], kinds: int = 2) -> pa.RecordBatch:
    """Return a row for each instant, with the sensors 0, 1, … in turn."""
    at = list(instants)
    sensors = pa.array([place % kinds for place in range(len(at))], pa.int64())
    schema = timed().arrow
    return pa.RecordBatch.from_arrays(
        [sensors, pa.array(at, pa.timestamp("us", "UTC"))], schema=schema
    )


def minutes(first: int, stop: int) -> pa.RecordBatch:
    return rows(BEGIN + number * MINUTE for number in range(first, stop))


def filled(author: Author, pump: Pump) -> int:
    """A stream with a row a minute for a hundred minutes, in five files."""
    stream = author.create(timed())
    for first in range(0, 100, 20):
        author.publish(stream, minutes(first, first + 20))
        pump.step()
    return stream


def assert_exact(store: Store, stream: int, predicate: int, sensor: int) -> list[tuple[int, int]]:
    """Assert that a predicate has exactly its matches within its coverage, and none outside."""
    inside = covered(store, stream, predicate)
    ids = [row["_row_id"] for row in stem_rows(store, stream) if row["sensor"] == sensor]
    assert matched(store, predicate) == [id_ for id_ in ids if any(a <= id_ < b for a, b in inside)]
    return inside


def test_a_new_query_is_done_where_its_window_reaches_and_later_with_the_rest(
    store: Store, author: Author, spark: SparkSession
) -> None:
    pump = Pump(store, spark, BUSY)
    stream = filled(author, pump)
    _, predicate = author.register(stream, sensor_is(1), window=last(15 * MINUTE))
    pump.run()
    assert assert_exact(store, stream, predicate, 1) == [(80, 100)]
    assert pump.backfill.pending(pump.ledger) == {}
    assert pump.backfill.rest(pump.ledger) == {stream: 80}
    idle = Pump(store, spark, SMALL)
    idle.run()
    assert assert_exact(store, stream, predicate, 1) == [(0, 100)]
    assert idle.backfill.rest(idle.ledger) == {}


def test_a_wider_window_on_a_shared_predicate_starts_a_back_fill(
    store: Store, author: Author, spark: SparkSession
) -> None:
    pump = Pump(store, spark, BUSY)
    stream = filled(author, pump)
    _, narrow = author.register(stream, sensor_is(1), window=last(15 * MINUTE))
    _, second = author.register(stream, sensor_is(0), window=last(15 * MINUTE))
    pump.run()
    _, wide = author.register(stream, sensor_is(1), window=last(45 * MINUTE))
    assert narrow == wide
    pump.run()
    assert assert_exact(store, stream, wide, 1) == [(40, 100)]
    assert assert_exact(store, stream, second, 0) == [(80, 100)]
    assert pump.ledger.coverage.cohorts(stream) != []


def test_a_window_that_time_does_not_bound_reaches_everything(
    store: Store, author: Author, spark: SparkSession
) -> None:
    pump = Pump(store, spark, NEVER)
    stream = filled(author, pump)
    windows: list[Window] = [UNBOUNDED, CountWindow(3)]
    for sensor, window in enumerate(windows):
        author.register(stream, sensor_is(sensor), window=window)
    pump.run()
    for sensor, predicate in enumerate(author.state.predicates):
        assert assert_exact(store, stream, predicate, sensor) == [(0, 100)]


def test_a_late_row_in_the_window_is_reached(
    store: Store, author: Author, spark: SparkSession
) -> None:
    """A row may have a ts far ahead of its neighbours', so that a window holds it long after."""
    pump = Pump(store, spark, NEVER)
    stream = author.create(timed())
    ahead = rows([BEGIN + 99 * MINUTE, BEGIN + 99 * MINUTE])
    for batch in (minutes(0, 10), ahead, *(minutes(at, at + 10) for at in range(10, 90, 10))):
        author.publish(stream, batch)
        pump.step()
    _, predicate = author.register(stream, sensor_is(1), window=last(5 * MINUTE))
    pump.run()
    assert assert_exact(store, stream, predicate, 1) == [(10, 92)]


def test_what_no_window_reaches_any_more_is_dropped(
    store: Store, author: Author, spark: SparkSession
) -> None:
    pump = Pump(store, spark, NEVER)
    stream = filled(author, pump)
    handle, predicate = author.register(stream, sensor_is(1))
    _, narrow = author.register(stream, sensor_is(0), window=last(5 * MINUTE))
    pump.run()
    assert assert_exact(store, stream, predicate, 1) == [(0, 100)]
    assert assert_exact(store, stream, narrow, 0) == [(80, 100)]
    assert pump.ledger.epoch.kind != "cut"
    author.unregister(handle)
    _, third = author.register(stream, sensor_is(1), window=last(18 * MINUTE))
    pump.run()
    assert assert_exact(store, stream, third, 1) == [(80, 100)]
    assert min(piece["lo"] for piece in pieces(store)) >= 80
    for first in range(100, 200, 20):
        author.publish(stream, minutes(first, first + 20))
        pump.step()
    pump.run()
    assert covered(store, stream, narrow)[0][0] >= 176
    assert assert_exact(store, stream, third, 1)[0][0] >= 160
    assert min(piece["lo"] for piece in pieces(store)) >= 160


def test_what_a_server_asks_for_is_matched_and_kept_for_a_day(
    store: Store, author: Author, spark: SparkSession
) -> None:
    pump = Pump(store, spark, NEVER)
    stream = filled(author, pump)
    _, predicate = author.register(stream, sensor_is(1), window=last(5 * MINUTE))
    pump.run()
    assert covered(store, stream, predicate)[0][0] >= 80
    author.append(Interest(stream, predicate, BEGIN + 33 * MINUTE))
    pump.run()
    assert assert_exact(store, stream, predicate, 1)[0][0] in range(20, 34)
    restarted = Pump(store, spark, NEVER)
    restarted.run()
    assert assert_exact(store, stream, predicate, 1)[0][0] in range(20, 34)
    author._clock += DAY + HOUR
    author.publish(stream, minutes(100, 101))
    restarted.run()
    assert assert_exact(store, stream, predicate, 1)[0][0] >= 80


async def test_who_waits_for_the_engine_gets_what_no_window_reached(
    store: Store, author: Author, spark: SparkSession
) -> None:
    pump = Pump(store, spark, NEVER)
    filled(author, pump)
    core = Core(store, Settings(store.root, poll=0.01))
    await core.start()
    try:
        sql = "SELECT at FROM timed WHERE sensor = 1 RANGE 5 MINUTES"
        (handle,) = (await register(core, new_call(), pb.RegisterRequest(sql=sql)))[0].handles
        await asyncio.to_thread(pump.run)
        request = pb.InvokeRequest(handle=handle, window="RANGE 60 MINUTES", wait_for_engine=True)
        waiting = asyncio.create_task(received(invoke(core, new_call(300.0), request)))
        while not waiting.done():
            await asyncio.to_thread(pump.round)
        header, *_ = await waiting
    finally:
        await core.stop()
    assert (header.header.row_count, header.header.computed_rows) == (30, 0)
    assert pump.ledger.coverage.cohorts(1)[-1].row_lo in range(20, 40)


# ---- random use


KINDS = 6
WINDOWS = (UNBOUNDED, *(last(span * MINUTE) for span in (1, 3, 10, 40)), CountWindow(2))


@dataclass
class Life:
    """A stream and its queries, used at random; what each query reaches is known exactly."""

    author: Author
    dice: Random
    stream: int = 0
    now: int = BEGIN
    published: list[int] = field(default_factory=list)
    queries: dict[bytes, tuple[int, int, Window]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.stream = self.author.create(timed())

    def act(self) -> None:
        dice = self.dice
        kind = dice.choices(["rows", "register", "unregister", "ask"], [8, 4, 3, 0.3])[0]
        if kind == "rows":
            self.now += dice.randrange(40) * MINUTE
            count = dice.randrange(1, 9)
            late = [self.now - dice.randrange(60) * MINUTE for _ in range(count - 1)]
            self.author.publish(self.stream, rows([*late, self.now], KINDS))
            self.published += [*late, self.now]
        elif kind == "register":
            sensor, window = dice.randrange(KINDS), dice.choices(WINDOWS, [1, 6, 6, 4, 3, 1])[0]
            handle, predicate = self.author.register(self.stream, sensor_is(sensor), window=window)
            self.queries[handle] = predicate, sensor, window
        elif self.queries:
            handle = dice.choice(list(self.queries))
            if kind == "unregister":
                del self.queries[handle]
                self.author.unregister(handle)
            else:
                since = self.now - dice.randrange(90) * MINUTE
                self.author.append(Interest(self.stream, self.queries[handle][0], since))

    def check(self, store: Store, done: bool) -> None:
        """Assert that stored matches are exact and, when all is `done`, every window is covered."""
        epoch = store.epochs.latest()[1]
        state = store.state(epoch)
        for handle, (predicate, sensor, window) in self.queries.items():
            if handle not in state.registrations:
                continue
            inside = assert_exact(store, self.stream, predicate, sensor)
            if done:
                needed = {id_ for id_, ts in enumerate(self.published) if self._holds(window, ts)}
                met = {id_ for lo, hi in inside for id_ in range(lo, hi)}
                assert needed <= met, (window, needed - met)

    def _holds(self, window: Window, ts: int) -> bool:
        if not isinstance(window, TimeWindow) or window.begin is None:
            return True
        return ts >= window.begin.at(max(self.published, default=0))


def live(store: Store, spark: SparkSession, settings: EngineSettings, seed: int, acts: int) -> None:
    dice = Random(seed)
    life = Life(Author(store), dice)
    engine = MortalEngine(store, spark, settings, dice)
    for _ in range(acts):
        for _ in range(dice.randrange(4)):
            life.act()
        engine.work()
        life.check(store, done=False)
        if dice.random() < 0.15:
            engine.pump.run()
            life.check(store, done=True)
    engine.pump.run()
    life.check(store, done=True)


@pytest.mark.timeout(600)
def test_any_life_covers_every_window_and_stays_exact(
    store: Store, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds, publish = set(), Ledger.publish

    def noting(ledger: Ledger, kind: str, *arguments: Any) -> None:
        kinds.add(kind)
        publish(ledger, kind, *arguments)

    monkeypatch.setattr(Ledger, "publish", noting)
    live(store, spark, replace(EAGER, rest=Rest.NEVER), 3, 40)
    assert {"backfill", "cut", "merge", "restore"} <= kinds


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", short_first(range(20), 6))
def test_longer_lives(store: Store, spark: SparkSession, seed: int) -> None:
    live(store, spark, replace(EAGER, rest=Rest.NEVER if seed % 3 else Rest.IDLE), seed, 80)
