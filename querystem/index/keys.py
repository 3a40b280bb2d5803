"""One order for all types: values as int64 keys, so that many constants are one plain array.

BIGINT, TIMESTAMP, DATE and DECIMAL up to 18 digits are their own keys. A DOUBLE's key counts the
doubles from 0.0 on, NaN coming after infinity. Wider DECIMALs stay Python integers.
"""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np

from datastem.arrays import Array, Doubles, Int64s
from datastem.types import Kind, Type
from querystem.expressions import Expression
from querystem.index.formula import Interval, cut_order
from querystem.kernel.compare import END, START
from querystem.kernel.integers import INT64_MAX, INT64_MIN

_INT64_DIGITS = 18
_NAN = 0x7FF0000000000001
# Closed, because no int64 follows the last one.
EVERYTHING = INT64_MIN, INT64_MAX
NOTHING = 1, 0


def is_wide(type_: Type) -> bool:
    """Whether keys of the type may not fit int64."""
    return type_.precision > _INT64_DIGITS


def keys_of(values: Array, type_: Type) -> Array:
    """The keys of a vector's values."""
    if type_.kind is Kind.DOUBLE:
        return double_keys(values)
    return values.astype(object) if is_wide(type_) else values.astype(np.int64, copy=False)


def double_keys(values: Doubles) -> Int64s:
    bits = (values + 0.0).view(np.int64)
    keys = np.where(bits < 0, (bits ^ INT64_MAX) + 1, bits)
    keys[np.isnan(values)] = _NAN
    return keys


def key_of(cut: Any, type_: Type) -> int:
    """The key of one value of the type, as cuts have it."""
    if type_.kind is not Kind.DOUBLE:
        return int(cut)
    if cut != cut:
        return _NAN
    bits: int = struct.unpack("<q", struct.pack("<d", cut + 0.0))[0]
    return (bits ^ INT64_MAX) + 1 if bits < 0 else bits


def bounds_of(factor: Interval) -> tuple[int, int]:
    """The least and the greatest key of an interval; `NOTHING` where it is empty."""
    type_ = factor.operand.type
    if cut_order(factor.begin) >= cut_order(factor.end):
        return NOTHING
    least = INT64_MIN if factor.begin is START else key_of(factor.begin, type_)
    most = INT64_MAX if factor.end is END else key_of(factor.end, type_) - 1
    return (least, most) if least <= most else NOTHING


def point_of(factor: Interval) -> int | None:
    """The key an interval of a single value allows; None for any other interval."""
    if is_wide(factor.operand.type) or factor.begin is START:
        return None
    least, most = bounds_of(factor)
    if factor.operand.type.kind is Kind.DOUBLE:
        most = min(most, _NAN)
    return least if least == most else None


def interval_of(operand: Expression, least: int, most: int) -> Interval:
    """The interval with these bounds."""
    begin = START if least == INT64_MIN else _cut_of(least, operand.type)
    end = END if most == INT64_MAX else _cut_of(most + 1, operand.type)
    return Interval(operand, begin, end)


def _cut_of(key: int, type_: Type) -> Any:
    if type_.kind is not Kind.DOUBLE:
        return key
    if key > _NAN:
        return END
    if key == _NAN:
        return math.nan
    bits = (key - 1) ^ INT64_MAX if key < 0 else key
    return struct.unpack("<d", struct.pack("<q", bits))[0]
