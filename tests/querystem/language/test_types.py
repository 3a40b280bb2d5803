"""The type of every operator and function, for every pair of types."""

from __future__ import annotations

import itertools
import json

import pyarrow as pa
import pytest

from datastem.types import COLUMN_KINDS, Kind
from querystem.expressions import Op, from_json, to_json
from querystem.kernel import evaluate
from querystem.kernel.cast import CASTS
from querystem.language import QueryError, TypeProblem
from querystem.language.expressions.coerce import can_cast
from querystem.language.functions.others import EXTRACT_UNITS, TRUNC_UNITS
from querystem.language.functions.table import FUNCTIONS
from querystem.query_json import query_to_json
from tests.querystem.language.support import TRADES, bind, value, where

COLUMNS = {"symbol": "TEXT", "price": "DOUBLE", "size": "BIGINT", "at": "TIMESTAMP",
           "day": "DATE", "ok": "BOOLEAN", "amount": "DECIMAL"}  # fmt: skip
NUMBERS = {"price", "size", "amount"}
TIMES = {"at", "day"}
EMPTY = TRADES.arrow.empty_table()


def runs(text: str) -> None:
    """The kernel knows every expression the binder makes, and agrees on its type."""
    query = bind(text)
    for output in query.outputs:
        assert evaluate(output.expression, EMPTY).type == output.expression.type.arrow
        assert from_json(json.loads(json.dumps(to_json(output.expression)))) == output.expression
    assert evaluate(query.leg.where, EMPTY).type == pa.bool_()


@pytest.mark.parametrize(("lhs", "rhs"), list(itertools.product(COLUMNS, COLUMNS)))
def test_comparisons(lhs: str, rhs: str) -> None:
    fits = lhs == rhs or {lhs, rhs} <= NUMBERS or {lhs, rhs} <= TIMES
    for operator in ("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"):
        if fits:
            runs(f"SELECT {lhs} {operator} {rhs} AS x FROM trades")
        else:
            with pytest.raises(TypeProblem, match="can't be compared"):
                where(f"{lhs} {operator} {rhs}")


