"""The rows of one probe, and what has been computed of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from datastem.arrays import Array, Mask
from querystem.expressions import Expression
from querystem.index.bitmaps import WORD
from querystem.index.formula import Condition
from querystem.index.keys import keys_of
from querystem.kernel import Frame
from querystem.kernel.vector import Vector


class Batch:
    """Nothing is computed before it is asked for, and nothing twice.

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
        """The bit of its word the first row stands in."""
        return self.first % WORD

    def vector(self, operand: Expression) -> Vector:
        if operand not in self._vectors:
            self._vectors[operand] = self._frame.vector(operand)
        return self._vectors[operand]

    def keys(self, operand: Expression) -> tuple[Array, Mask | None]:
        """A key for each row, and where they mean something (None: everywhere). Not for TEXT."""
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
        """Where the condition is what it is wanted to be."""
        if condition not in self._masks:
            vector = self.vector(condition.expression)
            mask = vector.where_true() if condition.wanted else vector.where_false()
            self._masks[condition] = self._whole(mask)
        return self._masks[condition]

    def _whole(self, values: Any) -> Any:
        return values if len(values) == self.length else np.broadcast_to(values, self.length)
