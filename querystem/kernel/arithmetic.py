"""Numbers: exact for BIGINT and DECIMAL, IEEE for DOUBLE; what can't be computed is NULL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from datastem.arrays import Array, Integers, Mask
from datastem.types import Kind, Type
from querystem.expressions import Op
from querystem.kernel import integers
from querystem.kernel.vector import Vector, both

_DOUBLE: dict[Op, Callable[[Any, Any], Any]] = {
    Op.ADD: np.add,
    Op.SUB: np.subtract,
    Op.MUL: np.multiply,
    Op.DIV: np.divide,
    Op.MOD: np.fmod,
}
_NEEDS_DIVISOR = frozenset({Op.DIV, Op.INT_DIV, Op.MOD})


def binary(op: Op, type_: Type, left: Vector, right: Vector) -> Vector:
    """+ - * / div %, both operands of one kind."""
    valid = both(left.valid, right.valid)
    if op in _NEEDS_DIVISOR:
        zero = right.values == 0
        if zero.any():
            valid = both(valid, ~zero)
            right = Vector(right.type, np.where(zero, _one(right), right.values), right.valid)
    if left.type.kind is Kind.DOUBLE:
        return Vector(type_, _DOUBLE[op](left.values, right.values), valid)
    return fit(*_exact(op, type_, left, right), type_, valid)


def negate(type_: Type, operand: Vector) -> Vector:
    return _unary(np.negative, integers.negate, type_, operand)


def absolute(type_: Type, operand: Vector) -> Vector:
    return _unary(np.abs, integers.absolute, type_, operand)


def fit(values: Integers, scale: int, type_: Type, valid: Mask | None) -> Vector:
    """Unscaled values as a BIGINT or DECIMAL, NULL where they do not fit."""
    values = integers.rescale(values, scale, type_.scale)
    if type_.kind is Kind.BIGINT:
        fits = integers.in_int64(values)
    elif integers.bound(values) >= 10**type_.precision:
        fits = np.asarray(abs(values.astype(object)) < 10**type_.precision, np.bool_)
    else:
        return Vector(type_, values, valid)
    if fits.all():
        return Vector(type_, values, valid)
    return Vector(type_, integers.narrow(np.where(fits, values, 0)), both(valid, fits))


def _one(vector: Vector) -> Any:
    return vector.values.dtype.type(1) if vector.values.dtype != object else 1


def _exact(op: Op, type_: Type, left: Vector, right: Vector) -> tuple[Integers, int]:
    """The unscaled result and its scale."""
    scales = left.type.scale, right.type.scale
    if op is Op.MUL:
        return integers.multiply(left.values, right.values), sum(scales)
    if op is Op.DIV:
        up = type_.scale + scales[1] - scales[0]
        dividend = integers.rescale(left.values, 0, max(up, 0))
        divisor = integers.rescale(right.values, 0, max(-up, 0))
        return integers.divide_rounding(dividend, divisor), type_.scale
    scale = max(scales)
    a = integers.rescale(left.values, scales[0], scale)
    b = integers.rescale(right.values, scales[1], scale)
    match op:
        case Op.ADD:
            return integers.add(a, b), scale
        case Op.SUB:
            return integers.subtract(a, b), scale
        case Op.MOD:
            return integers.remainder(a, b), scale
    return integers.divide(a, b), 0


def _unary(
    double: Callable[[Any], Any],
    exact: Callable[[Integers], Integers],
    type_: Type,
    operand: Vector,
) -> Vector:
    if operand.type.kind is Kind.DOUBLE:
        values: Array = double(operand.values)
        return Vector(type_, values, operand.valid)
    return fit(exact(operand.values), operand.type.scale, type_, operand.valid)
