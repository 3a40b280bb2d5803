"""Without composites, or without one over a stream, the engine runs no jobs for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pyspark.sql import SparkSession

from datastem.schema import StreamSchema
from psoup.engine.composites import boxes, growing, keeping
from psoup.engine.spark import jobs
from psoup.engine.steps import step as engine_step
from psoup.store import Store
from querystem.expressions import TRUE
from tests.support.engine.author import OTHER, READINGS, Author, above, readings
from tests.support.engine.composites import equal, mark_of, register_join
from tests.support.engine.pump import Pump

pytestmark = pytest.mark.spark

THIRD = StreamSchema("third", READINGS.columns)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the Spark jobs that the engine has run."""
    names: list[str] = []

    def noting(
        spark: SparkSession,
        job: Any,
        work: Callable[..., Any],
        units: Sequence[Any],
        **options: Any,
    ) -> Any:
        if units:
            names.append(work.__name__)
        return jobs.run_tasks(spark, job, work, units, **options)

    for module in (engine_step, boxes, growing):
        monkeypatch.setattr(module, "run_tasks", noting)
    return names


def test_without_composites_nobody_looks_for_any(
    store: Store,
    author: Author,
    spark: SparkSession,
    ran: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none(*_: object) -> None:
        raise AssertionError("there is no composite")

    for module in (keeping, growing):
        monkeypatch.setattr(module, "local_predicates", none)
        monkeypatch.setattr(module, "CompositeBox", none)
    stream = author.create(READINGS)
    author.register(stream, above(1.0))
    pump = Pump(store, spark)
    for _ in range(2):
        author.publish(stream, readings([1, 2], [1.0, 2.0]))
        pump.step()
        assert not pump.growing.advance(pump.ledger)
    assert ran == ["fresh", "fresh"]
    folders = [path.name for path in store.root.iterdir()]
    assert "joins" not in folders


def test_rows_of_a_stream_without_joins_cost_no_other_job(
    store: Store, author: Author, spark: SparkSession, ran: list[str]
) -> None:
    left_stream, right_stream, third = (
        author.create(schema) for schema in (READINGS, OTHER, THIRD)
    )
    join = register_join(author, [(left_stream, TRUE), (right_stream, TRUE)], [equal(0, 1)])
    author.publish(left_stream, readings([1], [1.0]))
    author.publish(right_stream, readings([1], [1.0]))
    pump = Pump(store, spark)
    pump.run()
    before = mark_of(store, join.composite_id)
    ran.clear()
    author.publish(third, readings([1], [1.0]))
    pump.run()
    assert ran == ["fresh"]
    assert mark_of(store, join.composite_id) == before
