"""Aggregates at their edges: exact sums, overflow, nothing at all, and many rows."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastem.types import BIGINT, DOUBLE, TEXT, Type, decimal_type
from querystem.aggregate import finish, merge, partial
from querystem.expressions import ColumnRef
from querystem.grouping import Aggregate, Function, Grouping
from tests.oracle.queries import result

MOST = 2**63 - 1
WIDE = decimal_type(38, 2)


def rows(values: Any, type_: Type, keys: Any = None, key_type: Type = TEXT) -> pa.RecordBatch:
    x = pa.array(values, type_.arrow)
    numbers = pa.array(np.arange(len(x)))
    names = ["x", "ts", "row_id"]
    columns = [x, numbers.view(pa.timestamp("us", "UTC")), numbers]
    if keys is not None:
        names, columns = [*names, "k"], [*columns, pa.array(keys, key_type.arrow)]
    return pa.RecordBatch.from_arrays(columns, names=names)


def of(*functions: Function, type_: Type = DOUBLE, key: Type | None = None) -> Grouping:
    keys = () if key is None else (ColumnRef("k", key),)
    x = ColumnRef("x", type_)
    return Grouping(keys, tuple(_aggregate(f, x) for f in functions))


def _aggregate(function: Function, argument: ColumnRef) -> Aggregate:
    fraction = 0.5 if function is Function.PERCENTILE else None
    return Aggregate(function, argument, False, result(function, argument.type), fraction)


def values(grouping: Grouping, batch: pa.RecordBatch) -> tuple[Any, ...]:
    groups = finish(grouping, partial(grouping, batch)).to_pylist()
    assert len(groups) == 1
    return tuple(groups[0].values())


WILD = [0.0, -0.0, 1.0, -1.5, 0.1, 1e308, -1e308, 5e-324, 2.0**53, 1e16, math.inf, math.nan]


@given(
    st.lists(st.sampled_from(WILD) | st.floats(), max_size=8),
    st.lists(st.sampled_from([0, 1, -7, MOST, -MOST - 1]) | st.integers(-MOST, MOST), max_size=8),
)
def test_a_few_numbers_give_what_they_give_one_by_one(
    doubles: list[float], whole: list[int]
) -> None:
    every = (Function.COUNT_ROWS, Function.COUNT, Function.SUM, Function.AVG)
    for grouping, batch in (
        (of(*every), rows(doubles, DOUBLE)),
        (of(*every, type_=BIGINT), rows(whole, BIGINT)),
    ):
        together = partial(grouping, batch)
        single = [partial(grouping, batch.slice(place, 1)) for place in range(batch.num_rows)]
        apart = merge([partial(grouping, batch.slice(0, 0)), *single])
        actual, expected = finish(grouping, apart), finish(grouping, together)
        assert repr(actual.to_pylist()) == repr(expected.to_pylist())


def test_one_group_is_one_row_where_nothing_is_computed() -> None:
    """As of `SELECT 5 FROM s HAVING TRUE`."""
    nothing = of()
    for values in ([], [1.0, 2.0]):
        assert finish(nothing, partial(nothing, rows(values, DOUBLE))).num_rows == 1


def test_a_long_sum_of_doubles_is_exact_however_it_is_cut() -> None:
    random = np.random.default_rng(5)
    wild = random.normal(0, 1, 150_000) * 2.0 ** random.integers(-900, 900, 150_000)
    batch = rows(wild, DOUBLE)
    grouping = of(Function.SUM, Function.AVG)
    whole = partial(grouping, batch)
    pieces = [partial(grouping, batch.slice(start, 7001)) for start in range(0, 150_000, 7001)]
    total = math.fsum(wild)
    mean = float(sum(map(Fraction, wild.tolist()), Fraction(0)) / len(wild))
    for merged in (whole, merge(pieces[::-1]), merge([merge(pieces[:9]), merge(pieces[9:])])):
        assert tuple(finish(grouping, merged).to_pylist()[0].values()) == (total, mean)


@pytest.mark.parametrize(
    ("doubles", "total", "mean"),
    [
        ([1e308, 1e308], math.inf, 1e308),
        ([1e308, 1e308, -1e308], 1e308, 1e308 / 3),
        ([1e16, 1.0, -1e16], 1.0, 1 / 3),
        ([5e-324, 5e-324, 0.0], 1e-323, 5e-324),
        ([2.0**-1022, -5e-324], 2.0**-1022 - 5e-324, 2.0**-1023),
        ([2.0**53, 1.0], 2.0**53, 2.0**52),
        ([2.0**53, 1.0, 5e-324], 2.0**53 + 2, float(Fraction(2**53 + 1, 3))),
        ([-0.0, -0.0], 0.0, 0.0),
        ([math.inf, 1.0], math.inf, math.inf),
        ([math.inf, -math.inf], math.nan, math.nan),
        ([math.nan, math.inf], math.nan, math.nan),
    ],
)
def test_sums_and_averages_are_rounded_once(
    doubles: list[float], total: float, mean: float
) -> None:
    actual = values(of(Function.SUM, Function.AVG), rows(doubles, DOUBLE))
    assert repr(actual) == repr((total, mean))


@pytest.mark.parametrize(
    ("numbers", "total"), [([MOST, 1], None), ([MOST, 1, -1], MOST), ([-MOST, -1], -MOST - 1)]
)
def test_bigint_sums_are_exact_inside_and_null_where_they_overflow(
    numbers: list[int], total: int | None
) -> None:
    batch = rows(numbers, BIGINT)
    mean = float(Fraction(sum(numbers), len(numbers)))
    assert values(of(Function.SUM, Function.AVG, type_=BIGINT), batch) == (total, mean)


def test_decimal_sums() -> None:
    most, least = Decimal("9" * 36 + ".99"), Decimal("-" + "9" * 36 + ".99")
    grouping = of(Function.SUM, Function.MIN, Function.STDDEV, type_=WIDE)
    assert values(grouping, rows([most, least, Decimal("0.07")], WIDE))[:2] == (
        Decimal("0.07"),
        least,
    )
    assert values(grouping, rows([most, most], WIDE)) == (None, most, 0.0)


def test_over_nothing() -> None:
    every = tuple(Function)[1:]
    grouping = of(*every)
    expected = (0, *[None] * (len(every) - 1))
    assert values(grouping, rows([], DOUBLE)) == expected
    assert values(grouping, rows([None, None], DOUBLE)) == expected
    keyed = of(Function.COUNT, key=TEXT)
    assert finish(keyed, partial(keyed, rows([], DOUBLE, []))).num_rows == 0


def test_keys_are_equal_as_the_language_says_and_in_order() -> None:
    keys = [math.nan, None, 0.0, -0.0, -math.nan, math.inf, None, -1.0]
    grouping = of(Function.COUNT, key=DOUBLE)
    batch = rows([1.0] * 8, DOUBLE, keys, DOUBLE)
    pieces = [partial(grouping, batch.slice(start, 3)) for start in (0, 3, 6)]
    actual = [tuple(row.values()) for row in finish(grouping, merge(pieces)).to_pylist()]
    expected = [(-1.0, 1), (0.0, 2), (math.inf, 1), (math.nan, 2), (None, 2)]
    assert repr(actual) == repr(expected)


def test_first_and_last_go_by_ts_then_row_id() -> None:
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([1.0, 2.0, None, 4.0, 5.0]),
            pa.array([7, 3, 9, 3, 7]).view(pa.timestamp("us", "UTC")),
            pa.array([4, 3, 2, 1, 0]),
        ],
        names=["x", "ts", "row_id"],
    )
    assert values(of(Function.FIRST, Function.LAST), batch) == (4.0, 1.0)
