"""Joins: their methods, order, limit and pace, and the meaning of equal keys."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from datastem.instants import DAY, MAX_INSTANT, MIN_INSTANT
from datastem.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    DURATION,
    TEXT,
    TIMESTAMP,
    Type,
    decimal_type,
)
from querystem.expressions import TRUE, Call, Expression, Literal, Op
from querystem.join import JoinMethod, TooManyPairs, equality, join, semi_join
from querystem.join.equality import HashJoin
from querystem.join.factors import Comparison
from querystem.join.sides import Side
from querystem.pace import paced
from tests.querystem.join.support import batch, call, column, nested_loops, places_of

MANY = 10**9
NAN = float("nan")


def item(number: int, type_: Type, values: list[Any]) -> pa.RecordBatch:
    return batch([{f"{number}.k": value} for value in values], {f"{number}.k": type_})


def keys(first: Type, second: Type, op: Op = Op.EQ) -> Expression:
    return call(op, column(0, "k", first), column(1, "k", second))


def check(first_type: Type, first: list[Any], second_type: Type, second: list[Any]) -> int:
    """Return the number of pairs with equal keys; they, and those by every other comparison, are
    those of nested loops."""
    items = [item(0, first_type, first), item(1, second_type, second)]
    rows = [[{"0.k": value} for value in first], [{"1.k": value} for value in second]]
    for op in (Op.LT, Op.LE, Op.GT, Op.GE, Op.NE, Op.EQ):
        on = keys(first_type, second_type, op)
        joined = join(items, on, MANY)
        assert places_of(joined) == nested_loops(rows, on), op
    assert joined.steps[0].method is JoinMethod.EQUALITY
    return len(joined.places[0])


BIG = [0, 1, -1, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), None]
DOUBLES = [0.0, -0.0, 0.5, 1.0, -1.0, 2.0**53, 2.0**63, -(2.0**63), NAN, -NAN, float("inf"), None]
CENTS = [Decimal("0.00"), Decimal("0.50"), Decimal("1.00"), Decimal("0.10"), Decimal("-1.00"), None]
FINE = [Decimal(1).scaleb(-30), Decimal("0.5"), Decimal(1), None]
WIDE = [Decimal(2**63), Decimal(2**100), Decimal(10**37 + 1), Decimal(-1), Decimal(0), None]


@pytest.mark.parametrize(
    ("first_type", "first", "second_type", "second", "pairs"),
    [
        (BIGINT, BIG, BIGINT, BIG, 8),
        (DOUBLE, DOUBLES, DOUBLE, DOUBLES, 4 + 4 + 7),
        (BIGINT, BIG, DOUBLE, DOUBLES, 6),
        (DOUBLE, DOUBLES, decimal_type(10, 2), CENTS, 5),
        (decimal_type(10, 2), CENTS, BIGINT, BIG, 3),
        (decimal_type(10, 2), CENTS, decimal_type(38, 30), FINE, 2),
        (decimal_type(38, 30), FINE, DOUBLE, DOUBLES, 2),
        (decimal_type(38, 0), WIDE, DOUBLE, [*DOUBLES, 2.0**100], 5),
        (decimal_type(38, 0), WIDE, BIGINT, BIG, 2),
        (decimal_type(38, 0), WIDE, decimal_type(10, 2), CENTS, 2),
        (TEXT, ["", "a", "a\0", "a\0b", "é", None], TEXT, ["a\0", "a", "", None, "e"], 3),
        (BOOLEAN, [True, False, None], BOOLEAN, [True, True, None], 2),
    ],
)
def test_values_are_equal_as_the_language_has_it(
    first_type: Type, first: list[Any], second_type: Type, second: list[Any], pairs: int
) -> None:
    assert check(first_type, first, second_type, second) == pairs
    assert check(second_type, second, first_type, first) == pairs


@pytest.mark.parametrize("type_", [TIMESTAMP, DATE])
def test_times_are_keys(type_: Type) -> None:
    values = pa.array([0, 1, None, 1], pa.int32()).cast(pa.int64())
    stored = (
        values.cast(pa.int32()).cast(pa.date32()) if type_ == DATE else values.cast(type_.arrow)
    )
    found = stored.to_pylist()
    assert check(type_, found, type_, found) == 5


def test_rows_of_any_columns_make_a_composite_key() -> None:
    columns = [{f"{n}.k": BIGINT, f"{n}.t": TEXT} for n in (0, 1)]
    rows = [
        [{"0.k": k, "0.t": t} for k, t in [(1, "a"), (1, "b"), (None, "a"), (2, None), (2, "a")]],
        [{"1.k": k, "1.t": t} for k, t in [(1, "a"), (1, "a"), (None, "a"), (2, None), (2, "b")]],
    ]
    on = call(Op.AND, keys(BIGINT, BIGINT), call(Op.EQ, column(0, "t", TEXT), column(1, "t", TEXT)))
    items = [batch(item_rows, kinds) for item_rows, kinds in zip(rows, columns, strict=True)]
    assert places_of(join(items, on, MANY)) == [(0, 0), (0, 1)]


# ---- methods and order


def numbers(number: int, values: Any) -> pa.RecordBatch:
    return pa.record_batch({f"{number}.k": pa.array(np.asarray(values, np.int64))})


def band(width: int) -> Expression:
    low, value = column(0, "k", BIGINT), column(1, "k", BIGINT)
    high = Call(Op.ADD, (low, Literal(width, BIGINT)), BIGINT)
    return call(Op.AND, call(Op.GE, value, low), call(Op.LE, value, high))


def test_a_band_looks_at_no_pair_outside_it() -> None:
    joined = join([numbers(0, range(1000)), numbers(1, range(1000))], band(2), MANY)
    [step] = joined.steps
    assert (step.method, step.candidates, step.kept_pairs) == (JoinMethod.RANGE, 2997, 2997)


def apart(op: Op, duration: int, *, magnitude: bool = False) -> Expression:
    difference: Expression = Call(
        Op.SUB, (column(1, "k", TIMESTAMP), column(0, "k", TIMESTAMP)), DURATION
    )
    if magnitude:
        difference = Call(Op.ABS, (difference,), DURATION)
    return call(op, difference, Literal(duration, DURATION))


YEARS = 10_000 * 366 * DAY
AFTER = call(Op.GE, column(1, "k", TIMESTAMP), column(0, "k", TIMESTAMP))


@pytest.mark.parametrize(
    ("on", "by_pairs"),
    [
        (call(Op.AND, apart(Op.GE, 0), apart(Op.LT, 2)), False),
        (call(Op.AND, AFTER, apart(Op.LE, 1)), False),
        (call(Op.AND, AFTER, apart(Op.LE, YEARS)), False),
        (apart(Op.LE, 1, magnitude=True), False),
        (apart(Op.LT, -1, magnitude=True), False),
        (apart(Op.GT, 1, magnitude=True), True),
        (apart(Op.EQ, 1), False),
        (apart(Op.LT, 2**63 - 1), True),
    ],
)
def test_a_difference_of_times_is_a_range(on: Expression, by_pairs: bool) -> None:
    moments = [MIN_INSTANT, MIN_INSTANT + 1, -1, 0, 1, 2, 3, MAX_INSTANT - 1, MAX_INSTANT, None]
    rows = [[{f"{n}.k": moment} for moment in moments] for n in (0, 1)]
    items = [batch(item_rows, {f"{n}.k": TIMESTAMP}) for n, item_rows in enumerate(rows)]
    joined = join(items, on, MANY)
    assert places_of(joined) == nested_loops(rows, on)
    [step] = joined.steps
    assert (step.method is JoinMethod.PAIRS) is by_pairs
    assert by_pairs or step.kept_pairs == step.candidates


@pytest.mark.long
def test_an_equality_with_many_pairs_is_joined_with_the_range_beside_it() -> None:
    rng = np.random.default_rng(7)
    items = [
        pa.record_batch({f"{n}.k": rng.integers(0, 500, 400), f"{n}.s": rng.integers(0, 3, 400)})
        for n in (0, 1)
    ]
    equal = call(Op.EQ, column(0, "s", BIGINT), column(1, "s", BIGINT))
    on = call(Op.AND, equal, band(4))
    joined = join(items, on, MANY)
    [step] = joined.steps
    assert (step.method, step.candidates) == (JoinMethod.RANGE, step.kept_pairs)
    rows = [batch_.to_pylist() for batch_ in items]
    assert places_of(joined) == nested_loops(rows, on)


def test_an_equality_with_few_pairs_comes_before_a_range() -> None:
    on = call(Op.AND, keys(BIGINT, BIGINT), band(4))
    [step] = join([numbers(0, range(100)), numbers(1, range(100))], on, MANY).steps
    assert (step.method, step.candidates) == (JoinMethod.EQUALITY, 100)


def test_items_are_joined_smallest_result_first_and_crossed_last() -> None:
    large, small = numbers(0, np.arange(5000) % 50), numbers(1, range(10))
    alone, middle = numbers(2, [1, 2]), numbers(3, np.arange(5000))
    equalities = [
        call(Op.EQ, column(first, "k", BIGINT), column(second, "k", BIGINT))
        for first, second in ((0, 1), (0, 3))
    ]
    joined = join([large, small, alone, middle], call(Op.AND, *equalities), MANY)
    order = [joined.first, *[step.item for step in joined.steps]]
    assert set(order[:2]) == {0, 1} and order[2:] == [3, 2]
    assert [step.method for step in joined.steps][-1] is JoinMethod.PAIRS
    assert joined.steps[-1].kept_pairs == 10 * 100 * 2


def test_conditions_without_items_or_of_one_item_choose_rows_first() -> None:
    items = [numbers(0, [1, 2, 3]), numbers(1, [1, 2, 3])]
    two = call(Op.EQ, column(0, "k", BIGINT), Literal(2, BIGINT))
    joined = join(items, call(Op.AND, keys(BIGINT, BIGINT), two), MANY)
    assert places_of(joined) == [(1, 1)]
    assert joined.steps[0].rows == (1, 3)
    for nothing in (Literal(False, BOOLEAN), Literal(None, BOOLEAN)):
        assert places_of(join(items, nothing, MANY)) == []
        assert places_of(join(items[:1], nothing, MANY)) == []
    assert places_of(join(items[:1], TRUE, MANY)) == [(0,), (1,), (2,)]


def test_eight_items() -> None:
    items = [numbers(n, range(100)) for n in range(8)]
    chain = [call(Op.EQ, column(n, "k", BIGINT), column(n + 1, "k", BIGINT)) for n in range(7)]
    joined = join(items, call(Op.AND, *chain), MANY)
    assert places_of(joined) == [(n,) * 8 for n in range(100)]
    assert all(step.method is JoinMethod.EQUALITY for step in joined.steps)


@pytest.mark.parametrize("op", [Op.EQ, Op.LT])
def test_texts_of_many_combinations_need_not_fit_one_array(op: Op) -> None:
    """The texts of all combinations are more than the 2 GB of an array."""
    long = ["x" * 2_000_000 + str(n) for n in range(2)]
    items = [
        pa.record_batch({"0.k": np.zeros(2, np.int64), "0.t": long}),
        numbers(1, np.zeros(1000)),
        pa.record_batch({"2.t": [*long[:1], None]}),
    ]
    on = call(Op.AND, keys(BIGINT, BIGINT), call(op, column(2, "t", TEXT), column(0, "t", TEXT)))
    joined = join(items, on, MANY)
    assert set(places_of(joined)) == {(int(op is Op.LT), n, 0) for n in range(1000)}
    pairs = HashJoin(
        Side.of_item(0, items[0]).with_pairs(
            Side.of_item(1, items[1]), (np.repeat([0, 1], 1000), np.tile(np.arange(1000), 2))
        ),
        Side.of_item(2, items[2]),
        [Comparison(Op.EQ, column(0, "t", TEXT), column(2, "t", TEXT))],
    )
    assert pairs.count == 1000


# ---- partners


@pytest.mark.parametrize(("outer", "inner"), [(9_000, 500), (500, 9_000), (500, 0), (0, 500)])
def test_rows_with_equal_keys_have_partners_whichever_side_is_larger(
    outer: int, inner: int
) -> None:
    """All rows have one of seven keys, of which the inner ones have three: there is no limit of
    pairs, since none is made."""
    outer_keys, inner_keys = np.arange(outer) % 7, np.arange(inner) % 3
    partnered = semi_join(
        [numbers(0, outer_keys), numbers(1, inner_keys)], keys(BIGINT, BIGINT), most_pairs=0
    )
    assert (partnered.mask == np.isin(outer_keys, inner_keys)).all()
    assert partnered.steps[0].kept_pairs == partnered.mask.sum()


def test_rows_have_partners_by_what_is_no_equality_too() -> None:
    outer_keys, inner_keys = np.arange(50), np.arange(40) % 5 + 20
    partnered = semi_join([numbers(0, outer_keys), numbers(1, inner_keys)], band(3), MANY)
    above = inner_keys - outer_keys[:, None]
    assert (partnered.mask == ((above >= 0) & (above <= 3)).any(axis=1)).all()
    assert partnered.steps[0].rows[1] == 5


# ---- limit and pace


@pytest.mark.parametrize("on", [TRUE, keys(BIGINT, BIGINT), band(0)])
def test_more_pairs_than_allowed_are_refused_with_their_number(on: Expression) -> None:
    items = [numbers(0, [7] * 30), numbers(1, [7] * 40)]
    assert len(join(items, on, 1200).places[0]) == 1200
    with pytest.raises(TooManyPairs) as refused:
        join(items, on, 1199)
    assert (refused.value.count, refused.value.limit) == (1200, 1199)


def test_pairs_are_counted_exactly_where_a_bound_is_not_enough() -> None:
    hot = numbers(0, [1] * 50 + list(range(100, 150)))
    joined = join([hot, numbers(1, range(200, 1200))], keys(BIGINT, BIGINT), 0)
    assert joined.steps[0].candidates == 0


def test_the_limit_is_of_all_steps_together() -> None:
    items = [numbers(n, range(10)) for n in range(3)]
    assert sum(step.candidates for step in join(items, TRUE, 1100).steps) == 1100
    with pytest.raises(TooManyPairs) as refused:
        join(items, TRUE, 1099)
    assert refused.value.count == 1100


class Stopped(Exception):
    pass


@pytest.mark.parametrize("on", [TRUE, keys(BIGINT, BIGINT), band(1)])
def test_a_join_tells_its_work_and_may_be_ended(on: Expression) -> None:
    spent: list[int] = []
    items = [numbers(0, range(2000)), numbers(1, range(2000))]
    with paced(spent.append):
        join(items, on, MANY)
    assert sum(spent) > 4000

    def stop(units: int) -> None:
        raise Stopped

    with paced(stop), pytest.raises(Stopped):
        join(items, on, MANY)


@pytest.mark.parametrize(("first", "crowded"), [(0, True), (5900, True), (5999, False)])
def test_keys_that_differ_in_high_bits_alone_stay_different(first: int, crowded: bool) -> None:
    values = np.arange(-3000, 3000, dtype=np.int64) << 40
    tail = values[first:]
    assert equality._is_crowded(pa.array(tail), len(values)) is crowded
    joined = join([numbers(0, tail), numbers(1, values[::-1])], keys(BIGINT, BIGINT), MANY)
    assert (joined.places[0] + joined.places[1] + first == len(values) - 1).all()
    assert len(joined.places[0]) == len(tail)
    spread = equality._mixed(pa.array(values)).to_numpy()
    assert len(np.unique(spread & 0xFFFF)) > 5000


def test_negative_keys_are_mixed_apart_from_others() -> None:
    """Bits shifted in by sign made one key of 0 and -1."""
    assert equality._mixed(pa.array([0, -1, None, 1])).to_pylist()[2] is None
    assert len(set(equality._mixed(pa.array([0, -1, 1, -(2**63)])).to_pylist())) == 4
