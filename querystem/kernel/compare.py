"""Comparison: exact between the numeric types, NaN equal to itself and greatest.

A comparison with a constant of any numeric type is a half-open interval of the operand's own
values: `x < c` are the values below the first one that is at least c. So the constant 0.1 cuts
BIGINT between 0 and 1, and 2^53 + 1 cuts DOUBLE above 2^53, without rounding anything.
"""

from __future__ import annotations

import enum
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datastem.arrays import Array, Mask
from datastem.instants import to_micros
from datastem.types import Kind, Type
from querystem.expressions import Literal, Op
from querystem.kernel import integers
from querystem.kernel.integers import INT64_MAX, INT64_MIN
from querystem.kernel.vector import Vector, boolean, both, repeatable

COMPARISONS = frozenset({Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE})

# Integers up to here, on either side of zero, are doubles themselves.
EXACT_DOUBLE = 2**53
# Further from zero than any unscaled value of DECIMAL(38, s) against any finite scale.
_INFINITE = np.array(10**80, object)

_PLAIN: dict[Op, Callable[[Any, Any], Any]] = {
    Op.EQ: operator.eq,
    Op.NE: operator.ne,
    Op.LT: operator.lt,
    Op.LE: operator.le,
    Op.GT: operator.gt,
    Op.GE: operator.ge,
}
_TEXT = {
    Op.EQ: pc.equal,
    Op.NE: pc.not_equal,
    Op.LT: pc.less,
    Op.LE: pc.less_equal,
    Op.GT: pc.greater,
    Op.GE: pc.greater_equal,
}
_MIRROR = {Op.LT: Op.GT, Op.LE: Op.GE, Op.GT: Op.LT, Op.GE: Op.LE}


def compare(op: Op, left: Vector, right: Vector) -> Vector:
    return boolean(_truth(op, left, right), both(left.valid, right.valid))


def is_distinct(left: Vector, right: Vector) -> Vector:
    differs = _truth(Op.NE, left, right)
    one = _valid(left) != _valid(right)
    neither = ~_valid(left) & ~_valid(right)
    return boolean((differs | one) & ~neither)


def _valid(vector: Vector) -> Mask:
    return np.ones(1, np.bool_) if vector.valid is None else vector.valid


def _truth(op: Op, left: Vector, right: Vector) -> Mask:
    kinds = {left.type.kind, right.type.kind}
    if Kind.TEXT in kinds:
        return _text(op, left.values, right.values)
    if kinds == {Kind.DOUBLE}:
        return _doubles(op, left.values, right.values)
    if right.type.kind is Kind.DOUBLE:
        return _with_double(op, left, right.values)
    if left.type.kind is Kind.DOUBLE:
        return _with_double(_MIRROR.get(op, op), right, left.values)
    if Kind.DECIMAL in kinds:
        return _plain(op, *_aligned(left, right))
    return _plain(op, left.values, right.values)


def _plain(op: Op, left: Array, right: Array) -> Mask:
    truth: Mask = _PLAIN[op](left, right)
    return truth.astype(np.bool_, copy=False)


def _aligned(left: Vector, right: Vector) -> tuple[Array, Array]:
    scale = max(left.type.scale, right.type.scale)
    return (
        integers.rescale(left.values, left.type.scale, scale),
        integers.rescale(right.values, right.type.scale, scale),
    )


def _doubles(op: Op, left: Array, right: Array) -> Mask:
    """Compare in the order where NaN is one value, the greatest."""
    match op:
        case Op.EQ:
            return np.asarray((left == right) | (np.isnan(left) & np.isnan(right)))
        case Op.NE:
            return ~_doubles(Op.EQ, left, right)
        case Op.LT:
            return np.asarray((left < right) | (np.isnan(right) & ~np.isnan(left)))
        case Op.GT:
            return _doubles(Op.LT, right, left)
        case Op.LE:
            return ~_doubles(Op.LT, right, left)
    return ~_doubles(Op.LT, left, right)


def _with_double(op: Op, left: Vector, right: Array) -> Mask:
    if not left.type.scale and integers.bound(left.values) <= EXACT_DOUBLE:
        return _doubles(op, left.values.astype(np.float64), right)
    whole, has_rest = scaled(right, left.type.scale)
    equal = _plain(Op.EQ, left.values, whole) & ~has_rest
    greater = _plain(Op.GT, left.values, whole)
    match op:
        case Op.EQ:
            return equal
        case Op.NE:
            return ~equal
        case Op.GT:
            return greater
        case Op.LE:
            return ~greater
        case Op.GE:
            return greater | equal
    return ~(greater | equal)


