"""A column of numbers, and of their squares, as exact terms.

BIGINT and DECIMAL count in their own unit (10^-scale). DOUBLE counts in 2^-1074, which every
finite double is a multiple of, and its squares in 2^-2148.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s, UInt64s
from datastem.types import Kind, Type
from querystem.aggregate.limbs import BITS, MASK, Terms

DOUBLE_UNIT = -1074


_MASK = np.uint64(MASK)
_BITS = np.uint64(BITS)
_FRACTION = np.uint64((1 << 52) - 1)


def terms(array: pa.Array, type_: Type) -> Terms:
    """The array has no NULL, no NaN and no infinity."""
    match type_.kind:
        case Kind.DOUBLE:
            return _doubles(array)
        case Kind.DECIMAL:
            low, high = _limbs(array)
            columns = [low & MASK, (low >> BITS) & MASK, high & MASK, high >> BITS]
        case _:
            values = array.to_numpy()
            columns = [values & MASK, values >> BITS]
    return Terms(np.zeros(len(array), np.int64), columns)


def small_total(array: pa.Array, type_: Type) -> int | None:
    """The sum of a few numbers in their unit, where Python adds them up exactly; else None."""
    if type_.kind is Kind.BIGINT:
        numbers: list[int] = array.to_numpy().tolist()
        return sum(numbers)
    return _double_total(array.to_numpy().tolist()) if type_.kind is Kind.DOUBLE else None


def _double_total(values: list[float]) -> int | None:
    """None where one is not finite, or a part of the sum is past the greatest double."""
    total = 0
    try:
        # `fsum` rounds the exact sum once; what that left over is the exact sum of one more.
        while rounded := math.fsum(values):
            numerator, denominator = rounded.as_integer_ratio()
            total += numerator << (-DOUBLE_UNIT - denominator.bit_length() + 1)
            values.append(-rounded)
    except (OverflowError, ValueError):
        return None
    return total


def squares(array: pa.Array, type_: Type) -> Terms:
    match type_.kind:
        case Kind.DOUBLE:
            return _double_squares(array)
        case Kind.DECIMAL:
            low, high = (limb.view(np.uint64) for limb in _limbs(array))
            negative = high >> np.uint64(63) == 1
            borrow = (low == 0).astype(np.uint64)
            low, high = np.where(negative, -low, low), np.where(negative, ~high + borrow, high)
            digits = [low & _MASK, low >> _BITS, high & _MASK, high >> _BITS]
        case _:
            whole = np.abs(array.to_numpy()).view(np.uint64)
            digits = [whole & _MASK, whole >> _BITS]
    return Terms(np.zeros(len(array), np.int64), _squared(digits))


def _limbs(array: pa.Array) -> tuple[Int64s, Int64s]:
    if not len(array):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    pairs = np.frombuffer(array.buffers()[1], np.int64).reshape(-1, 2)
    pairs = pairs[array.offset : array.offset + len(array)]
    return pairs[:, 0].copy(), pairs[:, 1].copy()


def _parts(array: pa.Array) -> tuple[UInt64s, UInt64s, Any]:
    """Mantissa, its place above the unit, and the sign: x = sign * mantissa * 2^(place - 1074)."""
    bits = array.to_numpy().view(np.uint64)
    exponent = (bits >> np.uint64(52)) & np.uint64(0x7FF)
    mantissa = (bits & _FRACTION) | (np.minimum(exponent, np.uint64(1)) << np.uint64(52))
    place = np.maximum(exponent, np.uint64(1)) - np.uint64(1)
    is_zero = mantissa == 0
    if is_zero.any():
        # A zero must not widen the sum down to the smallest bin.
        place[is_zero] = 0 if is_zero.all() else place[~is_zero].min()
    return mantissa, place, np.where(bits >> np.uint64(63), -1, 1)


def _doubles(array: pa.Array) -> Terms:
    mantissa, place, sign = _parts(array)
    shift = place & np.uint64(31)
    low, high = (mantissa & _MASK) << shift, (mantissa >> _BITS) << shift
    digits = [low & _MASK, (low >> _BITS) + (high & _MASK), high >> _BITS]
    columns = [digit.view(np.int64) * sign for digit in digits]
    return Terms((place >> np.uint64(5)).astype(np.int64), columns)


def _double_squares(array: pa.Array) -> Terms:
    """With the place even out to 16 bits, so that the square's is to 32."""
    mantissa, place, _ = _parts(array)
    shift = place & np.uint64(15)
    low = (mantissa & _MASK) << shift
    rest = (low >> _BITS) + ((mantissa >> _BITS) << shift)
    digits = [low & _MASK, rest & _MASK, rest >> _BITS]
    return Terms((place >> np.uint64(4)).astype(np.int64), _squared(digits))


def _squared(digits: list[UInt64s]) -> list[Int64s]:
    columns = [np.zeros(len(digits[0]), np.uint64) for _ in range(2 * len(digits))]
    for left, one in enumerate(digits):
        for right in range(left, len(digits)):
            product = one * digits[right]
            times = np.uint64(1 if left == right else 2)
            columns[left + right] += (product & _MASK) * times
            columns[left + right + 1] += (product >> _BITS) * times
    return [column.view(np.int64) for column in columns]
