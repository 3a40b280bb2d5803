"""The choice between Arrow and Spark follows what was measured."""

from __future__ import annotations

import math

from psoup.engine.composites.join_costs import JoinCosts

LEAST_ROWS = 1 << 21


def prefer(costs: JoinCosts, rows: int, factor: float = 1.0) -> bool:
    return costs.prefer_spark(7, rows, rows, costs.slice_rows(rows, LEAST_ROWS, math.inf), factor)


def measured(seconds: float, parallelism: int = 2) -> JoinCosts:
    """Costs after two slices of which a million rows take so long."""
    costs = JoinCosts(parallelism)
    for _ in range(2):
        costs.note_slice(7, 1_000_000, seconds)
    return costs


def test_nothing_is_preferred_unmeasured() -> None:
    costs = JoinCosts(2)
    assert not prefer(costs, 1 << 40) and prefer(costs, 1, factor=0)
    # The first slice starts workers.
    costs.note_slice(7, 1, 100.0)
    assert not prefer(costs, 1 << 40)
    costs.note_slice(7, 1_000_000, 10.0)
    assert prefer(costs, 1 << 40) and not costs.prefer_spark(8, 1 << 40, 0, LEAST_ROWS, 1.0)
    assert not prefer(costs, 1 << 40, factor=math.inf)


def test_few_rows_are_not_worth_the_fixed_cost_of_spark() -> None:
    costs = measured(seconds=7.0)
    assert not prefer(costs, 100_000) and prefer(costs, 4_000_000)
    assert not prefer(measured(seconds=0.5), 4_000_000)


def test_more_tasks_make_spark_pay_earlier() -> None:
    rows = 1_500_000
    assert not prefer(measured(4.0, parallelism=1), rows)
    assert prefer(measured(4.0, parallelism=64), rows)


def test_what_spark_took_corrects_the_estimate() -> None:
    costs = measured(seconds=7.0)
    rows = 2_000_000
    assert prefer(costs, rows)
    expected = costs.spark_seconds(rows)
    costs.note_spark(rows, 100 * expected)
    assert costs.spark_seconds(rows) == 2 * expected
    for _ in range(10):
        costs.note_spark(rows, 60.0)
    assert math.isclose(costs.spark_seconds(rows), 60.0) and not prefer(costs, rows)
    for _ in range(10):
        costs.note_spark(rows, 1.0)
    assert math.isclose(costs.spark_seconds(rows), 1.0) and prefer(costs, rows)


def test_a_join_takes_as_many_rows_as_it_reads_of_the_other_legs() -> None:
    costs = JoinCosts(4)
    assert costs.slice_rows(1_000, LEAST_ROWS, 450.0) == LEAST_ROWS
    assert costs.slice_rows(100_000_000, LEAST_ROWS, 450.0) == 100_000_000
    # It is to be done long before its files could be deleted.
    rows = costs.slice_rows(700_000_000, LEAST_ROWS, 450.0)
    assert LEAST_ROWS < rows < 700_000_000
    assert costs.spark_seconds(rows + 700_000_000) <= 450.0
    assert costs.slice_rows(10**12, LEAST_ROWS, 450.0) == LEAST_ROWS
