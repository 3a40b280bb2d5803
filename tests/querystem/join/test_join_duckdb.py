"""DuckDB as a second opinion on larger joins by equality and by band.

Keys are of one type on both sides: between the numeric types DuckDB compares through DOUBLE.
"""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from datastem.types import BIGINT, DOUBLE, TEXT, Type, decimal_type
from querystem.expressions import Call, Expression, Literal, Op
from querystem.join import JoinMethod, join
from tests.querystem.join.support import call, column, places_of

MANY = 10**9
CENTS = decimal_type(18, 2)


def values(type_: Type, size: int, distinct: int, seed: int) -> pa.Array:
    """Random values, one in twenty NULL, and of DOUBLE some NaN and -0.0."""
    rng = np.random.default_rng(seed)
    numbers = rng.integers(-distinct // 2, distinct // 2, size)
    mask = rng.random(size) < 0.05
    if type_ == TEXT:
        texts = pc.binary_join_element_wise("k", pa.array(numbers).cast(pa.string()), "")
        return pc.if_else(pa.array(mask), None, texts)
    if type_ == DOUBLE:
        doubles = np.where(rng.random(size) < 0.01, np.nan, numbers / 4)
        doubles = np.where(rng.random(size) < 0.01, -0.0, doubles)
        return pa.array(doubles, mask=mask, from_pandas=False)
    return pa.array(numbers, mask=mask).cast(pa.decimal128(20, 0)).cast(type_.arrow)


def item(number: int, size: int, columns: dict[str, tuple[Type, int]]) -> pa.RecordBatch:
    return pa.record_batch(
        {
            f"{number}.{name}": values(type_, size, distinct, 10 * number + place)
            for place, (name, (type_, distinct)) in enumerate(columns.items())
        }
    )


def second_opinion(items: list[pa.RecordBatch], where: str) -> list[tuple[Any, ...]]:
    connection = duckdb.connect()
    for number, rows in enumerate(items):
        names = [name.partition(".")[2] for name in rows.schema.names]
        table = pa.table([*rows.columns, np.arange(rows.num_rows)], names=[*names, "place"])
        connection.register(f"t{number}", table)
    tables = ", ".join(f"t{number}" for number in range(len(items)))
    places = ", ".join(f"t{number}.place" for number in range(len(items)))
    return connection.sql(f"SELECT {places} FROM {tables} WHERE {where} ORDER BY ALL").fetchall()


@pytest.mark.parametrize("type_", [BIGINT, DOUBLE, TEXT, CENTS], ids=str)
@pytest.mark.parametrize("sizes", [(300, 20_000), (20_000, 300), (5_000, 5_000)])
def test_differential_equality(type_: Type, sizes: tuple[int, int]) -> None:
    items = [item(number, size, {"k": (type_, 4_000)}) for number, size in enumerate(sizes)]
    joined = join(items, call(Op.EQ, column(0, "k", type_), column(1, "k", type_)), MANY)
    assert joined.steps[0].method is JoinMethod.EQUALITY
    assert places_of(joined) == second_opinion(items, "t0.k = t1.k")


def band(type_: Type, width: Literal) -> Expression:
    low, value = column(0, "k", type_), column(1, "k", type_)
    high = Call(Op.ADD, (low, width), type_)
    return call(Op.AND, call(Op.GT, value, low), call(Op.LE, value, high))


@pytest.mark.parametrize("width", [Literal(3, BIGINT), Literal(1.25, DOUBLE)], ids=["3", "1.25"])
@pytest.mark.parametrize("equal", [False, True])
def test_differential_bands(width: Literal, equal: bool) -> None:
    type_ = width.type
    items = [item(n, 3_000, {"k": (type_, 9_000), "s": (TEXT, 4)}) for n in (0, 1)]
    on, where = band(type_, width), f"t1.k > t0.k AND t1.k <= t0.k + {width.value}"
    if equal:
        same = call(Op.EQ, column(0, "s", TEXT), column(1, "s", TEXT))
        on, where = call(Op.AND, same, on), f"t0.s = t1.s AND {where}"
    joined = join(items, on, MANY)
    assert joined.steps[0].method is JoinMethod.RANGE
    assert places_of(joined) == second_opinion(items, where)


def test_differential_four_items() -> None:
    sizes = (4_000, 200, 1_000, 50)
    items = [item(n, size, {"k": (BIGINT, 500), "t": (TEXT, 60)}) for n, size in enumerate(sizes)]
    on = call(
        Op.AND,
        call(Op.EQ, column(0, "k", BIGINT), column(1, "k", BIGINT)),
        call(Op.EQ, column(0, "t", TEXT), column(3, "t", TEXT)),
        call(Op.EQ, column(2, "k", BIGINT), column(1, "k", BIGINT)),
        call(Op.NE, column(2, "t", TEXT), column(3, "t", TEXT)),
    )
    where = "t0.k = t1.k AND t0.t = t3.t AND t2.k = t1.k AND t2.t <> t3.t"
    assert places_of(join(items, on, MANY)) == second_opinion(items, where)
