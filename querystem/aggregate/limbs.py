"""Exact sums, one for each group: integers of any size in columns of 32 bits.

Adding is associative and loses nothing, so a sum does not depend on how its rows were batched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from datastem.arrays import Int64s

BITS = 32
MASK = (1 << BITS) - 1


# So many numbers can be added as doubles without a rounding: see `Terms`.
MOST_TERMS = 1 << 16


@dataclass(frozen=True, slots=True)
class Terms:
    """A number for each row: the sum of `columns[j] * 2^(32 * (bins + j))`.

    Columns hold integers of magnitude below 2^37: MOST_TERMS of them add up exactly in a double.
    """

    bins: Int64s
    columns: Sequence[Int64s]


@dataclass(frozen=True, slots=True)
class Limbs:
    """Group g is the sum of `digits[g, j] * 2^(32 * (offset + j))`.

    Digits are in `[0, 2^32)`, but for the last, which has the sign and is in `[-2^32, 2^32)`.
    """

    offset: int
    digits: Int64s

    @classmethod
    def of(cls, terms: Terms, codes: Int64s, groups: int) -> Limbs:
        if not len(codes):
            return cls(0, np.zeros((groups, 1), np.int64))
        low = int(terms.bins.min())
        width = int(terms.bins.max()) - low + len(terms.columns)
        places = codes * width + (terms.bins - low)
        total = np.zeros(groups * width)
        for step, column in enumerate(terms.columns):
            total += np.bincount(places + step, weights=column, minlength=len(total))
        return cls(low, carried(total.astype(np.int64).reshape(groups, width)))

    @classmethod
    def of_integer(cls, total: int) -> Limbs:
        """One group."""
        offset = ((total & -total).bit_length() - 1) // BITS if total else 0
        rest, digits = total >> (BITS * offset), []
        while not -(1 << BITS) <= rest < 1 << BITS:
            digits.append(rest & MASK)
            rest >>= BITS
        return cls(offset, np.array([[*digits, rest]], np.int64))

    @classmethod
    def merge(cls, parts: Sequence[Limbs], codes: Int64s, groups: int) -> Limbs:
        """`codes` has the new group of each group of each part, in their order."""
        low = min(part.offset for part in parts)
        width = max(part.offset + part.digits.shape[1] for part in parts) - low
        every = np.zeros((len(codes), width), np.int64)
        row = 0
        for part in parts:
            count, size = part.digits.shape
            start = part.offset - low
            every[row : row + count, start : start + size] = part.digits
            row += count
        added = [np.bincount(codes, weights=column, minlength=groups) for column in every.T]
        return cls(low, carried(np.stack(added, axis=1).astype(np.int64)))

    @property
    def nbytes(self) -> int:
        return int(self.digits.nbytes)


def carried(digits: Int64s) -> Int64s:
    """The same numbers with digits as `Limbs` has them, in as few columns. Changes its argument."""
    for place in range(digits.shape[1] - 1):
        _carry(digits, place)
    if ((digits[:, -1] >> BITS) + 1 >> 1).any():
        digits = np.concatenate([digits, np.zeros((len(digits), 1), np.int64)], axis=1)
        _carry(digits, digits.shape[1] - 2)
    while digits.shape[1] > 1 and not ((digits[:, -1] + 1) >> 1).any():
        digits[:, -2] += digits[:, -1] << BITS
        digits = digits[:, :-1]
    return np.ascontiguousarray(digits)


def magnitude(digits: Int64s) -> tuple[Int64s, Any]:
    """The absolute values, all their digits in `[0, 2^32)`, and where they were negative."""
    negative = digits[:, -1] < 0
    return carried(np.where(negative[:, None], -digits, digits)), negative


def _carry(digits: Int64s, place: int) -> None:
    over = digits[:, place] >> BITS
    digits[:, place] &= MASK
    digits[:, place + 1] += over
