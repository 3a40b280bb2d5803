"""Keys: values of two sides as arrays that compare plainly and mean what the language means.

The numeric types are compared with each other exactly. NaN equals itself and is the greatest
number, -0.0 equals 0.0. A value that can equal none of the other side becomes NULL.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datastem.arrays import Array, Doubles, Int64s, Integers, Mask
from datastem.equality import canonical
from datastem.types import BIGINT, DOUBLE, Kind, Type, decimal_type
from querystem.kernel import integers
from querystem.kernel.compare import EXACT_DOUBLE, scaled
from querystem.kernel.vector import Vector, both, from_arrow, to_arrow

_WIDEST = decimal_type(38, 0)
_INT64_END = 2.0**63


# ---- for equality


def equal_keys(
    left_values: pa.Array, left_type: Type, right_values: pa.Array, right_type: Type
) -> tuple[pa.Array, pa.Array]:
    """Return two arrays of one Arrow type; elements of them are equal, and not NULL, exactly if
    `=` is true of the values."""
    if Kind.DOUBLE in (left_type.kind, right_type.kind):
        return _bits(left_values, left_type), _bits(right_values, right_type)
    if (
        not left_type.is_numeric
        or left_type.scale == right_type.scale
        and left_values.type == right_values.type
    ):
        return left_values, right_values
    # A value with digits beyond the lesser scale equals nothing on the other side; it becomes NULL.
    scale = min(left_type.scale, right_type.scale)
    sides = [_at_scale(from_arrow(left_values, left_type), scale)]
    sides.append(_at_scale(from_arrow(right_values, right_type), scale))
    # Both arrays need one Arrow type: one side of Python integers makes both wide.
    wide = any(side.values.dtype == object for side in sides)
    return _exact_array(sides[0], wide), _exact_array(sides[1], wide)


def _bits(array: pa.Array, type_: Type) -> pa.Array:
    """Return the bits of the double that equals each value, NULL if none does."""
    if type_.kind is not Kind.DOUBLE:
        array = to_arrow(_as_doubles(from_arrow(array, type_)), len(array))
    return canonical(array).view(pa.int64())


def _as_doubles(exact: Vector) -> Vector:
    """Return the doubles that equal BIGINT or DECIMAL values.

    u / 10^s is a binary fraction only if 5^s divides u; the quotient is then shifted.
    """
    fifths = integers.constant(5**exact.type.scale)
    quotient = integers.divide(exact.values, fifths)
    whole = _plain(integers.multiply(quotient, fifths) == exact.values)
    doubles, same = _rounded(quotient)
    return Vector(DOUBLE, np.ldexp(doubles, -exact.type.scale), both(exact.valid, whole & same))


def _rounded(values: Integers) -> tuple[Doubles, Mask]:
    """Return the double nearest to each integer, and whether it is that integer."""
    doubles = values.astype(np.float64)
    if values.dtype == object:
        back = [int(double) for double in doubles.tolist()]
        return doubles, _plain(np.array(back, object) == values)
    # int64 near its maximum rounds up to 2^63, which is no int64; such a double is not that
    # integer.
    inside = doubles < _INT64_END
    return doubles, inside & (np.where(inside, doubles, 0.0).astype(np.int64) == values)


def _at_scale(exact: Vector, scale: int) -> Vector:
    """Return the unscaled integers at a scale no greater than the vector's; NULL if digits are
    lost."""
    if exact.type.scale == scale:
        return exact
    unit = integers.constant(10 ** (exact.type.scale - scale))
    quotient = integers.divide(exact.values, unit)
    whole = _plain(integers.multiply(quotient, unit) == exact.values)
    return Vector(exact.type, quotient, both(exact.valid, whole))


def _exact_array(exact: Vector, wide: bool) -> pa.Array:
    return to_arrow(Vector(_WIDEST if wide else BIGINT, exact.values, exact.valid), len(exact))


def _plain(truth: Array) -> Mask:
    return truth.astype(np.bool_, copy=False)


# ---- for order


def coordinates(
    left_values: pa.Array, left_type: Type, right_values: pa.Array, right_type: Type
) -> tuple[Int64s, Int64s]:
    """Return integers that compare, left with right, as the values do; a NULL has any integer.

    Those of the left side alone are in the order of its values, but different values may share one.
    """
    if left_type.kind is Kind.TEXT:
        return _cut(_text_ranks(pa.concat_arrays([left_values, right_values])), len(left_values))
    sides = from_arrow(left_values, left_type), from_arrow(right_values, right_type)
    # A double beside exact numbers is compared by halves; exact numbers are brought to one scale.
    if Kind.DOUBLE in (left_type.kind, right_type.kind):
        if _are_doubles(sides[0]) and _are_doubles(sides[1]):
            return double_order(sides[0].values), double_order(sides[1].values)
        numbers = _halves
    else:
        numbers = _aligned
    scale = max(left_type.scale, right_type.scale)
    return _int64s(numbers(sides[0], scale), numbers(sides[1], scale))


def _int64s(left_numbers: Integers, right_numbers: Integers) -> tuple[Int64s, Int64s]:
    """Return the integers, or their ranks if they don't fit."""
    if object not in (left_numbers.dtype, right_numbers.dtype):
        return left_numbers.astype(np.int64, copy=False), right_numbers.astype(np.int64, copy=False)
    every = np.concatenate([left_numbers.astype(object), right_numbers.astype(object)])
    return _cut(np.unique(every, return_inverse=True)[1].astype(np.int64), len(left_numbers))


def _aligned(vector: Vector, scale: int) -> Integers:
    return integers.rescale(vector.values, vector.type.scale, scale)


def _halves(vector: Vector, scale: int) -> Integers:
    """Return twice the value at a scale; a double between two such values is the odd number
    between.

    Two doubles may get one number, but a double and a value of the scale only if they are equal.
    """
    if vector.type.kind is Kind.DOUBLE:
        floor, has_fraction = scaled(vector.values, scale)
        twice = integers.multiply(floor, integers.constant(2))
        return integers.add(twice, has_fraction.astype(int))
    return integers.multiply(_aligned(vector, scale), integers.constant(2))


def _are_doubles(vector: Vector) -> bool:
    """Return whether all values are doubles, or integers that doubles hold exactly."""
    if vector.type.kind is Kind.DOUBLE:
        return True
    return not vector.type.scale and integers.bound(vector.values) <= EXACT_DOUBLE


def double_order(numbers: Array) -> Int64s:
    doubles = numbers.astype(np.float64, copy=False)
    # Adding 0.0 turns −0.0 into 0.0. All NaNs get the same bits, above those of infinity.
    bits = np.where(np.isnan(doubles), np.nan, doubles + 0.0).view(np.int64)
    # The bits of doubles rise with their magnitude, so those of negatives are inverted.
    return bits ^ ((bits >> 63) & np.int64(2**63 - 1))


def _text_ranks(texts: pa.Array) -> Int64s:
    # Only distinct texts are sorted. ranks[i] is the rank of dictionary entry i; the last element
    # serves NULLs, whose rank is never used.
    encoded = texts.dictionary_encode()
    ranks = np.empty(len(encoded.dictionary) + 1, np.int64)
    ranks[pc.sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(ranks) - 1)
    ranks[-1] = 0
    text_ranks: Int64s = ranks[encoded.indices.fill_null(len(ranks) - 1).to_numpy()]
    return text_ranks


def _cut(numbers: Int64s, length: int) -> tuple[Int64s, Int64s]:
    return numbers[:length], numbers[length:]
