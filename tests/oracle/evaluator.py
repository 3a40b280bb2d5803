"""The value of an expression for one row."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from datastem.instants import from_micros
from datastem.types import Kind, Type
from querystem.expressions import Call, ColumnRef, Expression, Literal, Op, Scalar, Zone
from tests.oracle import casts, numbers, texts, times, zoned

Row = Mapping[str, Any]


def evaluate_row(expression: Expression, row: Row) -> Scalar:
    """TIMESTAMP columns may hold microseconds or datetimes; the result is a datetime."""
    match expression:
        case Literal(value, type_):
            return _canonical(value, type_)
        case ColumnRef(name, type_):
            return _canonical(row[name], type_)
        case Zone(name):
            return name
        case Call(op, args, type_) if op in _LAZY:
            return _LAZY[op](row, args, type_)
        case Call(op, args, type_):
            values = [evaluate_row(arg, row) for arg in args]
            if None in values:
                return None
            return _STRICT[op](values, args, type_)
    raise TypeError(f"{expression} has no value")


def _canonical(value: Any, type_: Type) -> Scalar:
    if type_.kind is Kind.TIMESTAMP and isinstance(value, int):
        return from_micros(value)
    if type_.kind is Kind.DOUBLE and value is not None:
        return float(value)
    canonical: Scalar = value
    return canonical


def _and(row: Row, args: tuple[Expression, ...], _: Type) -> Scalar:
    values = [evaluate_row(arg, row) for arg in args]
    if False in values:
        return False
    return None if None in values else True


def _or(row: Row, args: tuple[Expression, ...], _: Type) -> Scalar:
    values = [evaluate_row(arg, row) for arg in args]
    if True in values:
        return True
    return None if None in values else False


def _is_distinct(row: Row, args: tuple[Expression, ...], _: Type) -> Scalar:
    lhs, rhs = (evaluate_row(arg, row) for arg in args)
    if lhs is None or rhs is None:
        return lhs is not rhs
    return numbers.order(lhs, rhs) != 0


def _in(row: Row, args: tuple[Expression, ...], _: Type) -> Scalar:
    operand, *members = (evaluate_row(arg, row) for arg in args)
    if operand is None:
        return None
    if any(member is not None and numbers.order(operand, member) == 0 for member in members):
        return True
    return None if None in members else False


def _case(row: Row, args: tuple[Expression, ...], _: Type) -> Scalar:
    for condition, value in zip(args[:-1:2], args[1:-1:2], strict=True):
        if evaluate_row(condition, row) is True:
            return evaluate_row(value, row)
    return evaluate_row(args[-1], row)


def _coalesce(row: Row, args: tuple[Expression, ...], _: Type) -> Scalar:
    return next((value for arg in args if (value := evaluate_row(arg, row)) is not None), None)


def _extreme(sign: int) -> Callable[..., Scalar]:
    def evaluate(row: Row, args: tuple[Expression, ...], _: Type) -> Scalar:
        values = [value for arg in args if (value := evaluate_row(arg, row)) is not None]
        best = values[0] if values else None
        for value in values[1:]:
            best = value if numbers.order(value, best) * sign > 0 else best
        return best

    return evaluate


def _nullif(row: Row, args: tuple[Expression, ...], _: Type) -> Scalar:
    lhs, rhs = (evaluate_row(arg, row) for arg in args)
    if lhs is None or rhs is None:
        return lhs
    return None if numbers.order(lhs, rhs) == 0 else lhs


def _compare(accept: Callable[[int], bool]) -> Callable[..., Scalar]:
    return lambda values, args, type_: accept(numbers.order(*values))


def _date_trunc(values: list[Any], args: tuple[Expression, ...], _: Type) -> Scalar:
    return times.date_trunc(*values) if len(values) == 2 else zoned.date_trunc(*values)


def _extract(values: list[Any], args: tuple[Expression, ...], type_: Type) -> Scalar:
    of = times.in_unit if args[1].type.kind is Kind.DURATION else times.extract
    return of(values[0], values[1], type_)


def _calculate(op: Op, values: list[Any], args: tuple[Expression, ...], type_: Type) -> Scalar:
    if args[0].type.kind in (Kind.TIMESTAMP, Kind.DURATION):
        return times.calculate(op, values)
    return numbers.calculate(op, values, type_)


_LAZY: dict[Op, Callable[..., Scalar]] = {
    Op.AND: _and,
    Op.OR: _or,
    Op.IS_NULL: lambda row, args, _: evaluate_row(args[0], row) is None,
    Op.IS_DISTINCT: _is_distinct,
    Op.IN: _in,
    Op.CASE: _case,
    Op.COALESCE: _coalesce,
    Op.NULLIF: _nullif,
    Op.GREATEST: _extreme(1),
    Op.LEAST: _extreme(-1),
}
_STRICT: dict[Op, Callable[..., Scalar]] = {
    Op.EQ: _compare(lambda sign: sign == 0),
    Op.NE: _compare(lambda sign: sign != 0),
    Op.LT: _compare(lambda sign: sign < 0),
    Op.LE: _compare(lambda sign: sign <= 0),
    Op.GT: _compare(lambda sign: sign > 0),
    Op.GE: _compare(lambda sign: sign >= 0),
    Op.NOT: lambda values, args, _: not values[0],
    Op.LIKE: lambda values, args, _: texts.like(*values),
    Op.CAST: lambda values, args, type_: casts.cast(values[0], args[0].type, type_),
    Op.LOWER: lambda values, args, _: texts.lower(*values),
    Op.UPPER: lambda values, args, _: texts.upper(*values),
    Op.LENGTH: lambda values, args, _: len(values[0]),
    Op.TRIM: lambda values, args, _: values[0].strip(" "),
    Op.SUBSTRING: lambda values, args, _: texts.substring(*values),
    Op.CONCAT: lambda values, args, _: texts.concatenate(*values),
    Op.LEFT: lambda values, args, _: texts.left(*values),
    Op.RIGHT: lambda values, args, _: texts.right(*values),
    Op.REPLACE: lambda values, args, _: texts.replace(*values),
    Op.SPLIT_PART: lambda values, args, _: texts.split_part(*values),
    Op.STRPOS: lambda values, args, _: texts.strpos(*values),
    Op.STARTS_WITH: lambda values, args, _: texts.starts_with(*values),
    Op.SIGN: lambda values, args, _: numbers.sign(*values),
    Op.SQRT: lambda values, args, _: numbers.root(*values),
    Op.EXP: lambda values, args, _: numbers.exponential(*values),
    Op.LN: lambda values, args, _: numbers.logarithm(math.log, *values),
    Op.LOG10: lambda values, args, _: numbers.logarithm(math.log10, *values),
    Op.POWER: lambda values, args, _: numbers.power(*values),
    Op.DATE_TRUNC: _date_trunc,
    Op.AT_TIME_ZONE: lambda values, args, _: zoned.at_time_zone(*values),
    Op.EXTRACT: _extract,
    **{
        op: lambda values, args, type_, op=op: _calculate(op, values, args, type_)
        for op in numbers.OPERATIONS
    },
}
