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

# Every integer of at most this magnitude is a double.
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


def compare(op: Op, lhs: Vector, rhs: Vector) -> Vector:
    return boolean(_truth(op, lhs, rhs), both(lhs.valid, rhs.valid))


def is_distinct(lhs: Vector, rhs: Vector) -> Vector:
    # Values under a NULL are arbitrary, so `differs` counts only if both sides are valid.
    differs = _truth(Op.NE, lhs, rhs)
    one_null = _valid(lhs) != _valid(rhs)
    both_null = ~_valid(lhs) & ~_valid(rhs)
    return boolean((differs | one_null) & ~both_null)


def _valid(vector: Vector) -> Mask:
    return np.ones(1, np.bool_) if vector.valid is None else vector.valid


def _truth(op: Op, lhs: Vector, rhs: Vector) -> Mask:
    kinds = {lhs.type.kind, rhs.type.kind}
    if Kind.TEXT in kinds:
        return _text(op, lhs.values, rhs.values)
    if kinds == {Kind.DOUBLE}:
        return _doubles(op, lhs.values, rhs.values)
    if rhs.type.kind is Kind.DOUBLE:
        return _with_double(op, lhs, rhs.values)
    if lhs.type.kind is Kind.DOUBLE:
        return _with_double(_MIRROR.get(op, op), rhs, lhs.values)
    if Kind.DECIMAL in kinds:
        return _plain(op, *_aligned(lhs, rhs))
    return _plain(op, lhs.values, rhs.values)


def _plain(op: Op, lhs: Array, rhs: Array) -> Mask:
    truth: Mask = _PLAIN[op](lhs, rhs)
    return truth.astype(np.bool_, copy=False)


def _aligned(lhs: Vector, rhs: Vector) -> tuple[Array, Array]:
    scale = max(lhs.type.scale, rhs.type.scale)
    return (
        integers.rescale(lhs.values, lhs.type.scale, scale),
        integers.rescale(rhs.values, rhs.type.scale, scale),
    )


def _doubles(op: Op, lhs: Array, rhs: Array) -> Mask:
    """Compare doubles; NaN is one value, the greatest."""
    match op:
        case Op.EQ:
            return np.asarray((lhs == rhs) | (np.isnan(lhs) & np.isnan(rhs)))
        case Op.NE:
            return ~_doubles(Op.EQ, lhs, rhs)
        case Op.LT:
            return np.asarray((lhs < rhs) | (np.isnan(rhs) & ~np.isnan(lhs)))
        case Op.GT:
            return _doubles(Op.LT, rhs, lhs)
        case Op.LE:
            return ~_doubles(Op.LT, rhs, lhs)
    return ~_doubles(Op.LT, lhs, rhs)


def _with_double(op: Op, lhs: Vector, rhs: Array) -> Mask:
    # These integers are exact as doubles. Others are compared with the floor of the double at their
    # scale, in integers.
    if not lhs.type.scale and integers.bound(lhs.values) <= EXACT_DOUBLE:
        return _doubles(op, lhs.values.astype(np.float64), rhs)
    whole, has_fraction = scaled(rhs, lhs.type.scale)
    equal = _plain(Op.EQ, lhs.values, whole) & ~has_fraction
    greater = _plain(Op.GT, lhs.values, whole)
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
    """Return floor(d * 10^scale) of each double exactly, and whether that cut digits off. NaN
    counts as infinity."""
    # A finite double is significand * 2^shift with 53 bits. Python integers hold it times 10^scale
    # without loss.
    finite = np.isfinite(doubles)
    mantissa, exponent = np.frexp(np.where(finite, doubles, 0.0))
    significand = (mantissa * 2.0**53).astype(np.int64).astype(object) * 10**scale
    shift = exponent.astype(np.int64) - 53
    up = np.maximum(shift, 0).astype(object)
    down = np.maximum(-shift, 0).astype(object)
    whole = (significand << up) >> down
    has_fraction = (whole << down) != (significand << up)
    whole[~finite] = np.where(doubles[~finite] < 0, -_INFINITE, _INFINITE)
    return integers.narrow(whole), has_fraction.astype(np.bool_) & finite


def _text(op: Op, lhs: pa.Array, rhs: pa.Array) -> Mask:
    if len(lhs) != len(rhs):
        lhs, rhs = repeatable(lhs), repeatable(rhs)
    truth: Mask = _TEXT[op](lhs, rhs).fill_null(False).to_numpy(zero_copy_only=False)
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
            # The least text above a text is that text with a zero byte appended.
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
    # The constant lies between two doubles, so the first value >= it is also the first > it.
    first = nearest if exact < nearest else _next_double(nearest)
    return Cuts(first, first)


def _next_double(value: float) -> float:
    """Return the double after `value`; NaN comes after infinity."""
    return math.nan if value == math.inf else math.nextafter(value, math.inf)
