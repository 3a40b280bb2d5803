"""Numbers: exact for BIGINT and DECIMAL, IEEE for DOUBLE; a result that can't be computed is NULL.

A DOUBLE is rounded as it is written: 2.675 is a half although its nearest double lies below.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from datastem.arrays import Array, Integers, Mask
from datastem.instants import MAX_INSTANT, MIN_INSTANT
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
_INT64 = frozenset({Kind.BIGINT, Kind.DURATION})
_INT64_END = 2.0**63
_NEEDS_DIVISOR = frozenset({Op.DIV, Op.INT_DIV, Op.MOD})
# No number of the language has a digit further out than this on either side of the point.
_MAX_DIGITS = 400
# Powers of ten up to this exponent are doubles.
_EXACT_POWER = 22
_EXACT_INTEGER = 2.0**52


def binary(op: Op, type_: Type, lhs: Vector, rhs: Vector) -> Vector:
    """Compute + - * / div %; both operands have one kind, or are times."""
    valid = both(lhs.valid, rhs.valid)
    if op in _NEEDS_DIVISOR:
        # A zero divisor makes the row NULL. It is replaced by 1, because Python integers would
        # raise.
        zero = rhs.values == 0
        if zero.any():
            valid = both(valid, ~zero)
            rhs = Vector(rhs.type, np.where(zero, _one_like(rhs), rhs.values), rhs.valid)
    if lhs.type.kind is Kind.DOUBLE:
        return Vector(type_, _DOUBLE[op](lhs.values, rhs.values), valid)
    # A DOUBLE beside another kind is the factor of a duration; no other operation mixes them.
    if rhs.type.kind is Kind.DOUBLE:
        return to_integers(lhs.values.astype(np.float64) * rhs.values, type_, valid)
    return fit(*_exact(op, type_, lhs, rhs), type_, valid)


def negate(type_: Type, operand: Vector) -> Vector:
    return _unary(np.negative, integers.negate, type_, operand)


def absolute(type_: Type, operand: Vector) -> Vector:
    return _unary(np.abs, integers.absolute, type_, operand)


def fit(values: Integers, scale: int, type_: Type, valid: Mask | None) -> Vector:
    """Return unscaled values as a BIGINT, a DECIMAL or a time; values that do not fit are NULL."""
    values = integers.rescale(values, scale, type_.scale)
    if type_.kind in _INT64:
        fits = integers.in_int64(values)
    elif type_.kind is Kind.TIMESTAMP:
        fits = np.asarray((values >= MIN_INSTANT) & (values <= MAX_INSTANT), np.bool_)
    elif integers.bound(values) >= 10**type_.precision:
        # 10^precision may be past int64, so the comparison is made with Python integers.
        fits = np.asarray(abs(values.astype(object)) < 10**type_.precision, np.bool_)
    else:
        return Vector(type_, values, valid)
    if fits.all():
        return Vector(type_, values, valid)
    # Zeros in place of values that do not fit let the array be int64 again.
    return Vector(type_, integers.narrow(np.where(fits, values, 0)), both(valid, fits))


def to_integers(doubles: Array, type_: Type, valid: Mask | None) -> Vector:
    """Return doubles as int64, halves away from zero; values that do not fit are NULL."""
    near = np.trunc(doubles)
    # A double less its whole part is exact, unlike a double plus one half.
    near += np.where(np.abs(doubles - near) >= 0.5, np.copysign(1.0, doubles), 0.0)
    fits = (near >= -_INT64_END) & (near < _INT64_END)
    return Vector(type_, np.where(fits, near, 0.0).astype(np.int64), both(valid, fits))


def _one_like(vector: Vector) -> Any:
    return vector.values.dtype.type(1) if vector.values.dtype != object else 1


def _exact(op: Op, type_: Type, lhs: Vector, rhs: Vector) -> tuple[Integers, int]:
    """Return the unscaled result and its scale."""
    scales = lhs.type.scale, rhs.type.scale
    if op is Op.MUL:
        return integers.multiply(lhs.values, rhs.values), sum(scales)
    if op is Op.DIV:
        # The quotient of unscaled values has scale scales[0] - scales[1]. Multiplying one of them
        # brings it to the result's scale before it is rounded.
        up = type_.scale + scales[1] - scales[0]
        dividend = integers.rescale(lhs.values, 0, max(up, 0))
        divisor = integers.rescale(rhs.values, 0, max(-up, 0))
        return integers.divide_rounding(dividend, divisor), type_.scale
    scale = max(scales)
    a = integers.rescale(lhs.values, scales[0], scale)
    b = integers.rescale(rhs.values, scales[1], scale)
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


# ---- ROUND, FLOOR, CEIL, and DOUBLE at a number of decimal digits


def round_to(type_: Type, operand: Vector, digits: int) -> Vector:
    """Round halves away from zero; negative digits round before the point."""
    # Beyond these digits the result stays the same, and a power of ten could become huge.
    digits = max(-_MAX_DIGITS, min(_MAX_DIGITS, digits))
    if operand.type.kind is Kind.DOUBLE:
        return Vector(type_, _round_doubles(operand.values, digits), operand.valid)
    scale = operand.type.scale
    if digits >= scale:
        return fit(operand.values, scale, type_, operand.valid)
    rounded = integers.rescale(operand.values, scale, digits)
    whole = integers.multiply(rounded, integers.constant(10 ** (scale - digits)))
    return fit(whole, scale, type_, operand.valid)


def floor(type_: Type, operand: Vector) -> Vector:
    if operand.type.kind is Kind.DOUBLE:
        return Vector(type_, np.floor(operand.values), operand.valid)
    unit = integers.constant(10**operand.type.scale)
    return fit(integers.divide_down(operand.values, unit), 0, type_, operand.valid)


def ceil(type_: Type, operand: Vector) -> Vector:
    if operand.type.kind is Kind.DOUBLE:
        return Vector(type_, np.ceil(operand.values), operand.valid)
    unit = integers.constant(10**operand.type.scale)
    down = integers.divide_down(integers.negate(operand.values), unit)
    return fit(integers.negate(down), 0, type_, operand.valid)


def unscaled(doubles: Array, digits: int) -> Integers:
    """Return finite doubles times 10^digits, as written, rounded to integers, halves away from
    zero.

    They are computed in floating point, except next to a half or if that isn't exact: those values
    go through their decimal form.
    """
    if abs(digits) > _EXACT_POWER:
        return _through_decimal(doubles, digits)
    magnitude = np.abs(doubles)
    scaled = magnitude * 10.0**digits if digits >= 0 else magnitude / 10.0**-digits
    # `scaled` has a small relative error. Within it of a half, the rounding is decided by the
    # digits as written. From 2^52 on, doubles have no halves.
    unsure = np.abs(scaled - np.floor(scaled) - 0.5) <= scaled * 2.0**-48
    unsure |= scaled >= _EXACT_INTEGER
    near = np.where(unsure, 0.0, np.floor(scaled + 0.5))
    signed = np.where(doubles < 0, -near, near).astype(np.int64)
    if not unsure.any():
        return signed
    result = signed.astype(object)
    result[unsure] = _through_decimal(doubles[unsure], digits)
    return integers.narrow(result)


def _through_decimal(doubles: Array, digits: int) -> Integers:
    # Writing a double is slow, so each distinct one is written once.
    written, places = np.unique(doubles, return_inverse=True)
    exact = np.array([_as_written(value, digits) for value in written.tolist()], object)
    return integers.narrow(exact[places])


def _as_written(value: float, digits: int) -> int:
    scaled = decimal.Decimal(repr(value)).scaleb(digits)
    return int(scaled.to_integral_value(decimal.ROUND_HALF_UP))


def _round_doubles(doubles: Array, digits: int) -> Array:
    # A double of 2^52 or more is whole: it is kept as it is, and so are NaN and infinities.
    keep = ~np.isfinite(doubles) | (digits > 0) & (np.abs(doubles) >= _EXACT_INTEGER)
    whole = unscaled(np.where(keep, 0.0, doubles), digits)
    if digits < 0:
        rounded = to_double(integers.multiply(whole, integers.constant(10**-digits)), 0)
    else:
        rounded = to_double(whole, digits)
    return np.where(keep, doubles, rounded)


def to_double(values: Integers, scale: int) -> Array:
    """Return values / 10^scale, correctly rounded; infinite if no double is great enough."""
    return quotients(values, 10**scale)


def quotients(values: Integers, unit: int) -> Array:
    """Return values / unit, correctly rounded; infinite if no double is great enough."""
    # Dividend and divisor are exact as doubles here, so IEEE division rounds once.
    if unit <= 10**_EXACT_POWER and integers.bound(values) <= 2**53:
        return values.astype(np.float64) / float(unit)
    return np.array([_quotient(value, unit) for value in values.tolist()], np.float64)


def _quotient(value: int, unit: int) -> float:
    try:
        return value / unit
    except OverflowError:
        return math.inf if value > 0 else -math.inf
