"""The residual conditions of hashed predicates, as texts of formulas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from datastem.arrays import Array, Int64s

NO_RESIDUAL = -1


@dataclass(frozen=True, slots=True)
class Residuals:
    """A condition for each of many entries: entry i has formula `texts[codes[i]]`, or no condition
    if its code is `NO_RESIDUAL`. The texts are distinct."""

    codes: Array
    texts: pa.Array

    @classmethod
    def none(cls, count: int) -> Residuals:
        """Return the residuals of entries that have no condition."""
        return cls(np.full(count, NO_RESIDUAL, np.int32), pa.array([], pa.string()))

    @classmethod
    def of(cls, texts: pa.Array) -> Residuals:
        """Return residuals from a text, or NULL for none, for each entry."""
        coded = texts.dictionary_encode()
        codes = coded.indices.fill_null(NO_RESIDUAL).to_numpy(zero_copy_only=False)
        return cls(codes.astype(np.int32), coded.dictionary)

    def take(self, places: Int64s) -> Residuals:
        """Return the residuals of the entries at these places."""
        return Residuals(self.codes[places], self.texts)

    def compact(self) -> Residuals:
        """Return these residuals without texts that no entry has."""
        used = np.unique(self.codes[self.codes != NO_RESIDUAL])
        if len(used) == len(self.texts):
            return self
        # The new code of each old one; the last is that of NO_RESIDUAL, which is -1.
        codes = np.full(len(self.texts) + 1, NO_RESIDUAL, np.int32)
        codes[used] = np.arange(len(used))
        return Residuals(codes[self.codes], self.texts.take(pa.array(used)))


def join_residuals(parts: Sequence[Residuals]) -> Residuals:
    """Return the residuals of all parts, one after the other."""
    coded = pa.concat_arrays([part.texts for part in parts]).dictionary_encode()
    # The joined code of each text of each part.
    joined = coded.indices.to_numpy().astype(np.int32)
    ends = np.cumsum([len(part.texts) for part in parts])
    codes = [
        np.append(joined[end - len(part.texts) : end], np.int32(NO_RESIDUAL))[part.codes]
        for part, end in zip(parts, ends.tolist(), strict=True)
    ]
    return Residuals(np.concatenate(codes), coded.dictionary)
