"""Spark's join runs beside the loop: rows arrive meanwhile, the loop fails, predicates end, engines
are killed; each combination is found once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from psoup.engine.composites import growing
from psoup.engine.composites.boxes import CompositeBox
from psoup.engine.composites.spark_join import Drafts, SparkJoin
from psoup.engine.engine import Engine
from psoup.engine.repair.recover import open_ledger
from psoup.engine.settings import EngineSettings
from psoup.store import Store
from psoup.store.delta import commits as delta_commits
from psoup.store.delta import durable
from querystem.expressions import TRUE
from tests.support.engine.author import OTHER, READINGS, Author, above, readings, sensor_is
from tests.support.engine.composites import (
    assert_boxes,
    assert_complete,
    combinations,
    equal,
    mark_of,
    register_join,
)
from tests.support.engine.killing import Killed, Killer
from tests.support.engine.pump import Pump
from tests.support.engine.reading import matched

pytestmark = pytest.mark.spark

# Two slices of Spark's join, each taken in three parts.
BULK = EngineSettings(
    housekeeping=0.0,
    slice_rows=4,
    slice_seconds=0.0,
    spark_join_factor=0,
    spark_slice_rows=12,
    merge_files=3,
)


class PausedJoin(SparkJoin):
    """A join whose result is held back until `release` is set."""

    computed = threading.Event()
    release = threading.Event()
    finds = 0

    def find(self, spark: SparkSession, part_rows: int) -> Drafts:
        assert threading.current_thread() is not threading.main_thread()
        drafts = SparkJoin.find(self, spark, part_rows)
        PausedJoin.finds += 1
        self.computed.set()
        assert self.release.wait(120)
        return drafts


@pytest.fixture
def paused_join(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[PausedJoin]]:
    PausedJoin.computed.clear()
    PausedJoin.release.clear()
    PausedJoin.finds = 0
    monkeypatch.setattr(growing, "SparkJoin", PausedJoin)
    yield PausedJoin
    PausedJoin.release.set()


class World:
    """A join over old rows, of which no row is in the box yet."""

    def __init__(self, store: Store, legs: int = 2) -> None:
        self.store = store
        self.author = Author(store)
        self.left, self.right = self.author.create(READINGS), self.author.create(OTHER)
        for _ in range(2):
            self.publish(12)
        streams = [self.left, *[self.right] * (legs - 1)]
        predicates = [sensor_is(1), *[TRUE] * (legs - 1)]
        factors = [equal(0, leg) for leg in range(1, legs)]
        self.join = register_join(self.author, list(zip(streams, predicates, strict=True)), factors)

    def publish(self, rows: int) -> None:
        sensors = [number % 3 for number in range(rows)]
        self.author.publish(self.left, readings(sensors, [float(n) for n in range(rows)]))
        self.author.publish(self.right, readings(sensors[: rows // 3], [0.0] * (rows // 3)))

    def until_computed(self, pump: Pump, paused_join: type[PausedJoin]) -> None:
        """Work until the first result of Spark's join is there, and held back."""
        pump.step()
        deadline = time.monotonic() + 120
        while not paused_join.computed.is_set() and time.monotonic() < deadline:
            pump.round()
        assert paused_join.computed.is_set()

    def parts(self) -> set[tuple[int, ...]]:
        return set(combinations(self.store, self.join.composite_id).values())


@pytest.mark.parametrize("legs", [2, 3])
def test_rows_arrive_and_the_loop_fails_while_spark_joins(
    store: Store, spark: SparkSession, paused_join: type[PausedJoin], legs: int
) -> None:
    world = World(store, legs)
    pump = Pump(store, spark, BULK)
    world.until_computed(pump, paused_join)
    before = mark_of(store, world.join.composite_id)
    for _ in range(2):
        world.publish(9)
        pump.step()
        assert_boxes(store)
    after = mark_of(store, world.join.composite_id)
    assert after.since == before.since and after.highs > before.highs
    # The loop fails and goes back to the last epoch; the job goes on.
    pump.ledger = open_ledger(store)
    paused_join.release.set()
    while pump.growing.idle_in:
        pump.round()
        assert_boxes(store)
    assert paused_join.finds == 1
    pump.run()
    assert_complete(store, world.join)
    assert matched(store, world.join.predicate_id) == sorted(
        combinations(store, world.join.composite_id)
    )
    assert paused_join.finds > 1 and world.parts()


