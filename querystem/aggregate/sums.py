"""The exact sum of each group, or of the squares, with what of it is not a finite number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s, UInt8s
from datastem.types import Kind, Type
from querystem.aggregate.limbs import Limbs
from querystem.aggregate.terms import small_total, squares, terms

NAN, PLUS, MINUS = 1, 2, 4

# So few numbers are added up sooner one by one than as columns of digits.
_FEW = 1000


@dataclass(frozen=True, slots=True)
class Sums:
    """`flags` None: all numbers are finite. Else bits for each group: NAN, PLUS and MINUS infinity.

    The limbs hold the finite ones.
    """

    limbs: Limbs
    flags: UInt8s | None = None

    @classmethod
    def of(cls, values: pa.Array, type_: Type, squared: bool, codes: Int64s, groups: int) -> Sums:
        """Of values without NULLs; no more than MOST_TERMS."""
        if groups == 1 and not squared and len(values) <= _FEW:
            total = small_total(values, type_)
            if total is not None:
                return cls(Limbs.of_integer(total))
        flags = None
        if type_.kind is Kind.DOUBLE:
            numbers = values.to_numpy()
            finite = np.isfinite(numbers)
            if not finite.all():
                flags = _flags(numbers[~finite], codes[~finite], groups)
                values, codes = pa.array(numbers[finite]), codes[finite]
        made = (squares if squared else terms)(values, type_)
        return cls(Limbs.of(made, codes, groups), flags)

    @classmethod
    def merge(cls, parts: Sequence[Sums], codes: Int64s, groups: int) -> Sums:
        limbs = Limbs.merge([part.limbs for part in parts], codes, groups)
        if all(part.flags is None for part in parts):
            return cls(limbs)
        flags = np.zeros(groups, np.uint8)
        every = [
            np.zeros(len(part.limbs.digits), np.uint8) if part.flags is None else part.flags
            for part in parts
        ]
        np.bitwise_or.at(flags, codes, np.concatenate(every))
        return cls(limbs, flags)

    @property
    def nbytes(self) -> int:
        return self.limbs.nbytes + (0 if self.flags is None else int(self.flags.nbytes))


def _flags(numbers: Any, codes: Int64s, groups: int) -> UInt8s:
    flags = np.zeros(groups, np.uint8)
    bits = np.where(np.isnan(numbers), NAN, np.where(numbers > 0, PLUS, MINUS))
    np.bitwise_or.at(flags, codes, bits.astype(np.uint8))
    return flags
