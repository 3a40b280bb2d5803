"""The rows of one probe, their values as keys, and where a single formula holds.

Keys are one order for all types: values as int64, so that many constants are one plain array.
BIGINT, TIMESTAMP, DATE and DECIMAL up to 18 digits are their own keys. A DOUBLE's key counts the
doubles from 0.0 on, NaN coming after infinity. Wider DECIMALs stay Python integers.
"""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datastem.arrays import Array, Doubles, Int64s, Mask
from datastem.types import Kind, Type
from querystem.expressions import Expression
from querystem.index.formula import Condition, Every, Formula, Interval, Member, cut_order
from querystem.index.matches import WORD
from querystem.kernel import Frame
from querystem.kernel.compare import END, START
from querystem.kernel.integers import INT64_MAX, INT64_MIN
from querystem.kernel.vector import Vector

_INT64_DIGITS = 18
_NAN = 0x7FF0000000000001
# The bounds of keys are closed, because no int64 follows the last one.
EVERYTHING = INT64_MIN, INT64_MAX
NOTHING = 1, 0


def is_wide(type_: Type) -> bool:
    """Whether some key of the type does not fit int64."""
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
    """The key of one value of the type, which has the form of a cut."""
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
    """The interval of the operand's values whose keys lie in `[least, most]`."""
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


# ---- rows


class ProbeBatch:
    """The rows of one probe; what predicates need of them is computed when it is first asked for.

    Rows are numbered from `first` on, and stand in bits accordingly.
    """

    def __init__(self, rows: pa.RecordBatch | pa.Table, first: int = 0) -> None:
        self.first = first
        self.length: int = rows.num_rows
        self._frame = Frame(rows)
        self._vectors: dict[Expression, Vector] = {}
        self._keys: dict[Expression, tuple[Array, Mask | None]] = {}
        self._masks: dict[Condition, Mask] = {}

    @property
    def shift(self) -> int:
        """The bit of its word that the first row stands in."""
        return self.first % WORD

    def vector(self, operand: Expression) -> Vector:
        if operand not in self._vectors:
            self._vectors[operand] = self._frame.vector(operand)
        return self._vectors[operand]

    def keys(self, operand: Expression) -> tuple[Array, Mask | None]:
        """A key for each row, and a mask of the rows that have one (None: all). Not for TEXT."""
        if operand not in self._keys:
            vector = self.vector(operand)
            keys = self._whole(keys_of(vector.values, vector.type))
            self._keys[operand] = keys, self.valid(operand)
        return self._keys[operand]

    def texts(self, operand: Expression) -> pa.Array:
        """A text for each row, or NULL."""
        values: pa.Array = self.vector(operand).values
        if len(values) == self.length:
            return values
        return values.take(pa.array(np.zeros(self.length, np.int64)))

    def valid(self, operand: Expression) -> Mask | None:
        valid = self.vector(operand).valid
        return None if valid is None else self._whole(valid)

    def mask(self, condition: Condition) -> Mask:
        """A mask of the rows for which the condition has the value that is wanted."""
        if condition not in self._masks:
            vector = self.vector(condition.expression)
            mask = vector.where_true() if condition.wanted else vector.where_false()
            self._masks[condition] = self._whole(mask)
        return self._masks[condition]

    def _whole(self, values: Any) -> Any:
        return values if len(values) == self.length else np.broadcast_to(values, self.length)


def truth(formula: Formula, batch: ProbeBatch) -> Mask:
    """A mask of the rows for which a formula holds; each condition is evaluated once a batch."""
    match formula:
        case Condition():
            return batch.mask(formula)
        case Member(operand, value):
            equal = pc.equal(batch.texts(operand), value).fill_null(False)
            mask: Mask = equal.to_numpy(zero_copy_only=False)
            return mask
        case Interval():
            return _inside(formula, batch)
    is_every = isinstance(formula, Every)
    held = np.full(batch.length, is_every)
    for part in formula.parts:
        if is_every and held.any():
            held &= truth(part, batch)
        elif not is_every and not held.all():
            held |= truth(part, batch)
    return held


def _inside(factor: Interval, batch: ProbeBatch) -> Mask:
    keys, valid = batch.keys(factor.operand)
    type_ = factor.operand.type
    inside = np.ones(batch.length, np.bool_) if valid is None else valid.copy()
    if factor.begin is END or factor.end is START:
        return np.zeros(batch.length, np.bool_)
    if factor.begin is not START:
        inside &= np.asarray(keys >= key_of(factor.begin, type_), np.bool_)
    if factor.end is not END:
        inside &= np.asarray(keys < key_of(factor.end, type_), np.bool_)
    return inside
