"""The join alone: which rows of two or three tables go together, beside DuckDB that finds the same.

Keys are made, candidates counted and places given; no column is taken and nothing is sorted. DuckDB
gives the numbers of the rows of each pair.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.duck import Duck
from benchmarks.join_cases import sparse
from benchmarks.report import Report
from benchmarks.timing import least_cpu
from datastem.types import BIGINT, BOOLEAN, DOUBLE, TEXT, Type, decimal_type
from querystem.expressions import Call, ColumnRef, Expression, Op
from querystem.join import join
from querystem.sources import item_column

_MOST_PAIRS = 50_000_000
_DECIMAL = decimal_type(20, 2)

Numbers = np.ndarray[Any, Any]


@dataclass(frozen=True)
class JoinAlone:
    """Tables, the condition that joins them, and DuckDB's text of the same: `a`, `b` and `c` are
    the tables in their order, each with a column `n` that numbers its rows."""

    title: str
    tables: tuple[Mapping[str, pa.Array], ...]
    on: Expression
    sql: str

    def ours(self) -> int:
        items = [
            pa.RecordBatch.from_arrays(
                list(columns.values()), names=[item_column(number, name) for name in columns]
            )
            for number, columns in enumerate(self.tables)
        ]
        return len(join(items, self.on, _MOST_PAIRS).places[0])

    def duckdb(self) -> Duck:
        tables = {
            name: pa.table({**columns, "n": np.arange(len(next(iter(columns.values()))))})
            for name, columns in zip("abc", self.tables, strict=False)
        }
        numbers = ", ".join(f"{name}.n" for name in tables)
        return Duck(tables, f"SELECT {numbers} FROM {', '.join(tables)} WHERE {self.sql}")


def measure(report: Report, scale: int, rounds: int) -> None:
    for case in _cases(scale):
        duckdb, pairs = case.duckdb(), case.ours()
        assert pairs == duckdb(), case.title
        seconds = least_cpu({"ours": case.ours, "DuckDB": duckdb}, rounds)
        sizes = " × ".join(f"{len(next(iter(columns.values()))):,}" for columns in case.tables)
        title = f"the join alone: {case.title}, {sizes}, {pairs:,} pairs"
        report.add(
            title,
            seconds["ours"] * 1e3,
            "ms",
            ratio=seconds["ours"] / seconds["DuckDB"],
            beside="DuckDB",
        )


# ---- the cases


def _cases(scale: int) -> list[JoinAlone]:
    small, middle, large = 1_000 // scale, 100_000 // scale, 1_000_000 // scale
    block, few = 65_536 // scale, 3_000 // scale
    random = np.random.default_rng(5)

    def equal(kind: str, left_count: int, right_count: int, most: int) -> JoinAlone:
        left_keys, right_keys = (
            sparse(random.integers(0, most, count)) for count in (left_count, right_count)
        )
        return _equal(kind, left_keys, right_keys)

    # The rows of both sides, and how many keys there are.
    sizes = ((block, block, block), (small, large, large), (middle, large, middle))
    kinds = ("BIGINT", "TEXT", "DOUBLE")
    return [
        *(equal(kind, *size) for size in sizes for kind in kinds),
        equal("DECIMAL = DOUBLE, exact", middle, large, middle),
        _band(random, block, block),
        _band(random, middle, large),
        _equal_and_band(random, middle),
        _inequality(random, small, large),
        _either(random, few),
        _three(random, large, small),
    ]


def _equal(kind: str, left_keys: Numbers, right_keys: Numbers) -> JoinAlone:
    types, arrays = {
        "BIGINT": ((BIGINT, BIGINT), (pa.array(left_keys), pa.array(right_keys))),
        "TEXT": ((TEXT, TEXT), (_texts(left_keys), _texts(right_keys))),
        "DOUBLE": ((DOUBLE, DOUBLE), (_doubles(left_keys), _doubles(right_keys))),
    }.get(kind, ((_DECIMAL, DOUBLE), (_decimals(left_keys), _doubles(right_keys))))
    on = _call(Op.EQ, _column(0, "k", types[0]), _column(1, "k", types[1]))
    title = kind if "=" in kind else f"{kind} = {kind}"
    return JoinAlone(title, ({"k": arrays[0]}, {"k": arrays[1]}), on, "a.k = b.k")


def _band(random: np.random.Generator, small_count: int, large_count: int) -> JoinAlone:
    """Values of the larger side that lie within bounds of the smaller one's rows."""
    span = 20 * large_count
    low, value = random.integers(0, span, small_count), random.integers(0, span, large_count)
    high = low + random.integers(0, 2 * span // max(small_count, large_count) + 1, small_count)
    on = _call(Op.AND, *_within("v", "low", "high"))
    tables = ({"low": pa.array(low), "high": pa.array(high)}, {"v": pa.array(value)})
    return JoinAlone("band", tables, on, "b.v >= a.low AND b.v <= a.high")


def _equal_and_band(random: np.random.Generator, count: int) -> JoinAlone:
    sides = [
        {"k": pa.array(random.integers(0, 10, count)), "v": pa.array(random.permutation(count))}
        for _ in range(2)
    ]
    low = sides[0]["v"]
    bounds = {"k": sides[0]["k"], "low": low, "high": pa.array(low.to_numpy() + 4)}
    on = _call(Op.AND, _same("k", "k"), *_within("v", "low", "high"))
    sql = "a.k = b.k AND b.v >= a.low AND b.v <= a.high"
    return JoinAlone("equality of 10 values and a band", (bounds, sides[1]), on, sql)


def _inequality(random: np.random.Generator, small_count: int, large_count: int) -> JoinAlone:
    """One side lies above nearly all of the other."""
    small_values = random.integers(100 * large_count - large_count, 100 * large_count, small_count)
    large_values = random.integers(0, 100 * large_count, large_count)
    on = _call(Op.LT, _column(0, "v", BIGINT), _column(1, "v", BIGINT))
    tables = {"v": pa.array(small_values)}, {"v": pa.array(large_values)}
    return JoinAlone("one inequality", tables, on, "a.v < b.v")


def _either(random: np.random.Generator, count: int) -> JoinAlone:
    sides = tuple(
        {name: pa.array(random.integers(0, count, count)) for name in "kv"} for _ in range(2)
    )
    on = _call(Op.OR, _same("k", "k"), _same("v", "v"))
    return JoinAlone("= OR =", sides, on, "a.k = b.k OR a.v = b.v")


def _three(random: np.random.Generator, large: int, small: int) -> JoinAlone:
    middle = max(1, small // 10)
    tables = (
        {"k": pa.array(sparse(random.integers(0, 50 * small, large)))},
        {"k": pa.array(sparse(np.arange(small))), "v": pa.array(np.arange(small) % middle)},
        {"v": pa.array(np.arange(middle))},
    )
    second = _call(Op.EQ, _column(1, "v", BIGINT), _column(2, "v", BIGINT))
    on = _call(Op.AND, _same("k", "k"), second)
    return JoinAlone("three tables by BIGINT", tables, on, "a.k = b.k AND b.v = c.v")


# ---- expressions and columns


def _column(number: int, name: str, type_: Type) -> ColumnRef:
    return ColumnRef(item_column(number, name), type_)


def _call(op: Op, *args: Expression) -> Call:
    return Call(op, args, BOOLEAN)


def _same(left_column: str, right_column: str) -> Call:
    return _call(Op.EQ, _column(0, left_column, BIGINT), _column(1, right_column, BIGINT))


def _within(value: str, low: str, high: str) -> tuple[Call, Call]:
    tested = _column(1, value, BIGINT)
    return (
        _call(Op.GE, tested, _column(0, low, BIGINT)),
        _call(Op.LE, tested, _column(0, high, BIGINT)),
    )


def _texts(numbers: Numbers) -> pa.Array:
    return pa.array(numbers).cast(pa.string())


def _doubles(numbers: Numbers) -> pa.Array:
    return pa.array(numbers.astype(np.float64))


def _decimals(numbers: Numbers) -> pa.Array:
    return pa.array(numbers).cast(pa.decimal128(19, 0)).cast(_DECIMAL.arrow)
