"""Killed between any two commits, the engine finds every combination once anyway."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from datastem.types import BOOLEAN, DOUBLE
from psoup.engine.settings import EngineSettings
from psoup.store import Store
from psoup.store.delta import commits as delta_commits
from psoup.store.delta import durable
from querystem.expressions import TRUE, Call, ColumnRef, Literal, Op
from tests.engine.test_crash import copy
from tests.support.engine.author import OTHER, READINGS, Author, above, readings, sensor_is
from tests.support.engine.composites import (
    Joined,
    assert_complete,
    combinations,
    equal,
    register_join,
)
from tests.support.engine.killing import Killed, Killer
from tests.support.engine.pump import Pump
from tests.support.engine.reading import matched
from tests.support.lengths import short_first

pytestmark = pytest.mark.spark

BUSY = EngineSettings(
    slice_rows=3,
    slice_seconds=0.0,
    housekeeping=0.0,
    trim_commits=100,
    checkpoint_commits=1000,
    merge_files=3,
    compact_files=100,
)

# The commits after which a run of the test dies are this far apart.
EVERY = 12


def write_log(store: Store) -> tuple[list[int], list[Joined]]:
    """Return the versions at which steps end, and the joins that remain."""
    author = Author(store)
    left_stream, right_stream = author.create(READINGS), author.create(OTHER)
    goes = register_join(author, [(left_stream, sensor_is(1)), (right_stream, TRUE)], [equal(0, 1)])
    author.publish(left_stream, readings([1, 2, 1, 2], [1.0, 2.0, 3.0, 4.0]))
    author.publish(right_stream, readings([1, 2, 3, 1], [1.0, 2.0, 3.0, 4.0]))
    ends = [author.state.position.version]
    where = Call(Op.GT, (ColumnRef("0.value", DOUBLE), Literal(1.5, DOUBLE)), BOOLEAN)
    legs = [(left_stream, above(1.5)), (right_stream, TRUE)]
    stays = register_join(author, legs, [equal(0, 1)], where=where)
    author.publish(left_stream, readings([1, 1], [0.0, 5.0]))
    ends.append(author.state.position.version)
    author.unregister(goes.handle)
    author.publish(right_stream, readings([2], [1.0]))
    ends.append(author.state.position.version)
    return ends, [stays]


def drive(store: Store, spark: SparkSession, ends: list[int]) -> None:
    """Run the engine to the end of the log, with some slices and a chore after each step."""
    pump = Pump(store, spark, BUSY)
    for end in ends:
        pump.step(max(end, pump.ledger.epoch.log_version))
        for _ in range(3):
            _ = pump.backfill.advance(pump.ledger) or pump.growing.advance(pump.ledger)
    pump.run()


def outcome(store: Store, joins: list[Joined]) -> list[set[tuple[int, ...]]]:
    """The combinations that each join's predicate matches; ids may differ."""
    matches = []
    for join in joins:
        assert_complete(store, join, exact=False)
        parts = combinations(store, join.composite_id)
        matches.append({parts[number] for number in matched(store, join.predicate_id)})
    return matches


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("first", short_first(range(EVERY)))
def test_killed_between_any_two_commits(
    store: Store, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    ends, joins = write_log(store)
    whole = copy(store, tmp_path / "whole")
    drive(whole, spark, ends)
    expected = outcome(whole, joins)
    assert all(expected)
    passed = first
    while True:
        victim = copy(store, tmp_path / f"victim-{passed}")
        monkeypatch.setattr(delta_commits, "put_if_absent", Killer(passed))
        try:
            drive(victim, spark, ends)
        except Killed:
            monkeypatch.setattr(delta_commits, "put_if_absent", durable.put_if_absent)
            drive(victim, spark, ends)
            assert outcome(victim, joins) == expected
            passed += EVERY
        else:
            break
    assert passed > 40
