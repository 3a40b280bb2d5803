"""The axis of LIKE: all patterns that predicates match one operand with, searched together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from datastem.arrays import Int64s, Mask, UInt8s, UInt64s
from datastem.types import BOOLEAN, TEXT
from querystem.expressions import Call, Expression, Literal, Op
from querystem.index.axes import BoundAxis, Masks
from querystem.index.batch import ProbeBatch
from querystem.index.formula import Condition
from querystem.index.like.patterns import PatternPairs, Patterns
from querystem.index.matches import pack

# Up to here the kernel is faster, pattern by pattern.
FEW_PATTERNS = 12
# More pairs of a row and a pattern than this are set as bits, a slice of the rows at a time. These
# are 64 MB.
_MAX_PAIRS = 1 << 22


@dataclass(frozen=True, slots=True, eq=False)
class LikeAxis:
    """Factors that hold if one operand matches a pattern, or does not: node `nodes[i]` holds for
    the texts that match the pattern at `places[i]` if `is_match[i]`, otherwise for those that
    don't."""

    operand: Expression
    nodes: Int64s
    patterns: Patterns
    places: Int64s
    is_match: Mask

    def bind(self, batch: ProbeBatch, needed: Mask) -> BoundAxis:
        """Return the nodes for a batch that has rows; those without rows cost no line."""
        chosen = needed[self.nodes]
        if chosen.sum() <= FEW_PATTERNS:
            return self._masks(batch, np.flatnonzero(chosen))
        pairs = self.pairs(batch)
        if pairs is not None:
            occurs = np.zeros(len(self.patterns), np.bool_)
            occurs[pairs[1]] = True
            return _LikeLines(self, batch, occurs, _slices_of(pairs))
        occurs = np.zeros(len(self.patterns), np.bool_)
        occurs[self.places[chosen]] = True
        texts = batch.texts(self.operand)
        return _LikeLines(
            self,
            batch,
            occurs,
            lambda rows: self.patterns.find(texts.slice(rows.start, rows.stop - rows.start)),
        )

    def pairs(self, batch: ProbeBatch) -> PatternPairs | None:
        """Return the rows and patterns that match, in the order of rows; None if they are too
        many. They are searched once for a batch."""
        if self not in batch.axis_results:
            batch.axis_results[self] = self._search(batch)
        pairs: PatternPairs | None = batch.axis_results[self]
        return pairs

    def _search(self, batch: ProbeBatch) -> PatternPairs | None:
        count, rows, places = 0, [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for part_rows, part_places in self.patterns.find(batch.texts(self.operand)):
            count += len(part_rows)
            if count > _MAX_PAIRS:
                return None
            rows.append(part_rows)
            places.append(part_places)
        all_rows = np.concatenate(rows)
        order = np.argsort(all_rows, kind="stable")
        return all_rows[order], np.concatenate(places)[order]

    def _masks(self, batch: ProbeBatch, chosen: Int64s) -> BoundAxis:
        masks = [batch.mask(self._condition(number)) for number in chosen.tolist()]
        return Masks(self.nodes[chosen], masks)

    def _condition(self, number: int) -> Condition:
        pattern = Literal(self.patterns.texts[int(self.places[number])].as_py(), TEXT)
        like = Call(Op.LIKE, (self.operand, pattern), BOOLEAN)
        return Condition(like, bool(self.is_match[number]))


def _slices_of(pairs: PatternPairs) -> Callable[[slice], Iterator[PatternPairs]]:
    """Return a function that yields the pairs of a slice of the rows, numbered from its first."""

    def pairs_of(rows: slice) -> Iterator[PatternPairs]:
        begin, end = np.searchsorted(pairs[0], [rows.start, rows.stop])
        yield pairs[0][begin:end] - rows.start, pairs[1][begin:end]

    return pairs_of


class _LikeLines:
    """LIKE bound to a batch: a line for each pattern that `occurs`, and then one of all rows that
    are not NULL, if a node is to hold for rows that don't match."""

    def __init__(
        self,
        axis: LikeAxis,
        batch: ProbeBatch,
        occurs: Mask,
        pairs_of: Callable[[slice], Iterator[PatternPairs]],
    ) -> None:
        self._pairs_of, self._valid = pairs_of, batch.valid(axis.operand)
        # The line of each pattern; line 0 is the empty one.
        self._line_of = np.where(occurs, np.cumsum(occurs), 0)
        self._has_opposites = not axis.is_match.all()
        self.count = int(occurs.sum()) + self._has_opposites
        lines = self._line_of[axis.places]
        self.nodes = axis.nodes
        self.plus = np.where(axis.is_match, lines, self.count)
        self.minus = np.where(axis.is_match, 0, lines)

    def fill(self, rows: slice, shift: int, into: UInt64s) -> None:
        into[:] = 0
        for pair_rows, places in self._pairs_of(rows):
            lines = self._line_of[places]
            is_line = lines > 0
            _set_bits(into.view(np.uint8), lines[is_line] - 1, pair_rows[is_line] + shift)
        if self._has_opposites:
            count = rows.stop - rows.start
            valid = np.ones(count, np.bool_) if self._valid is None else self._valid[rows]
            into[self.count - 1] = pack(valid, shift)


def _set_bits(octets: UInt8s, lines: Int64s, bits: Int64s) -> None:
    """Set bit `bits[i]` of line `lines[i]`."""
    # Bits with the same place in their byte are in different bytes of a line, or are the same bit:
    # one assignment sets all of them.
    for place in range(8):
        chosen = np.flatnonzero(bits & 7 == place)
        if len(chosen):
            octets[lines[chosen], bits[chosen] >> 3] |= np.uint8(1 << place)
