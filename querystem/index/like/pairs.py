"""Patterns that are matched with texts pair by pair, instead of all with all."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from datastem.arrays import Int64s, Mask
from querystem.expressions import Expression
from querystem.index.batch import ProbeBatch
from querystem.index.like.checks import Checker
from querystem.index.like.pieces import PatternPieces


@dataclass(frozen=True, slots=True)
class PairMatcher:
    """Distinct patterns, cut into pieces."""

    texts: pa.Array
    pieces: PatternPieces

    @classmethod
    def of(cls, texts: pa.Array) -> PairMatcher:
        """Return distinct patterns, none of which may be NULL."""
        return cls(texts, PatternPieces.of(texts))

    def match(self, batch: ProbeBatch, operand: Expression, rows: Int64s, places: Int64s) -> Mask:
        """Return a mask of the pairs i whose text, the operand in row `rows[i]`, matches the
        pattern at `places[i]`; the texts must not be NULL."""
        octets, _ = batch.octets(operand)
        return Checker(self.texts, self.pieces, batch.texts(operand), octets).match(rows, places)
