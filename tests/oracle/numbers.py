"""Numbers, one at a time: fractions are exact, doubles are Python's."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

from datastem.types import Kind, Type
from querystem.expressions import Op, Scalar

OPERATIONS = (
    Op.ADD,
    Op.SUB,
    Op.MUL,
    Op.DIV,
    Op.INT_DIV,
    Op.MOD,
    Op.NEG,
    Op.ABS,
    Op.ROUND,
    Op.FLOOR,
    Op.CEIL,
)


def order(lhs: Any, rhs: Any) -> int:
    """Negative, zero or positive, of any two values that may be compared."""
    a, b = _place(lhs), _place(rhs)
    return int(a > b) - int(a < b)


def _place(value: Any) -> Any:
    """Number as (class, exact value): finite ones between the infinities, NaN last."""
    if isinstance(value, float) and not math.isfinite(value):
        return (0 if value < 0 else 2 if value > 0 else 3), Fraction(0)
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return 1, Fraction(value)
    return value


def calculate(op: Op, values: list[Any], type_: Type) -> Scalar:
    if op in (Op.DIV, Op.INT_DIV, Op.MOD) and values[1] == 0:
        return None
    if isinstance(values[0], float):
        return _double(op, *values)
    return from_fraction(_exact(op, type_, *values), type_)


def from_fraction(value: Fraction, type_: Type) -> Scalar:
    """Return a BIGINT or DECIMAL, halves away from zero; NULL if it does not fit."""
    unscaled = half_away(value * 10**type_.scale)
    if type_.kind is Kind.BIGINT:
        return unscaled if -(2**63) <= unscaled < 2**63 else None
    if abs(unscaled) >= 10**type_.precision:
        return None
    return Decimal(f"{unscaled}e-{type_.scale}")


def half_away(value: Fraction) -> int:
    magnitude = math.floor(abs(value) + Fraction(1, 2))
    return -magnitude if value < 0 else magnitude


def written(value: float) -> Fraction:
    """Return a finite double as it is written."""
    return Fraction(Decimal(repr(value)))


def as_double(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _exact(op: Op, type_: Type, lhs: Any, rhs: Any = 0) -> Fraction:
    a, b = Fraction(lhs), Fraction(rhs)
    match op:
        case Op.ADD:
            return a + b
        case Op.SUB:
            return a - b
        case Op.MUL:
            return a * b
        case Op.DIV:
            return a / b
        case Op.INT_DIV:
            return Fraction(math.trunc(a / b))
        case Op.MOD:
            return a - b * math.trunc(a / b)
        case Op.NEG:
            return -a
        case Op.ABS:
            return abs(a)
        case Op.FLOOR:
            return Fraction(math.floor(a))
        case Op.CEIL:
            return Fraction(math.ceil(a))
    return _rounded(a, rhs)


def _rounded(value: Fraction, digits: int) -> Fraction:
    if digits > 1000:
        return value
    if digits < -1000:
        return Fraction(0)
    step = Fraction(10) ** -digits
    return half_away(value / step) * step


def _double(op: Op, lhs: float, rhs: float = 0) -> float:
    match op:
        case Op.ADD:
            return lhs + rhs
        case Op.SUB:
            return lhs - rhs
        case Op.MUL:
            return lhs * rhs
        case Op.DIV:
            return lhs / rhs
        case Op.MOD:
            return math.nan if math.isinf(lhs) else math.fmod(lhs, rhs)
        case Op.NEG:
            return -lhs
        case Op.ABS:
            return abs(lhs)
    if not math.isfinite(lhs):
        return lhs
    if op is Op.ROUND:
        return as_double(_rounded(written(lhs), int(rhs)))
    return float(math.floor(lhs) if op is Op.FLOOR else math.ceil(lhs))


def sign(value: Any) -> int:
    return 0 if value != value else int(value > 0) - int(value < 0)


def root(value: float) -> float | None:
    return None if value < 0 else math.sqrt(value)


def exponential(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def logarithm(function: Any, value: float) -> float | None:
    return None if value <= 0 else float(function(value))


def power(base: float, exponent: float) -> float | None:
    """Return base ^ exponent as C has it; Python raises for infinite results."""
    if base == 0 and exponent < 0:
        return None
    is_whole = not math.isfinite(exponent) or exponent == math.trunc(exponent)
    if base < 0 and not is_whole and math.isfinite(base):
        return None
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if base < 0 and exponent % 2 == 1 else math.inf
