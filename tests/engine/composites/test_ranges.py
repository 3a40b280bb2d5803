"""Joins by an inequality, found ahead; when a composite begins, rests and begins again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from datastem.instants import HOUR, MINUTE
from datastem.types import BIGINT, BOOLEAN
from psoup.engine.composites.combining import JoinPlan, LegJoin
from psoup.engine.composites.estimating import per_row
from psoup.engine.composites.lookup.edges import numbered
from psoup.engine.composites.order import Measured
from psoup.engine.composites.runs import KeyRun, LegBatch, key_rows
from psoup.engine.settings import EngineSettings
from psoup.store import Store
from querystem.composites import ComposedStream, Composition, compose
from querystem.expressions import TRUE, Call, ColumnRef, Expression, Literal, Op
from querystem.language import bind_query
from querystem.links import edge_of
from tests.support.engine.author import OTHER, READINGS, Author, readings, sensor_is
from tests.support.engine.composites import (
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

SMALL = EngineSettings(housekeeping=0.0, slice_rows=8, slice_seconds=0.0, merge_files=3)


def sensor(op: Op, number: int) -> Expression:
    return Call(op, (ColumnRef("sensor", BIGINT), Literal(number, BIGINT)), BOOLEAN)


@pytest.mark.spark
@pytest.mark.parametrize("order", list(permutations("qrs"))[::2])
def test_the_running_example_of_psoup_whichever_comes_last(
    store: Store, author: Author, spark: SparkSession, order: Sequence[str]
) -> None:
    """Section 3.2.2: `R.a < 5 AND R.a > S.b AND S.b > 1` over 0..9."""
    r, s = author.create(READINGS), author.create(OTHER)
    pump, joins = Pump(store, spark, SMALL), []
    rows = readings(list(range(10)), [0.0] * 10)
    events: dict[str, Callable[[], object]] = {
        "q": lambda: joins.append(
            register_join(
                author,
                [(r, sensor(Op.LT, 5)), (s, sensor(Op.GT, 1))],
                [Call(Op.GT, equal(0, 1).args, BOOLEAN)],
                MINUTE,
            )
        ),
        "r": lambda: author.publish(r, rows),
        "s": lambda: author.publish(s, rows),
    }
    for name in order:
        events[name]()
        pump.run()
    (join,) = joins
    assert_complete(store, join)
    assert set(combinations(store, join.composite_id).values()) == {(3, 2), (4, 2), (4, 3)}


@pytest.mark.spark
def test_an_inequality_with_too_many_combinations_does_not_begin(
    store: Store, author: Author, spark: SparkSession
) -> None:
    r, s = author.create(READINGS), author.create(OTHER)
    rows = readings(list(range(40)), [0.0] * 40)
    author.publish(r, rows)
    author.publish(s, rows)
    pump = Pump(store, spark, SMALL)
    many = register_join(author, [(r, TRUE), (s, TRUE)], [less(0, 1)], MINUTE)
    few = register_join(author, [(r, TRUE), (s, TRUE)], near(0, 1), MINUTE)
    pump.run()
    mark = mark_of(store, many.composite_id)
    assert mark.suspended and mark.high == 0, "nothing was ever stored"
    assert_complete(store, few)
    assert len(combinations(store, few.composite_id)) == 40 + 39


@pytest.mark.spark
@pytest.mark.long
def test_combinations_that_no_query_wants_do_not_keep_a_composite_from_beginning(
    store: Store, author: Author, spark: SparkSession
) -> None:
    """Each row of one leg is below 20 rows of the other; each query wants one in 40 of those."""
    r, s = author.create(READINGS), author.create(OTHER)
    rows = readings(list(range(40)), [0.0] * 40)
    author.publish(r, rows)
    author.publish(s, rows)
    queries = [
        register_join(
            author, [(r, sensor(Op.EQ, n)), (s, sensor(Op.EQ, n + 1))], [less(0, 1)], MINUTE
        )
        for n in range(39)
    ]
    Pump(store, spark, SMALL).run()
    mark = mark_of(store, queries[0].composite_id)
    assert mark.since == 0 and not mark.suspended
    for query in queries:
        assert_complete(store, query)
    assert len(combinations(store, queries[0].composite_id)) == len(queries)


@pytest.mark.spark
def test_a_suspended_composite_begins_again_when_rows_have_few_combinations(
    store: Store, author: Author, spark: SparkSession
) -> None:
    r, s = author.create(READINGS), author.create(OTHER)
    same, different = [readings(keys, [0.0] * 40) for keys in ([1] * 40, list(range(2, 42)))]
    author.publish(r, same)
    author.publish(s, same)
    pump = Pump(store, spark, replace(SMALL, max_combinations=10))
    join = register_join(author, [(r, TRUE), (s, TRUE)], [equal(0, 1)], HOUR)
    pump.run()
    assert mark_of(store, join.composite_id).suspended
    # Within the hour nothing is tried, whatever comes; after it old rows are out of reach.
    for _ in range(3):
        author.publish(r, different)
        author.publish(s, different)
    pump.run()
    assert mark_of(store, join.composite_id).suspended
    author._clock += HOUR
    author.publish(r, different)
    author.publish(s, different)
    pump.run()
    assert_complete(store, join)
    assert not mark_of(store, join.composite_id).suspended


def test_rests_double_until_a_composite_was_kept_up_for_longer() -> None:
    measured, now, lengths = Measured(), 0, []
    for again in (False, True, False, True):
        measured = Measured.read(measured.resting(now, again).text)
        lengths.append(measured.rests[0][1] // HOUR)
        assert not measured.is_rested(now)
        now += measured.rests[0][1]
        assert measured.is_rested(now)
    assert lengths == [1, 2, 4, 8]
    assert measured.resting(now + 9 * HOUR, False).rests[0][1] == HOUR
    for _ in range(10):
        measured = measured.resting(now, True)
    assert measured.rests[0][1] == 32 * HOUR


# ---- queries that fix a column of both legs


@pytest.mark.spark
def test_no_rows_of_one_query_are_combined_with_those_of_another(
    store: Store, author: Author, spark: SparkSession
) -> None:
    streams = author.create(READINGS), author.create(OTHER)
    rng = np.random.default_rng(3)
    for stream in streams:
        author.publish(stream, readings(rng.integers(1, 4, 60).tolist(), [1.0, 2.0] * 30))
    text = (
        "SELECT l.value FROM readings l, other r WHERE l.value = r.value AND l.sensor = {0}"
        " AND r.sensor = {0} RANGE 1 HOUR"
    )
    joins, schemas = [], {"readings": READINGS, "other": OTHER}
    for number in (1, 2):
        query = bind_query(text.format(number), schemas.get)
        pairs = zip(streams, schemas.values(), strict=True)
        composition = compose(query, [ComposedStream(*pair) for pair in pairs])
        assert isinstance(composition, Composition)
        legs = [(stream, sensor_is(number)) for stream in streams]
        shape = composition.shape
        joins.append(register_join(author, legs, shape.factors, shape.span))
    Pump(store, spark, SMALL).run()
    assert len({join.composite_id for join in joins}) == 1
    for join in joins:
        assert_complete(store, join)
    # By join: the rows of each leg that it is about.
    rows = [[set(matched(store, predicate)) for predicate in join.legs] for join in joins]
    stored = set(combinations(store, joins[0].composite_id).values())
    for first, second in (rows[0][0], rows[1][1]), (rows[1][0], rows[0][1]):
        assert stored and not stored & set(product(first, second))


# ---- the estimate


def batch(leg: int, keys: Sequence[int], every: int) -> LegBatch:
    """Return rows of a leg, one every so many microseconds."""
    ids = np.arange(len(keys))
    columns = pa.RecordBatch.from_pydict({f"{leg}.sensor": pa.array(keys, pa.int64())})
    return LegBatch(ids, ids * every, ids, columns)


@pytest.mark.parametrize(
    "factors",
    [[equal(0, 1)], [less(0, 1)], near(0, 1), [either(equal(0, 1), less(0, 1))]],
)
@pytest.mark.parametrize("span", [None, 1_000, 20_000])
def test_an_estimate_is_near_to_what_a_new_row_brings(
    factors: list[Expression], span: int | None
) -> None:
    rng = np.random.default_rng(7)
    (edge,) = numbered([edge_of((0, 1), factors)], span)
    if edge.edge.is_range and span is None:
        return
    count, new = 4_000, 400
    legs = [batch(leg, rng.integers(0, 50, count).tolist(), 10) for leg in (0, 1)]
    # Half of the rows are admitted, so half as many are brought by an average row.
    estimate, per_admitted_row = per_row([edge], span, legs, [2 * count] * 2, [2 * count] * 2)
    plan = JoinPlan(2, (edge,), span, ((1,), (0,)))
    run = KeyRun.of(key_rows((edge,), 1, legs[1]))
    turn = LegJoin(
        plan,
        [lambda _: (), lambda _: (run,)],
        lambda leg, ids: (ids, legs[leg].columns.take(pa.array(ids))),
        1 << 30,
    )
    brought = 0
    for group in turn.combinations(0, legs[0].take(np.arange(count - new, count))):
        # A new row meets rows that came before it.
        brought += int((group.parts[1] <= group.parts[0]).sum())
    assert estimate == pytest.approx(brought / new / 2, rel=0.35)
    assert per_admitted_row == pytest.approx(2 * estimate)