@pytest.mark.parametrize(("lhs", "rhs"), list(itertools.product(COLUMNS, COLUMNS)))
def test_arithmetic(lhs: str, rhs: str) -> None:
    for operator in ("+", "-", "*", "/", "%", "div"):
        text = f"{lhs} {operator} {rhs}"
        if {lhs, rhs} <= TIMES and operator == "-":
            runs(f"SELECT extract(second FROM {text}) AS x FROM trades")
        elif not {lhs, rhs} <= NUMBERS or (operator == "div" and {lhs, rhs} != {"size"}):
            with pytest.raises(TypeProblem):
                value(text)
        else:
            runs(f"SELECT {text} AS x FROM trades")
            expected = "DOUBLE" if "price" in (lhs, rhs) else "DECIMAL"
            if {lhs, rhs} == {"size"}:
                expected = "DOUBLE" if operator == "/" else "BIGINT"
            assert value(text).type.kind.value == expected


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("amount + amount", "DECIMAL(11,2)"),
        ("amount - fee", "DECIMAL(38,10)"),
        ("amount + size", "DECIMAL(22,2)"),
        ("amount + 1", "DECIMAL(11,2)"),
        ("amount * 2", "DECIMAL(11,2)"),
        ("amount * 1.25", "DECIMAL(13,4)"),
        ("amount * amount", "DECIMAL(20,4)"),
        ("amount / 3", "DECIMAL(38,6)"),
        ("fee / amount", "DECIMAL(38,10)"),
        ("amount % 7", "DECIMAL(3,2)"),
        ("amount + 1e0", "DECIMAL(11,2)"),
        ("amount * price", "DOUBLE"),
        ("-amount", "DECIMAL(10,2)"),
        ("size + 1.5", "DOUBLE"),
        ("size / 2", "DOUBLE"),
        ("1.5", "DOUBLE"),
        ("15", "BIGINT"),
        ("9223372036854775807", "BIGINT"),
        ("9223372036854775808", "DECIMAL(19,0)"),
        ("-9223372036854775808", "BIGINT"),
        ("-9223372036854775809", "DECIMAL(19,0)"),
        ("coalesce(size, amount)", "DECIMAL(21,2)"),
        ("coalesce(size, price)", "DOUBLE"),
        ("coalesce(size, 1.5)", "DOUBLE"),
        ("coalesce(1.5, amount)", "DECIMAL(10,2)"),
        ("coalesce(amount, 1.555)", "DECIMAL(11,3)"),
        ("coalesce(day, at)", "TIMESTAMP"),
        ("coalesce(day, '2026-11-16')", "DATE"),
        ("coalesce(DATE '2026-11-16', '2026-11-17')", "DATE"),
        ("coalesce(day, at, '2026-11-16 09:00')", "TIMESTAMP"),
        ("coalesce(amount, 1.1, price)", "DOUBLE"),
        ("coalesce(1, 2.5, 3)", "DOUBLE"),
        ("coalesce(NULL, symbol)", "TEXT"),
        ("nullif(amount, 0)", "DECIMAL(10,2)"),
        ("CASE WHEN ok THEN 1 ELSE 2 END", "BIGINT"),
        ("CASE WHEN ok THEN 1 ELSE 2.5 END", "DOUBLE"),
        ("CASE WHEN ok THEN NULL ELSE day END", "DATE"),
        ("round(amount)", "DECIMAL(9,0)"),
        ("round(amount, 1)", "DECIMAL(10,1)"),
        ("round(amount, 5)", "DECIMAL(11,2)"),
        ("round(amount, -2)", "DECIMAL(9,0)"),
        ("round(price, 2)", "DOUBLE"),
        ("round(size, -2)", "BIGINT"),
        ("floor(price)", "DOUBLE"),
        ("ceil(amount)", "DECIMAL(9,0)"),
        ("abs(fee)", "DECIMAL(38,10)"),
        ("length(symbol)", "BIGINT"),
        ("extract(second FROM at)", "DOUBLE"),
        ("date_trunc('day', day)", "TIMESTAMP"),
        ("CAST(size AS DECIMAL(5))", "DECIMAL(5,0)"),
        ("TIMESTAMP '2026-11-16'", "TIMESTAMP"),
        ("size > 1 AND ok", "BOOLEAN"),
        ("at + INTERVAL '1' DAY", "TIMESTAMP"),
        ("INTERVAL '1' DAY + day", "TIMESTAMP"),
        ("day - INTERVAL '1' DAY", "TIMESTAMP"),
        ("'2026-11-16' - INTERVAL '1' DAY", "TIMESTAMP"),
        ("extract(second FROM at - day)", "DOUBLE"),
        ("extract(microsecond FROM at - '2026-11-16')", "BIGINT"),
        ("ts", "TIMESTAMP"),
        ("row_id", "BIGINT"),
    ],
)  # fmt: skip
def test_the_type_of(text: str, type_: str) -> None:
    assert str(value(text).type) == type_
    if text not in ("ts", "row_id"):
        runs(f"SELECT {text} AS x FROM trades")


@pytest.mark.parametrize(("from_", "to"), list(itertools.product(COLUMNS, COLUMN_KINDS)))
def test_casts_are_the_kernels(from_: str, to: Kind) -> None:
    kind = Kind[COLUMNS[from_]]
    assert can_cast(kind, to) == (kind is to or (kind, to) in CASTS)
    type_ = "DECIMAL(12,3)" if to is Kind.DECIMAL else to.value
    if can_cast(kind, to):
        runs(f"SELECT CAST({from_} AS {type_}) AS x FROM trades")
    else:
        with pytest.raises(TypeProblem, match="can't be converted"):
            value(f"CAST({from_} AS {type_})")


