"""Many new rows enter before several units join them: each combination is found once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from psoup.engine.composites import keeping
from psoup.engine.composites.intake import JoiningIntake
from psoup.engine.composites.units import EnterUnit
from psoup.engine.settings import EngineSettings
from psoup.engine.spark.jobs import Outcome, SparkJob, run_tasks
from psoup.engine.steps import step
from psoup.store import Store
from querystem.expressions import TRUE
from tests.support.engine.author import OTHER, READINGS, Author, readings, sensor_is
from tests.support.engine.composites import (
    assert_boxes,
    assert_complete,
    combinations,
    equal,
    mark_of,
    register_join,
)
from tests.support.engine.pump import Pump
from tests.support.engine.reading import matched

pytestmark = pytest.mark.spark

QUIET = EngineSettings(housekeeping=0.0)


@pytest.mark.parametrize("legs, span", [(2, None), (3, 2)])
@pytest.mark.parametrize("is_apart", [False, True])
def test_many_new_rows_are_joined_by_several_units(
    store: Store,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    legs: int,
    span: int | None,
    is_apart: bool,
) -> None:
    """The tasks that take the rows in let them enter, or a job of its own does."""
    monkeypatch.setattr(keeping, "UNIT_ROWS", 3)
    entered = watch_entering(monkeypatch)
    author = Author(store)
    first_stream, second_stream = author.create(READINGS), author.create(OTHER)
    streams = [first_stream, *[second_stream] * (legs - 1)]
    predicates = [sensor_is(1), *[TRUE] * (legs - 1)]
    factors = [equal(leg, leg + 1) for leg in range(legs - 1)]
    join = register_join(author, list(zip(streams, predicates, strict=True)), factors, span)
    pump = Pump(store, spark, QUIET)
    pump.run()
    for turn in range(3):
        # Sensor 1 has most rows. The last turn brings rows to one leg only.
        sensors = [1, 1, 1, 2, 1, 3, 1, 1, 4]
        if turn < 2:
            author.publish(first_stream, readings(sensors, [float(turn)] * 9))
        author.publish(second_stream, readings(sensors[turn:], [0.0] * (9 - turn)))
        pump.memory.joins_apart = is_apart
        pump.step()
        assert_boxes(store)
    pump.run()
    assert_complete(store, join)
    ids = sorted(combinations(store, join.composite_id))
    assert ids and matched(store, join.predicate_id) == ids
    assert entered == {("apart" if is_apart else "inside", leg) for leg in range(legs)}


def watch_entering(monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, int]]:
    """Return a set that gets the legs whose rows enter, and which kind of job lets them."""
    entered: set[tuple[str, int]] = set()

    def watched(
        session: SparkSession,
        job: SparkJob,
        work: Callable[..., Any],
        units: Sequence[Any],
        most: int | None = None,
    ) -> list[Outcome]:
        for unit in units:
            if isinstance(unit, EnterUnit):
                entered.add(("apart", unit.leg))
            elif isinstance(unit, JoiningIntake):
                parts = (part for part in unit.units if isinstance(part, EnterUnit))
                entered.update(("inside", part.leg) for part in parts)
        return run_tasks(session, job, work, units, most)

    monkeypatch.setattr(keeping, "run_tasks", watched)
    monkeypatch.setattr(step, "run_tasks", watched)
    return entered


def test_rows_in_several_tasks_enter_in_each_of_them(
    store: Store, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "UNIT_ROWS", 3)
    entered = watch_entering(monkeypatch)
    author = Author(store)
    streams = author.create(READINGS), author.create(OTHER)
    join = register_join(author, [(stream, TRUE) for stream in streams], [equal(0, 1)])
    pump = Pump(store, spark, replace(QUIET, task_bytes=1))
    pump.run()
    # A sensor with many rows has more candidates than one unit may have, but not all units.
    sensors = [*range(2, 40), *[1] * 6]
    for _ in range(2):
        for stream in streams:
            for first in range(0, len(sensors), 11):
                part = sensors[first : first + 11]
                author.publish(stream, readings(part, [0.0] * len(part)))
        pump.step()
        assert_boxes(store)
    pump.run()
    assert_complete(store, join)
    assert len(combinations(store, join.composite_id)) == 4 * (38 + 36)
    assert entered == {("inside", 0), ("inside", 1)}


def test_a_join_key_with_many_rows_does_not_suspend(
    store: Store, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "UNIT_ROWS", 3)
    author = Author(store)
    streams = author.create(READINGS), author.create(OTHER)
    join = register_join(author, [(stream, TRUE) for stream in streams], [equal(0, 1)])
    pump = Pump(store, spark, replace(QUIET, max_candidates=20))
    pump.run()
    sensors = [*range(2, 40), *[1] * 6]
    for stream in streams:
        author.publish(stream, readings(sensors, [0.0] * len(sensors)))
    pump.step()
    assert not mark_of(store, join.composite_id).suspended
    assert_boxes(store)
    assert len(combinations(store, join.composite_id)) == 38 + 36


def test_many_new_rows_with_too_many_combinations_suspend(
    store: Store, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "UNIT_ROWS", 3)
    author = Author(store)
    first_stream, second_stream = author.create(READINGS), author.create(OTHER)
    join = register_join(author, [(first_stream, TRUE), (second_stream, TRUE)], [equal(0, 1)])
    settings = EngineSettings(housekeeping=0.0, max_candidates=20)
    pump = Pump(store, spark, settings)
    pump.run()
    author.publish(first_stream, readings([1] * 30, [1.0] * 30))
    author.publish(second_stream, readings([1] * 30, [1.0] * 30))
    pump.step()
    mark = mark_of(store, join.composite_id)
    assert mark.suspended and not pump.ledger.files(f"joins/{join.composite_id}")
