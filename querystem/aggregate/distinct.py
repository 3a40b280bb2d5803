"""The distinct values of each group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from datastem.equality import canonical
from datastem.equality import codes as classes


@dataclass(frozen=True, slots=True)
class Distinct:
    """`values[i]` is one of group `codes[i]`; no pair stands there twice."""

    codes: Int64s
    values: pa.Array
    groups: int

    @classmethod
    def of(cls, values: pa.Array, codes: Int64s, groups: int) -> Distinct:
        """Of values without NULLs."""
        values = canonical(values)
        _, firsts = classes([pa.array(codes), values], len(codes))
        return cls(codes[firsts], values.take(pa.array(firsts)), groups)

    @classmethod
    def merge(cls, parts: Sequence[Distinct], codes: Int64s, groups: int) -> Distinct:
        starts = np.cumsum([0, *[part.groups for part in parts]])
        old = np.concatenate(
            [part.codes + start for part, start in zip(parts, starts[:-1], strict=True)]
        )
        return cls.of(pa.concat_arrays([part.values for part in parts]), codes[old], groups)

    @property
    def nbytes(self) -> int:
        return int(self.codes.nbytes + self.values.nbytes)
