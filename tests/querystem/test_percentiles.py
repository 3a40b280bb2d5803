"""Percentiles and variances: sorted runs merge in any order, and DuckDB agrees."""

from __future__ import annotations

import math
from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from datastem.types import BIGINT, DOUBLE, Type, decimal_type
from querystem.aggregate import finish, merge, partial
from querystem.aggregate.runs import NumberRuns
from querystem.expressions import ColumnRef
from querystem.grouping import (
    Aggregate,
    Function,
    Grouping,
    grouping_from_json,
    grouping_to_json,
)
from tests.oracle.grouping import naive_aggregate

FRACTIONS = (0.0, 0.25, 0.5, 0.95, 1.0)
NARROW, WIDE = decimal_type(9, 2), decimal_type(38, 4)


def batch(values: list[object], type_: Type, groups: int = 1) -> pa.RecordBatch:
    count = len(values)
    columns = {
        "x": pa.array(values, type_.arrow),
        "g": pa.array(np.arange(count) % groups),
        "ts": pa.array(np.arange(count), pa.timestamp("us", "UTC")),
        "row_id": pa.array(np.arange(count)),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def percentiles(type_: Type, distinct: bool = False, keys: bool = False) -> Grouping:
    return Grouping(
        (ColumnRef("g", BIGINT),) if keys else (),
        tuple(
            Aggregate(Function.PERCENTILE, ColumnRef("x", type_), distinct, DOUBLE, fraction)
            for fraction in FRACTIONS
        ),
    )


def drawn(type_: Type, count: int) -> list[object]:
    random = np.random.default_rng(count)
    if type_ is DOUBLE:
        special = [math.inf, -math.inf, math.nan, -0.0, 0.0, 1e308, -1e308, None]
        numbers = random.normal(size=count) * 100
        return [
            special[random.integers(len(special))] if random.integers(20) == 0 else float(number)
            for number in numbers
        ]
    whole = [int(number) for number in random.integers(-(2**62), 2**62, count)]
    if type_ is BIGINT:
        return [None if number % 17 == 0 else number for number in whole]
    if type_ is NARROW:
        return [Decimal(number % 10**9).scaleb(-2) for number in whole]
    return [Decimal(number * 10**15).scaleb(-4) for number in whole]


@pytest.mark.parametrize("type_", [DOUBLE, BIGINT, NARROW, WIDE], ids=str)
@pytest.mark.parametrize("count", [0, 1, 2, 5, 4500])
@pytest.mark.parametrize("distinct", [False, True])
def test_oracle_percentiles_of_runs(type_: Type, count: int, distinct: bool) -> None:
    rows = batch(drawn(type_, count), type_)
    grouping = percentiles(type_, distinct)
    assert grouping_from_json(grouping_to_json(grouping)) == grouping
    expected = [naive_aggregate(a, rows.to_pylist()) for a in grouping.aggregates]
    for step in (10_000, 700, 20):
        parts = [rows.slice(start, step) for start in range(0, max(count, 1), step)]
        merged = merge([partial(grouping, part) for part in reversed(parts)])
        got = [column[0].as_py() for column in finish(grouping, merged).columns]
        assert repr(got) == repr(expected)


def test_runs_stay_apart_until_there_are_many() -> None:
    rows = batch([float(number) for number in range(9000)], DOUBLE)
    grouping = percentiles(DOUBLE)
    few = merge([partial(grouping, rows.slice(start, 1000)) for start in range(0, 9000, 1000)])
    many = merge([partial(grouping, rows.slice(start, 30)) for start in range(0, 9000, 30)])
    assert isinstance(few.states[0], NumberRuns) and isinstance(many.states[0], NumberRuns)
    assert len(few.states[0].ends) == 9
    assert len(many.states[0].ends) == 1
    assert finish(grouping, few).equals(finish(grouping, many))


@pytest.mark.parametrize("groups", [1, 7, 70_000])
def test_differential_groups(groups: int) -> None:
    random = np.random.default_rng(groups)
    rows = batch(random.normal(size=100_000).tolist(), DOUBLE, groups)
    argument = ColumnRef("x", DOUBLE)
    spreads = (Function.STDDEV, Function.STDDEV_POP, Function.VARIANCE, Function.VAR_POP)
    grouping = Grouping(
        (ColumnRef("g", BIGINT),),
        (
            *percentiles(DOUBLE).aggregates,
            *(Aggregate(function, argument, False, DOUBLE) for function in spreads),
        ),
    )
    parts = [rows.slice(start, 30_000) for start in range(0, 100_000, 30_000)]
    got = finish(grouping, merge([partial(grouping, part) for part in parts]))
    values = [f"quantile_cont(x, {fraction})" for fraction in FRACTIONS]
    values += ["stddev_samp(x)", "stddev_pop(x)", "var_samp(x)", "var_pop(x)"]
    with duckdb.connect(":memory:", config={"threads": 1}) as duck:
        duck.register("t", pa.Table.from_batches([rows.select(["x", "g"])]))
        sql = f"SELECT g, {', '.join(values)} FROM t GROUP BY g ORDER BY g"
        expected = duck.sql(sql).to_arrow_table()
    for ours, duck_column in zip(got.columns, expected.columns, strict=True):
        assert ours.null_count == duck_column.null_count
        assert np.allclose(
            ours.fill_null(0).to_numpy(), duck_column.fill_null(0).to_numpy(), rtol=1e-9, atol=1e-12
        )


def test_variances_are_exact() -> None:
    rows = batch([1e9 + 1, 1e9 + 2, 1e9 + 3], DOUBLE)
    functions = (Function.VARIANCE, Function.VAR_POP, Function.STDDEV_POP)
    argument = ColumnRef("x", DOUBLE)
    grouping = Grouping((), tuple(Aggregate(f, argument, False, DOUBLE) for f in functions))
    got = [column[0].as_py() for column in finish(grouping, partial(grouping, rows)).columns]
    assert got == [1.0, 2 / 3, math.sqrt(2 / 3)]
    alone = finish(grouping, partial(grouping, rows.slice(0, 1)))
    assert [column[0].as_py() for column in alone.columns] == [None, 0.0, 0.0]
