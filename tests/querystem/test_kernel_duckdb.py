"""DuckDB as a second opinion, where it means the same.

Where it does not, and what is done about it here:
- BIGINT against DOUBLE or DECIMAL compares through a common type, not exactly: left out;
- BIGINT overflow is an error, ours is NULL: its TRY makes it NULL;
- division by zero of DOUBLE is infinite or NaN, ours is NULL: the divisor goes through NULLIF;
- DECIMAL arithmetic has other result types and its overflow is an error: left out;
- ROUND of DOUBLE and CASTs between TEXT, DOUBLE and DECIMAL round and read differently: left out;
- SUBSTRING counts a start below 1 from the end: left out;
- EXTRACT(second) is whole seconds, ours has the fraction: left out;
- an INTERVAL has months, days and microseconds apart, which EXTRACT shows and which overflow each
  on its own: a DURATION here is a constant or the difference of two TIMESTAMPs; the rest is left
  out;
- TIMESTAMP goes past the year 9999, where ours is NULL: so is what gets there;
- SQRT, LN, LOG10 and POWER are NaN or infinite if ours is NULL, and EXP, LN, LOG10 and POWER may
  come from another C library: left out;
- SPLIT_PART splits at an empty separator: only separators that are not empty are kept;
- time zones need an extension that is fetched over the network: left out;
- DATE_TRUNC of a DATE is a DATE, ours a TIMESTAMP: cast.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from datastem.types import Kind, Type
from querystem.expressions import Call, ColumnRef, Expression, Literal, Op
from querystem.kernel import matches
from tests.oracle.expressions import conditions
from tests.oracle.strategies import rows, schemas, to_batch

_LEFT_OUT = frozenset({Op.CAST, Op.ROUND, Op.SUBSTRING}) | {
    Op.SQRT,
    Op.POWER,
    Op.EXP,
    Op.LN,
    Op.LOG10,
    Op.AT_TIME_ZONE,
}
_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
_NAIVE = pa.timestamp("us")
_NAMES = {Kind.TEXT: "VARCHAR"}
_FUNCTIONS = {
    Op.ABS: "abs",
    Op.FLOOR: "floor",
    Op.CEIL: "ceil",
    Op.LOWER: "lower",
    Op.UPPER: "upper",
    Op.LENGTH: "length",
    Op.COALESCE: "coalesce",
    Op.NULLIF: "nullif",
    Op.GREATEST: "greatest",
    Op.LEAST: "least",
    Op.SIGN: "sign",
    Op.LEFT: "left",
    Op.RIGHT: "right",
    Op.REPLACE: "replace",
    Op.SPLIT_PART: "split_part",
    Op.STRPOS: "strpos",
    Op.STARTS_WITH: "starts_with",
}
_INFIX = {
    Op.EQ: "=",
    Op.NE: "<>",
    Op.LT: "<",
    Op.LE: "<=",
    Op.GT: ">",
    Op.GE: ">=",
    Op.IS_DISTINCT: "IS DISTINCT FROM",
    Op.AND: "AND",
    Op.OR: "OR",
    Op.ADD: "+",
    Op.SUB: "-",
    Op.MUL: "*",
    Op.CONCAT: "||",
}
_DIVISIONS = {Op.DIV: "/", Op.INT_DIV: "//", Op.MOD: "%"}


class MeansSomethingElse(Exception):
    """The expression is one of the differences above."""


class Translation:
    """A condition as DuckDB's SQL, its constants as parameters."""

    def __init__(self, where: Expression) -> None:
        self.parameters: list[Any] = []
        self.sql = self._sql(where)

    def _sql(self, node: Expression) -> str:
        match node:
            case ColumnRef(name, _):
                return name
            case Literal(value, type_) if type_.kind is Kind.DURATION:
                self.parameters.append(value)
                return "to_microseconds(CAST(? AS BIGINT))"
            case Literal(value, type_):
                moment = value.replace(tzinfo=None) if isinstance(value, datetime) else value
                self.parameters.append(moment)
                return f"CAST(? AS {_name(type_)})"
            case Call(op, args, type_):
                _refuse(op, args, type_)
                return self._call(op, args, type_)
        raise TypeError(node)

    def _call(self, op: Op, args: tuple[Expression, ...], type_: Type) -> str:
        if op in (Op.EXTRACT, Op.DATE_TRUNC):
            return self._moment(op, args)
        if op is Op.LIKE:
            return f"({self._sql(args[0])} LIKE {self._sql(args[1])} ESCAPE '\\')"
        parts = [self._sql(arg) for arg in args]
        if type_.kind is Kind.TIMESTAMP and op in (Op.ADD, Op.SUB):
            return _ours(f"TRY({parts[0]} {op.value} {parts[1]})")
        if op in _INFIX:
            infix = f" {_INFIX[op]} ".join(parts)
            return f"TRY({infix})" if type_.kind is Kind.BIGINT else f"({infix})"
        if op in _DIVISIONS:
            return f"TRY({parts[0]} {_DIVISIONS[op]} nullif({parts[1]}, 0))"
        if op in _FUNCTIONS:
            return f"TRY({_FUNCTIONS[op]}({', '.join(parts)}))"
        return _special(op, parts)

    def _moment(self, op: Op, args: tuple[Expression, ...]) -> str:
        unit = args[0].value if isinstance(args[0], Literal) else None
        if op is Op.EXTRACT:
            return f"extract({unit} FROM {self._sql(args[1])})"
        return f"CAST(date_trunc('{unit}', {self._sql(args[1])}) AS TIMESTAMP)"


