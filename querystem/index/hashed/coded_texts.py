"""A text, or none, for each of many entries: residual conditions of hashed predicates, or patterns
that they match texts with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from datastem.arrays import Array, Int64s

NO_TEXT = -1


@dataclass(frozen=True, slots=True)
class CodedTexts:
    """Texts of entries: entry i has `texts[codes[i]]`, or none if its code is `NO_TEXT`. The texts
    are distinct."""

    codes: Array
    texts: pa.Array

    @classmethod
    def none(cls, count: int) -> CodedTexts:
        """Return the texts of entries that have none."""
        return cls(np.full(count, NO_TEXT, np.int32), pa.array([], pa.string()))

    @classmethod
    def of(cls, texts: pa.Array) -> CodedTexts:
        """Return the codes of a text, or NULL for none, for each entry."""
        coded = texts.dictionary_encode()
        codes = coded.indices.fill_null(NO_TEXT).to_numpy(zero_copy_only=False)
        return cls(codes.astype(np.int32), coded.dictionary)

    def take(self, places: Int64s) -> CodedTexts:
        """Return the texts of the entries at these places."""
        return CodedTexts(self.codes[places], self.texts)

    def compact(self) -> CodedTexts:
        """Return the same without texts that no entry has."""
        used = np.unique(self.codes[self.codes != NO_TEXT])
        if len(used) == len(self.texts):
            return self
        # The new code of each old one; the last is that of NO_TEXT, which is -1.
        codes = np.full(len(self.texts) + 1, NO_TEXT, np.int32)
        codes[used] = np.arange(len(used))
        return CodedTexts(codes[self.codes], self.texts.take(pa.array(used)))


def join_codes(parts: Sequence[CodedTexts]) -> CodedTexts:
    """Return the texts of all parts, one after the other."""
    coded = pa.concat_arrays([part.texts for part in parts]).dictionary_encode()
    # The joined code of each text of each part.
    joined = coded.indices.to_numpy().astype(np.int32)
    ends = np.cumsum([len(part.texts) for part in parts])
    codes = [
        np.append(joined[end - len(part.texts) : end], np.int32(NO_TEXT))[part.codes]
        for part, end in zip(parts, ends.tolist(), strict=True)
    ]
    return CodedTexts(np.concatenate(codes), coded.dictionary)
