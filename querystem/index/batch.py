"""The rows of one probe, their values as keys, and the rows for which a single formula holds.

Keys are one order for all types: values as int64, so that many constants are one plain array.
BIGINT, TIMESTAMP, DATE and DECIMAL up to 18 digits are their own keys. A DOUBLE's key counts the
doubles from 0.0 on, NaN coming after infinity. Wider DECIMALs stay Python integers.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datastem.arrays import Array, Doubles, Int64s, Mask
from datastem.errors import TooMuchText
from datastem.types import Kind, Type
from querystem.expressions import Expression
from querystem.index.byte_slices import ByteSlices
from querystem.index.formula import Condition, Every, Formula, Interval, Member, cut_order
from querystem.index.matches import WORD
from querystem.kernel import Frame, evaluate
from querystem.kernel.compare import END, START
from querystem.kernel.integers import INT64_MAX, INT64_MIN
from querystem.kernel.vector import Vector, from_arrow

_INT64_DIGITS = 18
_NAN = 0x7FF0000000000001
# The bounds of keys are closed, because no int64 follows the last one.
EVERYTHING = INT64_MIN, INT64_MAX
NOTHING = 1, 0
# Beyond the keys of every wide DECIMAL, which have at most 38 digits.
_WIDE_EVERYTHING = -(10**39), 10**39


def is_wide(type_: Type) -> bool:
    """Return whether a key of the type may not fit int64."""
    return type_.precision > _INT64_DIGITS


def edges_of(type_: Type) -> tuple[int, int]:
    """Return bounds that hold every key of the type."""
    return _WIDE_EVERYTHING if is_wide(type_) else EVERYTHING


def keys_of(values: Array, type_: Type) -> Array:
    """Return the keys of a vector's values."""
    if type_.kind is Kind.DOUBLE:
        return double_keys(values)
    return values.astype(object) if is_wide(type_) else values.astype(np.int64, copy=False)


def double_keys(values: Doubles) -> Int64s:
    """Return the keys of doubles."""
    bits = (values + 0.0).view(np.int64)
    keys = np.where(bits < 0, (bits ^ INT64_MAX) + 1, bits)
    keys[np.isnan(values)] = _NAN
    return keys


def key_of(cut: Any, type_: Type) -> int:
    """Return the key of one value of the type, which has the form of a cut."""
    if type_.kind is not Kind.DOUBLE:
        return int(cut)
    if cut != cut:
        return _NAN
    bits: int = struct.unpack("<q", struct.pack("<d", cut + 0.0))[0]
    return (bits ^ INT64_MAX) + 1 if bits < 0 else bits


def bounds_of(factor: Interval) -> tuple[int, int]:
    """Return the least and the greatest key of an interval; `NOTHING` if it is empty."""
    type_ = factor.operand.type
    if cut_order(factor.begin) >= cut_order(factor.end):
        return NOTHING
    lowest, highest = edges_of(type_)
    least = lowest if factor.begin is START else key_of(factor.begin, type_)
    most = highest if factor.end is END else key_of(factor.end, type_) - 1
    return (least, most) if least <= most else NOTHING


def point_of(factor: Interval) -> int | None:
    """Return the key that an interval of a single value allows; None for any other interval."""
    if is_wide(factor.operand.type) or factor.begin is START:
        return None
    least, most = bounds_of(factor)
    return least if least == min(most, last_key(factor.operand.type)) else None


def last_key(type_: Type) -> int:
    """Return the greatest key that a value of the type can have."""
    return _NAN if type_.kind is Kind.DOUBLE else edges_of(type_)[1]


# ---- rows


class _OperandValues:
    """The values of an operand, and what was made of them."""

    __slots__ = ("keys", "octets", "vector")

    def __init__(self, vector: Vector) -> None:
        self.vector = vector
        self.keys: Array | None = None
        self.octets: ByteSlices | None = None


class ProbeBatch:
    """The rows of one probe; what predicates need of them is computed at the first use.

    Rows are numbered from `first` on; row r has bit `first + r` of a line of words.
    """

    def __init__(self, rows: pa.RecordBatch | pa.Table, first: int = 0) -> None:
        self.first = first
        self.length: int = rows.num_rows
        self._rows = rows
        self._frame = Frame(rows)
        self._operands: dict[Expression, _OperandValues] = {}
        self._masks: dict[Condition, Mask] = {}
        # What axes found in these rows, and may need more than once.
        self.axis_results: dict[object, Any] = {}

    @property
    def shift(self) -> int:
        """The bit of its word that the first row has."""
        return self.first % WORD

    def taken(self, rows: Array) -> ProbeBatch:
        """Return a batch of these rows, numbered from 0 on."""
        return ProbeBatch(self._rows.take(pa.array(rows)))

    def vector(self, operand: Expression) -> Vector:
        """Return the values of an operand."""
        return self._values(operand).vector

    def _values(self, operand: Expression) -> _OperandValues:
        # To look an operand up takes longer than most else that is done for a row.
        values = self._operands.get(operand)
        if values is None:
            values = self._operands[operand] = _OperandValues(self._evaluated(operand))
        return values

    def _evaluated(self, operand: Expression) -> Vector:
        try:
            return self._frame.vector(operand)
        except TooMuchText:
            return from_arrow(evaluate(operand, self._rows), operand.type)

    def keys(self, operand: Expression) -> tuple[Array, Mask | None]:
        """Return a key for each row, and a mask of the rows that have one (None: all of them). The
        operand must not be a TEXT."""
        values = self._values(operand)
        if values.keys is None:
            values.keys = self._whole(keys_of(values.vector.values, values.vector.type))
        return values.keys, self._valid(values.vector)

    def texts(self, operand: Expression) -> pa.Array:
        """Return a text or NULL for each row."""
        return self._texts(self._values(operand).vector)

    def _texts(self, vector: Vector) -> pa.Array:
        texts: pa.Array = vector.values
        if len(texts) == self.length:
            return texts
        return texts.take(pa.array(np.zeros(self.length, np.int64)))

    def octets(self, operand: Expression) -> tuple[ByteSlices, Mask | None]:
        """Return the bytes of a TEXT for each row, and a mask of the rows that have one (None: all
        of them)."""
        values = self._values(operand)
        if values.octets is None:
            values.octets = ByteSlices.of(self._texts(values.vector))
        return values.octets, self._valid(values.vector)

    def valid(self, operand: Expression) -> Mask | None:
        """Return a mask of the rows that are not NULL; None if all of them are not."""
        return self._valid(self._values(operand).vector)

    def _valid(self, vector: Vector) -> Mask | None:
        return None if vector.valid is None else self._whole(vector.valid)

    def mask(self, condition: Condition) -> Mask:
        """Return a mask of the rows for which the condition has the value that it has to have."""
        if condition not in self._masks:
            vector = self.vector(condition.expression)
            mask = vector.where_true() if condition.value else vector.where_false()
            self._masks[condition] = self._whole(mask)
        return self._masks[condition]

    def _whole(self, values: Any) -> Any:
        return values if len(values) == self.length else np.broadcast_to(values, self.length)


def truth(formula: Formula, batch: ProbeBatch) -> Mask:
    """Return a mask of the rows for which a formula holds. Each condition is evaluated once for a
    batch."""
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
    holds = np.full(batch.length, is_every)
    for part in formula.parts:
        if is_every and holds.any():
            holds &= truth(part, batch)
        elif not is_every and not holds.all():
            holds |= truth(part, batch)
    return holds


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