def _ours(moment: str) -> str:
    """Return the moment, or NULL if it is before the year 1 or past 9999; least and greatest leave
    NULL out."""
    before = "(TIMESTAMP '0001-01-01' - to_microseconds(1))"
    past = "TIMESTAMP '10000-01-01'"
    clipped = f"greatest(least({moment}, {past}), {before})"
    return f"nullif(nullif({clipped}, {past}), {before})"


def _special(op: Op, parts: list[str]) -> str:
    match op:
        case Op.NOT:
            return f"(NOT {parts[0]})"
        case Op.NEG:
            return f"TRY(-({parts[0]}))"
        case Op.IS_NULL:
            return f"({parts[0]} IS NULL)"
        case Op.IN:
            return f"({parts[0]} IN ({', '.join(parts[1:])}))"
        case Op.TRIM:
            return f"trim({parts[0]}, ' ')"
        case Op.CASE:
            branches = zip(parts[:-1:2], parts[1:-1:2], strict=True)
            cases = " ".join(f"WHEN {condition} THEN {value}" for condition, value in branches)
            return f"(CASE {cases} ELSE {parts[-1]} END)"
    raise TypeError(op)


def _name(type_: Type) -> str:
    return _NAMES.get(type_.kind, str(type_))


def _refuse(op: Op, args: tuple[Expression, ...], type_: Type) -> None:
    is_mixed = len({arg.type for arg in args if arg.type.is_numeric}) > 1
    if is_mixed and op not in (Op.CASE, Op.AND, Op.OR):
        raise MeansSomethingElse("mixed numbers")
    chooses = (Op.CASE, Op.COALESCE, Op.NULLIF, Op.GREATEST, Op.LEAST)
    if op in (Op.GREATEST, Op.LEAST, Op.SIGN) and args[0].type.kind is Kind.DURATION:
        raise MeansSomethingElse("durations")
    if type_.kind is Kind.DECIMAL and op not in chooses:
        raise MeansSomethingElse("DECIMAL arithmetic")
    differs = op is Op.SUB and args[0].type.kind is Kind.TIMESTAMP
    if type_.kind is Kind.DURATION and op not in chooses and not differs:
        raise MeansSomethingElse("arithmetic of durations")
    if op is Op.SPLIT_PART and not (isinstance(args[1], Literal) and args[1].value):
        raise MeansSomethingElse("empty separators")
    if op is Op.EXTRACT and args[1].type.kind is Kind.DURATION:
        raise MeansSomethingElse("fields of durations")
    if op is Op.EXTRACT and type_.kind is Kind.DOUBLE:
        raise MeansSomethingElse("seconds")


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(":memory:", config={"threads": 1}) as connection:
        yield connection


def duck_matches(
    duck: duckdb.DuckDBPyConnection, where: Expression, batch: pa.RecordBatch
) -> list[int]:
    translation = Translation(where)
    columns = [
        array.cast(_NAIVE) if pa.types.is_timestamp(array.type) else array for array in batch
    ]
    duck.register("s", pa.table(columns, names=batch.schema.names))
    sql = f"SELECT row_id FROM s WHERE {translation.sql} ORDER BY row_id"
    return [row[0] for row in duck.execute(sql, translation.parameters).fetchall()]


@settings(suppress_health_check=_SLOW)
@given(data=st.data())
def test_differential_conditions(duck: duckdb.DuckDBPyConnection, data: DataObject) -> None:
    schema = data.draw(schemas())
    batch = to_batch(schema, data.draw(rows(schema)))
    for _ in range(3):
        where = data.draw(conditions(schema.types, without=_LEFT_OUT))
        try:
            expected = duck_matches(duck, where, batch)
        except MeansSomethingElse:
            continue
        assert np.flatnonzero(matches(where, batch)).tolist() == expected