def scaled(doubles: Array, scale: int) -> tuple[Array, Mask]:
    """floor(d * 10^scale) exactly, and whether that cut anything off; NaN counts as infinity."""
    finite = np.isfinite(doubles)
    mantissa, exponent = np.frexp(np.where(finite, doubles, 0.0))
    significand = (mantissa * 2.0**53).astype(np.int64).astype(object) * 10**scale
    shift = exponent.astype(np.int64) - 53
    left = np.maximum(shift, 0).astype(object)
    right = np.maximum(-shift, 0).astype(object)
    whole = (significand << left) >> right
    has_rest = (whole << right) != (significand << left)
    whole[~finite] = np.where(doubles[~finite] < 0, -_INFINITE, _INFINITE)
    return integers.narrow(whole), has_rest.astype(np.bool_) & finite


def _text(op: Op, left: pa.Array, right: pa.Array) -> Mask:
    if len(left) != len(right):
        left, right = repeatable(left), repeatable(right)
    truth: Mask = _TEXT[op](left, right).fill_null(False).to_numpy(zero_copy_only=False)
    return truth


# ---- constants

EPOCH_DAY = 719_163  # date(1970, 1, 1).toordinal()


class Edge(enum.Enum):
    """The cuts before the first value and after the last one."""

    START = "start"
    END = "end"


START, END = Edge.START, Edge.END


@dataclass(frozen=True, slots=True)
class Cuts:
    """How a constant cuts a type: `at_least` is the first value >= it, `above` the first > it."""

    at_least: Any
    above: Any

    @property
    def is_value(self) -> bool:
        """Whether the constant is one of the type's values: then `at_least` is that value."""
        return not isinstance(self.at_least, Edge) and self.at_least != self.above


def interval(op: Op, cuts: Cuts) -> tuple[Any, Any]:
    """Return the half-open interval of the values for which `value op constant` is true.

    `op` is one of = < <= > >=.
    """
    match op:
        case Op.EQ:
            return cuts.at_least, cuts.above
        case Op.LT:
            return START, cuts.at_least
        case Op.LE:
            return START, cuts.above
        case Op.GT:
            return cuts.above, END
        case Op.GE:
            return cuts.at_least, END
    raise ValueError(f"{op.value} has no interval")


def cuts_of(constant: Literal, type_: Type) -> Cuts:
    """Return the cuts of a constant, which is not NULL, in a type it may be compared with.

    They have the form of a vector's values: microseconds, days, unscaled integers.
    """
    value: Any = constant.value
    match type_.kind:
        case Kind.BIGINT | Kind.DURATION:
            return _bounded(_integer_cuts(value), INT64_MIN, INT64_MAX)
        case Kind.DECIMAL:
            most = 10**type_.precision - 1
            return _bounded(_integer_cuts(value, 10**type_.scale), -most, most)
        case Kind.DOUBLE:
            return _double_cuts(value)
        case Kind.TIMESTAMP:
            return _integer_cuts(to_micros(value))
        case Kind.DATE:
            return _integer_cuts(value.toordinal() - EPOCH_DAY)
        case Kind.TEXT:
            return Cuts(value, f"{value}\0")
        case Kind.BOOLEAN:
            return Cuts(True, END) if value else Cuts(False, True)


def _integer_cuts(value: Any, scale: int = 1) -> Cuts:
    if isinstance(value, int):
        return Cuts(value * scale, value * scale + 1)
    if isinstance(value, float) and not math.isfinite(value):
        return Cuts(START, START) if value < 0 else Cuts(END, END)
    scaled = Fraction(value) * scale
    return Cuts(math.ceil(scaled), math.floor(scaled) + 1)


def _bounded(cuts: Cuts, least: int, most: int) -> Cuts:
    return Cuts(_within(cuts.at_least, least, most), _within(cuts.above, least, most))


def _within(cut: Any, least: int, most: int) -> Any:
    if isinstance(cut, Edge):
        return cut
    if cut > most:
        return END
    return START if cut < least else cut


def _double_cuts(value: Any) -> Cuts:
    if value != value:
        return Cuts(math.nan, END)
    if isinstance(value, float):
        return Cuts(value, _next_double(value))
    exact = Fraction(value)
    nearest = float(exact)
    if exact == nearest:
        return Cuts(nearest, _next_double(nearest))
    first = nearest if exact < nearest else _next_double(nearest)
    return Cuts(first, first)


def _next_double(value: float) -> float:
    """Return the double after `value`; NaN comes after infinity."""
    return math.nan if value == math.inf else math.nextafter(value, math.inf)
