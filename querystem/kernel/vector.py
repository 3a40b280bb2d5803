"""A column of values inside the kernel, and its way from and to Arrow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datastem.arrays import Array, Mask
from datastem.types import BOOLEAN, TEXT, Kind, Type
from querystem.kernel import integers

_STORED = {
    Kind.BIGINT: np.int64,
    Kind.DOUBLE: np.float64,
    Kind.TIMESTAMP: np.int64,
    Kind.DATE: np.int32,
    Kind.DURATION: np.int64,
}


@dataclass(frozen=True, slots=True)
class Vector:
    """A column of values, and a mask that says where they are valid (None: everywhere).

    `values` is numpy: bool, int64 (BIGINT, TIMESTAMP and DURATION as microseconds, DATE as days),
    float64, or the unscaled integers of a DECIMAL (see `integers`). A value that is not valid means
    nothing. TEXT is an Arrow string array, NULL exactly where it is not valid. A vector of length 1
    stands for any length, and so does its mask.
    """

    type: Type
    values: Any
    valid: Mask | None = None

    def __len__(self) -> int:
        return len(self.values)

    def where_true(self) -> Mask:
        """Return a mask of the rows of a BOOLEAN that are true, not NULL."""
        truth: Mask = self.values if self.valid is None else self.values & self.valid
        return truth

    def where_false(self) -> Mask:
        """Return a mask of the rows of a BOOLEAN that are false, not NULL."""
        falsehood: Mask = ~self.values if self.valid is None else ~self.values & self.valid
        return falsehood

    def also_valid(self, mask: Mask | None) -> Vector:
        """Return the vector with NULL also where `mask` is false."""
        if mask is None or self.type.kind is not Kind.TEXT:
            return Vector(self.type, self.values, both(self.valid, mask))
        values = repeatable(self.values)
        length = len(mask) if len(self) == 1 else len(self)
        is_valid = pa.array(np.broadcast_to(mask, length))
        return of_text(pc.if_else(is_valid, values, pa.scalar(None, pa.string())))


def both(lhs: Mask | None, rhs: Mask | None) -> Mask | None:
    if lhs is None or rhs is None:
        return rhs if lhs is None else lhs
    return lhs & rhs


def boolean(values: Mask, valid: Mask | None = None) -> Vector:
    return Vector(BOOLEAN, values, valid)


def of_scalars(scalars: list[Any], type_: Type) -> Vector:
    """Return a vector of Python values, None being NULL."""
    return from_arrow(pa.array(scalars, type=type_.arrow), type_)


def of_text(array: pa.Array) -> Vector:
    return Vector(TEXT, array, _validity(array))


def repeatable(array: pa.Array) -> Any:
    """Return the array, or a scalar for an array of length 1, which Arrow repeats as often as
    needed."""
    return array[0] if len(array) == 1 else array


def from_arrow(array: pa.Array, type_: Type) -> Vector:
    """Return the vector of an Arrow array; raise TypeError unless it has the type's Arrow form."""
    if array.type != type_.arrow:
        raise TypeError(f"expected Arrow {type_.arrow} for {type_}, got {array.type}")
    if type_.kind is Kind.TEXT:
        return of_text(array)
    valid = _validity(array)
    return Vector(type_, _read(array, type_, valid), valid)


def to_arrow(vector: Vector, length: int) -> pa.Array:
    """Return an Arrow array of `length` values; a vector of length 1 is repeated."""
    if vector.type.kind is Kind.TEXT:
        return _repeat_text(vector.values, length)
    valid = None if vector.valid is None else _repeat(vector.valid, length)
    data = _write(_repeat(vector.values, length), vector.type)
    return pa.Array.from_buffers(vector.type.arrow, length, [_bits(valid), pa.py_buffer(data)])


def _repeat(values: Any, length: int) -> Any:
    return values if len(values) == length else np.broadcast_to(values, length)


def _read(array: pa.Array, type_: Type, valid: Mask | None) -> Array:
    if type_.kind is Kind.BOOLEAN:
        filled = array.fill_null(False) if array.null_count else array
        truth: Array = filled.to_numpy(zero_copy_only=False)
        return truth
    if type_.kind is Kind.DECIMAL:
        # A decimal is 128 bits: a low and a high int64.
        return integers.from_limbs(_stored(array, np.int64, 2).reshape(-1, 2), valid)
    values = _stored(array, _STORED[type_.kind], 1)
    if type_.kind is Kind.DATE:
        # Days are widened, so that their product with the microseconds of a day does not overflow.
        values = values.astype(np.int64)
    # Values under NULL are arbitrary. Zeros keep them from widening the bounds of integers.
    return values if valid is None else np.where(valid, values, values.dtype.type(0))


def _stored(array: pa.Array, dtype: Any, width: int) -> Array:
    buffer = array.buffers()[1]
    if not len(array) or buffer is None:
        return np.zeros(len(array) * width, dtype)
    # The buffer begins before the array if it is a slice.
    begin = array.offset * width
    return np.frombuffer(buffer, dtype)[begin : begin + len(array) * width]


def _write(values: Array, type_: Type) -> Array:
    if type_.kind is Kind.BOOLEAN:
        # Arrow's bitmaps have the first value in the lowest bit.
        return np.packbits(values, bitorder="little")
    if type_.kind is Kind.DECIMAL:
        return integers.to_limbs(values)
    return np.ascontiguousarray(values, _STORED[type_.kind])


def _bits(valid: Mask | None) -> pa.Buffer | None:
    return None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))


def _validity(array: pa.Array) -> Mask | None:
    if not array.null_count:
        return None
    valid: Mask = array.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _repeat_text(array: pa.Array, length: int) -> pa.Array:
    if len(array) == length:
        return array
    return array.take(pa.array(np.zeros(length, np.int64)))
