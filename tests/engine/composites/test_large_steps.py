"""Many new rows enter before several units join them: each combination is found once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pyspark.sql import SparkSession

from psoup.engine.composites import keeping
from psoup.engine.composites.units import EnterUnit
from psoup.engine.settings import EngineSettings
from psoup.engine.spark.jobs import Outcome, SparkJob, run_tasks
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
def test_many_new_rows_are_joined_by_several_units(
    store: Store,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    legs: int,
    span: int | None,
) -> None:
    monkeypatch.setattr(keeping, "UNIT_ROWS", 3)
    entered: list[EnterUnit] = []

    def watched(
        session: SparkSession, job: SparkJob, work: Callable[..., Any], units: Sequence[EnterUnit]
    ) -> list[Outcome]:
        entered.extend(units)
        return run_tasks(session, job, work, units)

    monkeypatch.setattr(keeping, "run_tasks", watched)
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
        pump.step()
        assert_boxes(store)
    pump.run()
    assert_complete(store, join)
    ids = sorted(combinations(store, join.composite_id))
    assert ids and matched(store, join.predicate_id) == ids
    assert {unit.leg for unit in entered} == set(range(legs))


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
