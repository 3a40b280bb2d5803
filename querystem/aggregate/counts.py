"""How many rows of each group, or how many of them with a value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from datastem.arrays import Int64s


@dataclass(frozen=True, slots=True)
class Counts:
    numbers: Int64s

    @classmethod
    def of(cls, codes: Int64s, groups: int) -> Counts:
        return cls(np.array([len(codes)]) if groups == 1 else np.bincount(codes, minlength=groups))

    @classmethod
    def merge(cls, parts: Sequence[Counts], codes: Int64s, groups: int) -> Counts:
        # Doubles are exact here: no stream has 2^53 rows.
        numbers = np.concatenate([part.numbers for part in parts])
        return cls(np.bincount(codes, weights=numbers, minlength=groups).astype(np.int64))

    @property
    def nbytes(self) -> int:
        return int(self.numbers.nbytes)
