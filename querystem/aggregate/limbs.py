"""Exact sums, one for each group: integers of any size in columns of 32 bits.

Adding is associative and loses nothing, so a sum does not depend on how its rows were batched.
BIGINT and DECIMAL count in their own unit (10^-scale). DOUBLE counts in 2^-1074, which every finite
double is a multiple of, and its squares in 2^-2148.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s, UInt64s
from datastem.types import Kind, Type

BITS = 32
MASK = (1 << BITS) - 1
DOUBLE_UNIT = -1074
_LOW, _DIGIT = np.uint64(MASK), np.uint64(BITS)
_FRACTION = np.uint64((1 << 52) - 1)


# This many numbers can be added as doubles without rounding: see `Terms`.
MOST_TERMS = 1 << 16


@dataclass(frozen=True, slots=True)
class Terms:
    """A number for each row: row r is the sum of `columns[j][r] * 2^(32 * (bins[r] + j))`.

    Columns hold integers of magnitude below 2^37: MOST_TERMS of them add up exactly in a double.
    """

    bins: Int64s
    columns: Sequence[Int64s]


@dataclass(frozen=True, slots=True)
class Limbs:
    """A sum for each group: group g is the sum of `digits[g, j] * 2^(32 * (offset + j))`.

    Digits are in `[0, 2^32)`, but for the last, which has the sign and is in `[-2^32, 2^32)`.
    """

    offset: int
    digits: Int64s

    @classmethod
    def of(cls, terms: Terms, codes: Int64s, groups: int) -> Limbs:
        if not len(codes):
            return cls(0, np.zeros((groups, 1), np.int64))
        # `total` is a flat matrix of groups × width: digit j of group g is total[g * width + j].
        # Column `step` of a term belongs `step` digits above its bin.
        low = int(terms.bins.min())
        width = int(terms.bins.max()) - low + len(terms.columns)
        places = codes * width + (terms.bins - low)
        total = np.zeros(groups * width)
        for step, column in enumerate(terms.columns):
            total += np.bincount(places + step, weights=column, minlength=len(total))
        return cls(low, carried(total.astype(np.int64).reshape(groups, width)))

    @classmethod
    def of_integer(cls, total: int) -> Limbs:
        """Return the limbs of a single group, whose sum is `total`."""
        # Digits that are zero at the low end are left out, and counted in the offset.
        offset = ((total & -total).bit_length() - 1) // BITS if total else 0
        remainder, digits = total >> (BITS * offset), []
        while not -(1 << BITS) <= remainder < 1 << BITS:
            digits.append(remainder & MASK)
            remainder >>= BITS
        return cls(offset, np.array([[*digits, remainder]], np.int64))

    @classmethod
    def merge(cls, parts: Sequence[Limbs], codes: Int64s, groups: int) -> Limbs:
        """Return the sums of all parts; `codes` has the new group of each group of each part."""
        low = min(part.offset for part in parts)
        width = max(part.offset + part.digits.shape[1] for part in parts) - low
        # One row for each group of each part, its digits shifted to the common offset.
        every = np.zeros((len(codes), width), np.int64)
        row = 0
        for part in parts:
            count, size = part.digits.shape
            start = part.offset - low
            every[row : row + count, start : start + size] = part.digits
            row += count
        # Digits are below 2^32 in magnitude, so 2^21 of them add up exactly in doubles.
        added = [np.bincount(codes, weights=column, minlength=groups) for column in every.T]
        return cls(low, carried(np.stack(added, axis=1).astype(np.int64)))

    @property
    def nbytes(self) -> int:
        return int(self.digits.nbytes)


def carried(digits: Int64s) -> Int64s:
    """Return the numbers of `digits` with digits as `Limbs` has them, in as few columns as can be.

    Changes its argument.
    """
    for place in range(digits.shape[1] - 1):
        _carry(digits, place)
    # This is 0 only if the last digit is in `[-2^32, 2^32)`, as it has to be.
    if ((digits[:, -1] >> BITS) + 1 >> 1).any():
        digits = np.concatenate([digits, np.zeros((len(digits), 1), np.int64)], axis=1)
        _carry(digits, digits.shape[1] - 2)
    # A last column of 0 and −1 only is the sign of the one below, which can hold it itself.
    while digits.shape[1] > 1 and not ((digits[:, -1] + 1) >> 1).any():
        digits[:, -2] += digits[:, -1] << BITS
        digits = digits[:, :-1]
    return np.ascontiguousarray(digits)


def magnitude(digits: Int64s) -> tuple[Int64s, Any]:
    """Return the absolute values, all digits in `[0, 2^32)`, and a mask of those that were
    negative."""
    negative = digits[:, -1] < 0
    return carried(np.where(negative[:, None], -digits, digits)), negative


def _carry(digits: Int64s, place: int) -> None:
    # The shift rounds down, so the digit that stays is not negative, and the carry has the sign.
    over = digits[:, place] >> BITS
    digits[:, place] &= MASK
    digits[:, place + 1] += over


# ---- columns of numbers as terms


def terms(array: pa.Array, type_: Type) -> Terms:
    """Return the values of an array without NULL, NaN and infinity."""
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
    """Return the sum of a few numbers in their unit, if Python adds them exactly; else None."""
    if type_.kind is Kind.BIGINT:
        numbers: list[int] = array.to_numpy().tolist()
        return sum(numbers)
    return _double_total(array.to_numpy().tolist()) if type_.kind is Kind.DOUBLE else None


def _double_total(values: list[float]) -> int | None:
    """Return the exact sum; None if a value is not finite, or a part of the sum overflows."""
    total = 0
    try:
        # `fsum` rounds the exact sum once. With its negative appended, the next round gives what
        # the rounding lost, until nothing is lost.
        while rounded := math.fsum(values):
            numerator, denominator = rounded.as_integer_ratio()
            total += numerator << (-DOUBLE_UNIT - denominator.bit_length() + 1)
            values.append(-rounded)
    except (OverflowError, ValueError):
        return None
    return total


def squares(array: pa.Array, type_: Type) -> Terms:
    """Return the squares of the values that `terms` takes."""
    match type_.kind:
        case Kind.DOUBLE:
            return _double_squares(array)
        case Kind.DECIMAL:
            low, high = (limb.view(np.uint64) for limb in _limbs(array))
            # Two's complement of 128 bits: both halves are inverted and 1 is added. That carries
            # into the high half only if the low one is 0.
            negative = high >> np.uint64(63) == 1
            borrow = (low == 0).astype(np.uint64)
            low, high = np.where(negative, -low, low), np.where(negative, ~high + borrow, high)
            digits = [low & _LOW, low >> _DIGIT, high & _LOW, high >> _DIGIT]
        case _:
            # The magnitude of the least int64 overflows to itself, whose bits as uint64 are right.
            whole = np.abs(array.to_numpy()).view(np.uint64)
            digits = [whole & _LOW, whole >> _DIGIT]
    return Terms(np.zeros(len(array), np.int64), _squared(digits))


def _limbs(array: pa.Array) -> tuple[Int64s, Int64s]:
    if not len(array):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    pairs = np.frombuffer(array.buffers()[1], np.int64).reshape(-1, 2)
    pairs = pairs[array.offset : array.offset + len(array)]
    return pairs[:, 0].copy(), pairs[:, 1].copy()


def _parts(array: pa.Array) -> tuple[UInt64s, UInt64s, Any]:
    """Return the parts of each double x = sign * mantissa * 2^(place - 1074): mantissa, place,
    sign."""
    bits = array.to_numpy().view(np.uint64)
    # Subnormal doubles have exponent 0 and no hidden bit, but the place of exponent 1.
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
    # Bin and shift are the quotient and the remainder of the place by 32.
    shift = place & np.uint64(31)
    low, high = (mantissa & _LOW) << shift, (mantissa >> _DIGIT) << shift
    digits = [low & _LOW, (low >> _DIGIT) + (high & _LOW), high >> _DIGIT]
    columns = [digit.view(np.int64) * sign for digit in digits]
    return Terms((place >> np.uint64(5)).astype(np.int64), columns)


def _double_squares(array: pa.Array) -> Terms:
    """Return the squares of doubles. Their places are multiples of 16, so that those of the squares
    are multiples of 32."""
    mantissa, place, _ = _parts(array)
    shift = place & np.uint64(15)
    low = (mantissa & _LOW) << shift
    upper = (low >> _DIGIT) + ((mantissa >> _DIGIT) << shift)
    digits = [low & _LOW, upper & _LOW, upper >> _DIGIT]
    return Terms((place >> np.uint64(4)).astype(np.int64), _squared(digits))


def _squared(digits: list[UInt64s]) -> list[Int64s]:
    columns = [np.zeros(len(digits[0]), np.uint64) for _ in range(2 * len(digits))]
    # Products of digits i and j count twice unless i = j; each is cut into two columns.
    for i, digit in enumerate(digits):
        for j in range(i, len(digits)):
            product = digit * digits[j]
            times = np.uint64(1 if i == j else 2)
            columns[i + j] += (product & _LOW) * times
            columns[i + j + 1] += (product >> _DIGIT) * times
    return [column.view(np.int64) for column in columns]
