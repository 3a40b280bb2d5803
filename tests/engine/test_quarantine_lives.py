"""Lives of an engine that sets predicates aside and releases them while rows keep coming."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from psoup.engine.repair.quarantine import set_aside
from psoup.engine.repair.recover import open_ledger
from psoup.store import Store
from psoup.store.delta import commits as delta_commits
from psoup.store.delta import durable
from psoup.store.inspection import quarantine, release
from psoup.store.log.events import Release
from psoup.store.state.quarantine import PREDICATE, QuarantineEntry
from tests.support.engine.author import READINGS, Author, above, readings, sensor_is
from tests.support.engine.killing import Killed, Killer, MortalEngine
from tests.support.engine.pump import QUIET, Pump
from tests.support.engine.reading import Meaning, assert_joined, covered, matched, stem_rows
from tests.support.lengths import short_first

pytestmark = pytest.mark.spark

# Small slices and frequent merges, so that gaps are filled in several parts and merged around.
SMALL = replace(QUIET, slice_rows=7, slice_seconds=0.0, merge_files=2, compact_files=1)

# The commits after which a run of the test dies are this far apart.
EVERY = 6


def put_aside(store: Store, stream: int, *ids: int) -> None:
    ledger = open_ledger(store)
    entries = [QuarantineEntry(PREDICATE, id_, stream, "a test") for id_ in ids]
    set_aside(ledger, entries, ledger.state)


def is_sensor(number: int) -> Meaning:
    return lambda row: bool(row["sensor"] == number)


def is_above(value: float) -> Meaning:
    return lambda row: bool(row["value"] > value)


def assert_exact(store: Store, stream: int, meanings: Mapping[int, Meaning]) -> None:
    """Assert that each predicate has exactly its matches within its coverage, and none outside."""
    rows = stem_rows(store, stream)
    for predicate, meaning in meanings.items():
        ranges = covered(store, stream, predicate)
        ids = [row["_row_id"] for row in rows if meaning(row)]
        inside = [id_ for id_ in ids if any(lo <= id_ < hi for lo, hi in ranges)]
        assert matched(store, predicate) == inside


def numbered(count: int, first: int = 0) -> tuple[list[int], list[float]]:
    values = range(first, first + count)
    return [value % 3 for value in values], [float(value) for value in values]


@pytest.mark.timeout(600)
def test_matches_from_before_the_quarantine_stay_through_merges_and_a_second_one(
    store: Store, author: Author, spark: SparkSession
) -> None:
    stream, pump = author.create(READINGS), Pump(store, spark, SMALL)
    author.publish(stream, readings(*numbered(10)))
    _, bad = author.register(stream, sensor_is(1))
    _, good = author.register(stream, above(4.0))
    meanings = {bad: is_sensor(1), good: is_above(4.0)}
    pump.run()
    put_aside(store, stream, bad)
    pump = Pump(store, spark, SMALL)
    for first in range(10, 40, 10):
        author.publish(stream, readings(*numbered(10, first)))
        pump.run()
    assert covered(store, stream, bad) == [(0, 10)]
    assert_exact(store, stream, meanings)
    # It is set aside again while back-fill has closed only a part of the gap.
    release(store, [f"predicate-{bad}"])
    author.publish(stream, readings(*numbered(5, 40)))
    pump.step()
    assert covered(store, stream, bad) == [(0, 10), (40, 45)]
    assert pump.backfill.pending(pump.ledger) == {stream: 30}, "what it has met is not met again"
    pump.backfill.advance(pump.ledger)
    put_aside(store, stream, bad)
    pump = Pump(store, spark, SMALL)
    author.publish(stream, readings(*numbered(5, 45)))
    pump.run()
    assert covered(store, stream, bad) == [(0, 10), (33, 45)]
    assert_exact(store, stream, meanings)
    release(store, [f"predicate-{bad}"])
    pump.run()
    assert_joined(store, stream, meanings)
    assert not pump.ledger.coverage.interrupted(stream)


def drive(store: Store, spark: SparkSession, stream: int, bad: int, ends: list[int]) -> None:
    """Take the log in steps up to the versions `ends`, with a quarantine after the first."""
    pump = Pump(store, spark, SMALL)
    for end in ends:
        pump.step(max(end, pump.ledger.epoch.log_version))
        if pump.ledger.epoch.log_version == ends[0] and not pump.ledger.state.quarantine.entries:
            put_aside(store, stream, bad)
            pump = Pump(store, spark, SMALL)
        pump.backfill.advance(pump.ledger)
        pump.maintenance.advance(pump.ledger)
    pump.run()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("first_kill", short_first(range(EVERY)))
def test_killed_between_any_two_commits_of_quarantine_and_release(
    store: Store,
    author: Author,
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    first_kill: int,
) -> None:
    stream = author.create(READINGS)
    _, bad = author.register(stream, sensor_is(1))
    _, good = author.register(stream, above(4.0))
    meanings = {bad: is_sensor(1), good: is_above(4.0)}
    ends = []
    for first in (0, 10, 20):
        author.publish(stream, readings(*numbered(10, first)))
        ends.append(author.state.position.version)
        if first:
            author.append(Release((f"predicate-{bad}",)))
    passed = first_kill
    while True:
        folder = tmp_path / f"victim-{passed}"
        shutil.copytree(store.root, folder)
        victim = Store.open(folder, sync=False)
        monkeypatch.setattr(delta_commits, "put_if_absent", Killer(passed))
        try:
            drive(victim, spark, stream, bad, ends)
        except Killed:
            monkeypatch.setattr(delta_commits, "put_if_absent", durable.put_if_absent)
            drive(victim, spark, stream, bad, ends)
            assert_joined(victim, stream, meanings)
            passed += EVERY
        else:
            break
    assert passed > 20


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", short_first(range(3)))
def test_a_random_life_with_quarantine(
    store: Store, author: Author, spark: SparkSession, seed: int
) -> None:
    dice = Random(seed)
    stream, meanings = author.create(READINGS), dict[int, Meaning]()
    engine = MortalEngine(store, spark, SMALL, dice)
    for turn in range(60):
        action = dice.choices(["rows", "register", "aside", "release", "work"], [3, 1, 1, 1, 4])[0]
        if action == "rows":
            author.publish(stream, readings(*numbered(dice.randrange(1, 20), turn)))
        elif action == "register":
            sensor = dice.randrange(3)
            if dice.random() < 0.5:
                _, id_ = author.register(stream, sensor_is(sensor))
                meanings[id_] = is_sensor(sensor)
            else:
                _, id_ = author.register(stream, above(float(turn)))
                meanings[id_] = is_above(float(turn))
        elif action == "aside" and meanings:
            # Some of them may be known to no epoch yet.
            put_aside(store, stream, *dice.sample(sorted(meanings), min(2, len(meanings))))
            engine.pump = Pump(store, spark, SMALL)
        elif action == "release" and (entries := quarantine(store).entries):
            release(store, [dice.choice(entries).name])
        else:
            engine.work()
        if turn % 5 == 4:
            assert_exact(store, stream, meanings)
    release(store, [entry.name for entry in quarantine(store).entries])
    engine.pump.run()
    assert_joined(store, stream, meanings)