CALLS = {
    "abs": ["size", "price", "amount", "NULL"],
    "ceil": ["size", "price", "amount"],
    "concat": ["symbol", "symbol, 'a', NULL", "symbol, symbol"],
    "exp": ["price", "size", "amount"],
    "greatest": [
        "size",
        "size, 1",
        "NULL, size",
        "symbol, 'a'",
        "ok, TRUE",
        "day, at",
        "price, size",
    ],
    "least": ["size, amount", "symbol, symbol", "at, '2026-11-16'"],
    "left": ["symbol, 2", "symbol, size"],
    "ln": ["price", "size"],
    "log10": ["price", "amount"],
    "mod": ["size, 2", "price, 2", "amount, 0.5"],
    "power": ["price, 2", "size, size", "amount, 0.5"],
    "replace": ["symbol, 'a', 'b'", "symbol, symbol, ''", "symbol, NULL, 'b'"],
    "right": ["symbol, 2", "symbol, size"],
    "sign": ["size", "price", "amount", "at - day"],
    "split_part": ["symbol, '-', 1", "symbol, symbol, size"],
    "sqrt": ["price", "size", "amount", "NULL"],
    "starts_with": ["symbol, 'a'", "symbol, symbol", "symbol, NULL"],
    "strpos": ["symbol, 'a'", "symbol, symbol"],
    "coalesce": ["size", "size, 1", "NULL, size", "symbol, 'a'", "ok, TRUE", "day, at"],
    "date_trunc": [f"'{unit}', {time}" for unit in sorted(TRUNC_UNITS) for time in sorted(TIMES)],
    "extract": [f"{unit} FROM {time}" for unit in sorted(EXTRACT_UNITS) for time in sorted(TIMES)],
    "floor": ["size", "price", "amount"],
    "length": ["symbol", "NULL", "'abc'"],
    "lower": ["symbol"],
    "nullif": ["size, 0", "size, 0.5", "symbol, ''", "price, size", "at, day", "ok, FALSE"],
    "round": ["price", "price, 2", "size, -1", "amount, 1"],
    "substring": ["symbol, 2", "symbol, 2, size", "symbol FROM 2", "symbol FROM 2 FOR 3"],
    "trim": ["symbol"],
    "upper": ["symbol", "trim(symbol)"],
}


def test_every_function_is_tried() -> None:
    assert CALLS.keys() == FUNCTIONS.keys()


@pytest.mark.parametrize(("name", "args"), [(n, a) for n, many in CALLS.items() for a in many])
def test_functions_run(name: str, args: str) -> None:
    runs(f"SELECT {name}({args}) AS x, {name.upper()} ( {args} ) AS y FROM trades")


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_functions_refuse_what_they_do_not_take(name: str) -> None:
    for args in ("", "ok, ok, ok, ok", "FALSE, symbol", "at"):
        if name in ("coalesce", "greatest", "least") and args:
            continue
        with pytest.raises(QueryError):
            value(f"{name}({args})")


def test_every_operation_of_the_kernel_can_be_written() -> None:
    text = """
        SELECT CASE WHEN ok THEN 1 END AS a, CAST(size AS TEXT) AS b, size + 1 AS c, size - 1 AS d,
            size * 2 AS e, size / 2 AS f, size div 2 AS g, size % 2 AS h, -size AS i,
            symbol || 'a' AS j, CAST(at AT TIME ZONE 'Europe/Madrid' AS DATE) AS k FROM trades
        WHERE size = 1 AND size <> 2 AND size < 3 AND size <= 4 AND size > 5 AND size >= 6 AND
            size IS DISTINCT FROM 7 AND NOT size IS NULL AND size IN (1, 2) AND symbol LIKE 'a'
            OR ok
    """
    written = json.dumps(query_to_json(bind(text)))
    missing = [op for op in Op if f'"{op.value}"' not in written and op.value not in FUNCTIONS]
    assert missing == []