def test_a_failure_after_the_drafts_were_stored(
    store: Store,
    spark: SparkSession,
    paused_join: type[PausedJoin],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Killed after each commit of a part that is taken, an engine with the same job, or another
    one, finds every combination once."""
    world = World(store)
    pump = Pump(store, spark, BULK)
    world.until_computed(pump, paused_join)
    paused_join.release.set()
    deadline = time.monotonic() + 60
    while (bulk := pump.growing._bulk) and not bulk.job.is_done and time.monotonic() < deadline:
        time.sleep(0.05)
    for passed in range(4):
        monkeypatch.setattr(delta_commits, "put_if_absent", Killer(passed))
        try:
            while True:
                assert pump.growing.advance(pump.ledger) or pump.growing.idle_in
        except Killed:
            pass
        monkeypatch.setattr(delta_commits, "put_if_absent", durable.put_if_absent)
        pump.ledger = open_ledger(store)
        if passed == 2:
            # The process dies, too: another engine begins with what the epoch names.
            pump = Pump(store, spark, BULK)
    pump.run()
    assert_complete(store, world.join)


@pytest.mark.parametrize("happens", ["predicate ends", "grace passes", "composite is forgotten"])
def test_a_join_is_given_up(
    store: Store, spark: SparkSession, paused_join: type[PausedJoin], happens: str
) -> None:
    """Its drafts are never taken: another slice finds what they hold."""
    world = World(store)
    legs = [(world.left, above(5.0)), (world.right, TRUE)]
    stays = register_join(world.author, legs, [equal(0, 1)])
    pump = Pump(store, spark, BULK)
    world.until_computed(pump, paused_join)
    bulk = pump.growing._bulk
    assert bulk is not None
    if happens == "predicate ends":
        world.author.unregister(world.join.handle)
        pump.step()
    elif happens == "grace passes":
        bulk.job.started -= BULK.grace / 2 + 1
    else:
        composite = pump.ledger.state.composites[world.join.composite_id]
        CompositeBox(pump.ledger, composite, BULK).reset()
        pump.ledger.publish("join")
        # The box begins again at another row.
        world.publish(3)
    while mark_of(store, world.join.composite_id).since is None:
        pump.round()
    pump.round()
    assert pump.growing._bulk is not bulk
    paused_join.release.set()
    pump.run()
    assert_complete(store, stays, exact=happens != "predicate ends")


def test_an_engine_takes_rows_while_spark_joins(
    store: Store, spark: SparkSession, paused_join: type[PausedJoin]
) -> None:
    world = World(store)
    engine = Engine(store, spark, replace(BULK, housekeeping=1.0))
    engine.start()
    try:
        assert paused_join.computed.wait(120)
        world.publish(6)
        engine.wait_for(world.author.state.position)
        with pytest.raises(TimeoutError):
            engine.wait_idle(timeout=1.0)
        paused_join.release.set()
        engine.wait_idle(timeout=120)
    finally:
        engine.stop()
    assert_complete(store, world.join)


def test_a_predicate_that_fails_in_sparks_join_is_found_by_tasks(
    store: Store, spark: SparkSession
) -> None:
    """Spark's join runs the predicates over combinations, too. If it fails, tasks join the rows and
    say which predicate is the cause; the other queries go on."""
    world = World(store)
    legs = [(world.left, sensor_is(1)), (world.right, TRUE)]
    bad = register_join(world.author, legs, [equal(0, 1)], where=equal(0, 1, "nowhere"))
    assert bad.composite_id == world.join.composite_id
    engine = Engine(store, spark, replace(BULK, spark_slice_rows=100))
    engine.start()
    try:
        engine.wait_idle(300)
    finally:
        engine.stop()
    epoch = store.epochs.latest()[1]
    assert [entry.id for entry in epoch.quarantine.entries] == [bad.predicate_id]
    assert not mark_of(store, bad.composite_id).suspended
    assert_complete(store, world.join)
