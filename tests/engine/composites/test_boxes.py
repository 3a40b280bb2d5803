"""Boxes: the combinations that the engine stores are the join of the admitted rows, each once."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import SparkSession

from datastem.types import DOUBLE
from psoup.engine.settings import EngineSettings
from psoup.store import Store
from querystem.expressions import TRUE, Expression
from tests.support.engine.author import OTHER, READINGS, Author, above, readings, sensor_is
from tests.support.engine.composites import (
    Joined,
    assert_boxes,
    assert_complete,
    combinations,
    either,
    equal,
    less,
    mark_of,
    near,
    register_join,
)
from tests.support.engine.pump import Pump
from tests.support.engine.reading import matched
from tests.support.lengths import short_first

pytestmark = pytest.mark.spark

# Small slices, and merges of few files.
SMALL = EngineSettings(
    housekeeping=0.0, slice_rows=4, slice_seconds=0.0, merge_files=3, max_range_combinations=1000
)


def test_old_rows_meet_a_new_join_and_new_rows_meet_old_ones(
    store: Store, author: Author, spark: SparkSession
) -> None:
    left_stream, right_stream = author.create(READINGS), author.create(OTHER)
    author.publish(left_stream, readings([1, 2, 3, 1], [10.0, 20.0, 30.0, 0.0]))
    author.publish(right_stream, readings([1, 2, 2], [5.0, 15.0, 25.0]))
    pump = Pump(store, spark)
    pump.run()
    join = register_join(author, [(left_stream, above(1.0)), (right_stream, TRUE)], [equal(0, 1)])
    pump.run()
    assert_complete(store, join)
    assert set(combinations(store, join.composite_id).values()) == {(0, 0), (1, 1), (1, 2)}
    author.publish(left_stream, readings([2, 9], [30.0, 30.0]))
    author.publish(right_stream, readings([3, 9], [11.0, 0.0]))
    pump.run()
    assert_complete(store, join)
    assert len(combinations(store, join.composite_id)) == 7
    assert matched(store, join.predicate_id) == sorted(combinations(store, join.composite_id))


def test_other_local_predicates_are_admitted_over_old_rows(
    store: Store, author: Author, spark: SparkSession
) -> None:
    left_stream, right_stream = author.create(READINGS), author.create(OTHER)
    pump = Pump(store, spark, SMALL)
    first = register_join(
        author, [(left_stream, sensor_is(1)), (right_stream, TRUE)], [equal(0, 1)]
    )
    for number in range(6):
        author.publish(left_stream, readings([1, 2, 3], [float(number)] * 3))
        author.publish(right_stream, readings([1, 2], [float(number)] * 2))
        pump.step()
    pump.run()
    assert_complete(store, first)
    assert len(combinations(store, first.composite_id)) == 36
    second = register_join(
        author, [(left_stream, sensor_is(2)), (right_stream, above(2.0))], [equal(0, 1)]
    )
    assert second.composite_id == first.composite_id
    pump.run()
    assert_complete(store, second)
    # Sensor 1 has 36 combinations, and sensor 2 those of 6 rows with the 3 above 2.0.
    assert len(combinations(store, first.composite_id)) == 36 + 18


def test_a_predicate_that_left_is_admitted_again(
    store: Store, author: Author, spark: SparkSession
) -> None:
    left_stream, right_stream = author.create(READINGS), author.create(OTHER)
    pump = Pump(store, spark, SMALL)
    stays = register_join(
        author, [(left_stream, sensor_is(1)), (right_stream, TRUE)], [equal(0, 1)]
    )
    goes = register_join(author, [(left_stream, sensor_is(2)), (right_stream, TRUE)], [equal(0, 1)])
    author.register(left_stream, sensor_is(2))
    author.publish(left_stream, readings([1, 2], [1.0, 1.0]))
    author.publish(right_stream, readings([1, 2], [1.0, 1.0]))
    pump.run()
    assert_complete(store, goes)
    author.unregister(goes.handle)
    author.publish(left_stream, readings([1, 2], [2.0, 2.0]))
    author.publish(right_stream, readings([2], [2.0]))
    pump.run()
    assert goes.legs[0] not in mark_of(store, stays.composite_id).admitted[0]
    assert_boxes(store, exact=False)
    again = register_join(
        author, [(left_stream, sensor_is(2)), (right_stream, TRUE)], [equal(0, 1)]
    )
    assert again.legs == goes.legs
    pump.run()
    assert_complete(store, again)
    assert len(combinations(store, stays.composite_id)) == 2 + 2 * 2


def test_parts_further_apart_than_the_span_are_left_out(
    store: Store, author: Author, spark: SparkSession
) -> None:
    left_stream, right_stream = author.create(READINGS), author.create(OTHER)
    pump = Pump(store, spark, SMALL)
    join = register_join(author, [(left_stream, TRUE), (right_stream, TRUE)], [equal(0, 1)], span=3)
    for _ in range(3):
        author.publish(left_stream, readings([1, 1], [1.0, 2.0]))
        author.publish(right_stream, readings([1, 1], [1.0, 2.0]))
    pump.run()
    assert_complete(store, join)
    count = len(combinations(store, join.composite_id))
    assert 0 < count < 36
    for _ in range(3):
        author.publish(left_stream, readings([1, 1], [1.0, 2.0]))
        author.publish(right_stream, readings([1, 1], [1.0, 2.0]))
        pump.step()
    assert_complete(store, join)
    assert len(combinations(store, join.composite_id)) > count


@pytest.mark.parametrize("seed", short_first(range(8)))
def test_random_arrivals(store: Store, author: Author, spark: SparkSession, seed: int) -> None:
    """Rows, joins and their ends come in any order, with rounds of work between."""
    rng = random.Random(seed)
    streams = [author.create(READINGS), author.create(OTHER)]
    shapes: list[tuple[list[int], list[Expression]]] = [
        ([0, 1], [equal(0, 1)]),
        ([0, 0], [equal(0, 1)]),
        ([0, 0, 1], [equal(0, 1), equal(1, 2)]),
        ([0, 1], [less(0, 1)]),
        ([0, 0], near(0, 1)),
        ([0, 1], [either(equal(0, 1), equal(0, 1, "value", DOUBLE))]),
        ([0, 1], [either(less(0, 1), equal(0, 1, "value", DOUBLE))]),
        ([0, 0, 1], [equal(0, 1), less(1, 2)]),
    ]
    pump = Pump(store, spark, SMALL)
    joins: list[Joined] = []
    for _ in range(30):
        match rng.randrange(8):
            case 0 | 1 | 2 | 3:
                sensors = [rng.randrange(4) for _ in range(rng.randint(1, 6))]
                values = [float(rng.randrange(5)) for _ in sensors]
                author.publish(rng.choice(streams), readings(sensors, values))
            case 4:
                legs, factors = rng.choice(shapes)
                wheres = [rng.choice([TRUE, above(1.0), sensor_is(1)]) for _ in legs]
                leg_predicates = [
                    (streams[leg], where) for leg, where in zip(legs, wheres, strict=True)
                ]
                # Inequalities need a span; the first shapes have none of them.
                spans = [None, 4] if shapes.index((legs, factors)) < 3 else [4]
                joins.append(register_join(author, leg_predicates, factors, rng.choice(spans)))
            case 5 if joins:
                author.unregister(joins.pop(rng.randrange(len(joins))).handle)
            case 6:
                pump.step()
            case 7:
                pump.step()
                _ = pump.backfill.advance(pump.ledger) or pump.growing.advance(pump.ledger)
                assert_boxes(store, exact=False)
            case _:
                pump.maintenance.advance(pump.ledger)
    pump.run()
    for join in joins:
        assert_complete(store, join, exact=False)
