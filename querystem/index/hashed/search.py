"""One batch against a segment: from rows to their combination, from there to its predicates.

The candidates are pairs of a row and a slot, slot by slot and rows ascending, so that the matches
of each predicate need no sorting. Ranges and residual conditions are then checked for the pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from datastem.arrays import Int64s, Mask, UInt64s
from datastem.types import Kind
from querystem.expressions import Expression
from querystem.index.batch import EVERYTHING, ProbeBatch, truth
from querystem.index.hashed.combinations import KeyColumn, codes_of, take
from querystem.index.hashed.residuals import NO_RESIDUAL
from querystem.index.hashed.segment import HashedSegment
from querystem.index.matches import RowLists
from querystem.kernel.vector import both

_LOW = 0xFFFFFFFF
# How many pairs of a row and a slot are checked at a time.
_CHECKED_PAIRS = 1 << 16
# A combination with more than a sixteenth of the rows is checked against its predicates as a
# matrix.
_HEAVY_SHARE = 16
_HEAVY_ROWS = 1024

Pairs = tuple[Int64s, Int64s]


# ---- candidates: rows and slots with the same combination of values


@dataclass(frozen=True, slots=True)
class Candidates:
    """The slots of a segment and the rows of a batch that have the same combination of values.

    Slot `slots[i]`, ascending, has combination `groups[i]` of those that occur. Combination c has
    `row_counts[c]` of the `rows`, ascending, from `row_begins[c]` on.
    """

    rows: Int64s
    row_begins: Int64s
    row_counts: Int64s
    slots: Int64s
    groups: Int64s

    @classmethod
    def of(cls, segment: HashedSegment, rows: Int64s, places: Int64s) -> Candidates:
        """Return the candidates of `rows`, each of which has the combination at its place in
        `places`."""
        # A pair of numbers below 2^32 in one int64 is sorted in one step.
        packed = np.sort(places << 32 | rows)
        places = packed >> 32
        begins = np.flatnonzero(np.append(True, places[1:] != places[:-1]))
        counts = np.diff(np.append(begins, len(places)))
        slots, groups = _slots(segment, places[begins])
        return cls(packed & _LOW, begins, counts, slots, groups)

    def of_combinations(self, chosen: Mask) -> Candidates:
        """Return the candidates of the chosen combinations."""
        is_chosen = chosen[self.groups]
        return Candidates(
            self.rows,
            self.row_begins,
            self.row_counts,
            self.slots[is_chosen],
            self.groups[is_chosen],
        )

    def rows_of(self, combination: int) -> slice:
        """Return which of `rows` have a combination."""
        begin = int(self.row_begins[combination])
        return slice(begin, begin + int(self.row_counts[combination]))

    def pairs(self, most: int) -> Iterator[Pairs]:
        """Yield every slot with each of its rows, as places in `slots` and in `rows`.

        They come about `most` at a time, or as many as one slot has.
        """
        counts = self.row_counts.take(self.groups)
        ends = np.cumsum(counts)
        shift = self.row_begins.take(self.groups) - (ends - counts)
        edges = np.searchsorted(ends, np.arange(0, counts.sum(), most))
        done = 0
        for first, last in pairwise(np.unique(np.append(edges, len(ends))).tolist()):
            slots = np.repeat(np.arange(first, last), counts[first:last])
            places = shift.take(slots)
            places += np.arange(done, done + len(slots))
            done += len(slots)
            yield slots, places


def _slots(segment: HashedSegment, places: Int64s) -> tuple[Int64s, Int64s]:
    """Return the slots of the combinations at `places`, ascending, and which of those combinations
    each has."""
    begins = segment.begins[places]
    counts = segment.begins[places + 1] - begins
    groups = np.repeat(np.arange(len(places)), counts)
    shift = begins - (np.cumsum(counts) - counts)
    slots = segment.slots[np.arange(len(groups)) + shift.take(groups)].astype(np.int64)
    if segment.has_dead:
        is_live = ~segment.dead[slots]
        slots, groups = slots[is_live], groups[is_live]
    packed = np.sort(slots << 32 | groups)
    return packed >> 32, packed & _LOW


class CodedRows:
    """The rows of a batch that have a value in every fixed operand, and their codes."""

    def __init__(self, batch: ProbeBatch, fixed: tuple[Expression, ...]) -> None:
        self.batch = batch
        columns = [_column(batch, operand) for operand in fixed]
        valid = None
        for operand in fixed:
            valid = both(valid, batch.valid(operand))
        self._rows = None if valid is None else np.flatnonzero(valid)
        self._columns = columns if self._rows is None else [take(c, self._rows) for c in columns]
        self._codes: dict[int, UInt64s] = {}

    def find(self, segment: HashedSegment) -> tuple[Int64s, Int64s]:
        """Return the rows that have a combination of the segment, and the place of each row's
        combination."""
        seed = segment.combinations.seed
        if seed not in self._codes:
            self._codes[seed] = codes_of(self._columns, seed)
        rows, places = segment.combinations.find(self._columns, self._codes[seed])
        return (rows if self._rows is None else self._rows[rows]), places


def _column(batch: ProbeBatch, operand: Expression) -> KeyColumn:
    if operand.type.kind is Kind.TEXT:
        return batch.texts(operand)
    return np.ascontiguousarray(batch.keys(operand)[0])


# ---- matches


def search(segment: HashedSegment, rows: CodedRows) -> list[RowLists]:
    """Return the matches of a segment's predicates; no predicate is in two of the lists."""
    met, places = rows.find(segment)
    if not len(met):
        return []
    candidates = Candidates.of(segment, met, places)
    heavy = candidates.row_counts > max(rows.batch.length // _HEAVY_SHARE, _HEAVY_ROWS)
    if segment.repeats or not heavy.any():
        return [_Check(segment, candidates, rows.batch).by_pairs()]
    parts = [_Check(segment, candidates.of_combinations(~heavy), rows.batch).by_pairs()]
    for combination in np.flatnonzero(heavy).tolist():
        crowd = candidates.of_combinations(np.arange(len(heavy)) == combination)
        parts.append(_Check(segment, crowd, rows.batch).by_matrix(combination))
    return parts


class _Check:
    """A check of candidates against their ranges and residual conditions.

    Pairs are places of a slot in `candidates.slots` and of a row in `candidates.rows`.
    """

    def __init__(self, segment: HashedSegment, candidates: Candidates, batch: ProbeBatch) -> None:
        self._segment, self._candidates, self._batch = segment, candidates, batch
        self._codes = None
        if len(segment.residuals.texts):
            self._codes = segment.residuals.codes[candidates.slots]
        self._ranges = [
            _Range(operand, candidates, batch, *segment.ranges[operand])
            for operand in segment.ranges
        ]

    def by_pairs(self) -> RowLists:
        """Return the matches of all candidates."""
        return self._lists(map(self._check_ranges, self._candidates.pairs(_CHECKED_PAIRS)))

    def by_matrix(self, combination: int) -> RowLists:
        """Return the matches of all slots of one combination with all its rows."""
        rows = self._candidates.rows_of(combination)
        step = max(_CHECKED_PAIRS // (rows.stop - rows.start), 1)
        parts = range(0, len(self._candidates.slots), step)
        return self._lists(self._matrix(slice(begin, begin + step), rows) for begin in parts)

    def _matrix(self, slots: slice, rows: slice) -> Pairs:
        count = len(self._candidates.slots[slots])
        inside = np.ones((count, rows.stop - rows.start), np.bool_)
        for key_range in self._ranges:
            key_range.narrow(inside, slots, rows)
        line, place = np.nonzero(inside)
        return self._check_residual(line + slots.start, place + rows.start)

    def _check_ranges(self, pairs: Pairs) -> Pairs:
        slots, places = pairs
        inside: Mask | None = None
        for key_range in self._ranges:
            inside = both(inside, key_range.inside(slots, places))
        if inside is not None:
            remaining = np.flatnonzero(inside)
            slots, places = slots.take(remaining), places.take(remaining)
        return self._check_residual(slots, places)

    def _check_residual(self, slots: Int64s, places: Int64s) -> Pairs:
        """Return the pairs whose residual condition holds, with row numbers instead of places."""
        rows = self._candidates.rows.take(places)
        if self._codes is None:
            return slots, rows
        pair_codes = self._codes.take(slots)
        holds = pair_codes == NO_RESIDUAL
        order = np.argsort(pair_codes, kind="stable")
        codes, counts = np.unique(pair_codes, return_counts=True)
        ends = np.cumsum(counts)
        for code, begin, end in zip(codes.tolist(), ends - counts, ends, strict=True):
            if code != NO_RESIDUAL:
                pairs = order[begin:end]
                holds[pairs] = truth(self._segment.residual(code), self._batch)[rows[pairs]]
        return slots[holds], rows[holds]

    def _lists(self, parts: Iterator[Pairs]) -> RowLists:
        pairs = list(parts)
        ids = self._segment.ids[self._candidates.slots]
        slots = np.concatenate([np.empty(0, np.int64), *[part[0] for part in pairs]])
        rows = np.concatenate([np.empty(0, np.int64), *[part[1] for part in pairs]])
        if self._segment.repeats:
            # A predicate with several slots has its rows once, in their order.
            ids, first = np.unique(ids, return_inverse=True)
            packed = np.sort(first[slots] << 32 | rows)
            slots, rows = packed >> 32, packed & _LOW
        counts = np.bincount(slots, minlength=len(ids))
        matched = np.flatnonzero(counts > 0)
        numbered = (rows + self._batch.first).astype(np.uint32)
        return RowLists(ids[matched], counts[matched], numbered)


class _Range:
    """The bounds that the candidates' slots set one operand."""

    def __init__(
        self, operand: Expression, candidates: Candidates, batch: ProbeBatch, lo: Int64s, hi: Int64s
    ) -> None:
        keys, valid = batch.keys(operand)
        self._keys = keys.take(candidates.rows)
        lo, hi = lo.take(candidates.slots), hi.take(candidates.slots)
        self._lo = None if (lo == EVERYTHING[0]).all() else lo
        self._hi = None if (hi == EVERYTHING[1]).all() else hi
        self._valid: Mask | None = None
        if valid is not None:
            self._valid = valid.take(candidates.rows)
            self._unbounded = (lo == EVERYTHING[0]) & (hi == EVERYTHING[1])

    def inside(self, slots: Int64s, places: Int64s) -> Mask | None:
        """Return a mask of the pairs that are inside the bounds; None if all are."""
        inside: Mask | None = None
        if self._lo is not None or self._hi is not None:
            keys = self._keys.take(places)
            if self._lo is not None:
                inside = keys >= self._lo.take(slots)
            if self._hi is not None:
                inside = both(inside, keys <= self._hi.take(slots))
        if self._valid is not None:
            inside = both(inside, self._valid.take(places) | self._unbounded.take(slots))
        return inside

    def narrow(self, inside: Mask, slots: slice, rows: slice) -> None:
        """Clear `inside` for the pairs of all `slots` with all `rows` that are out of bounds."""
        keys = self._keys[rows]
        if self._lo is not None:
            inside &= keys >= self._lo[slots, None]
        if self._hi is not None:
            inside &= keys <= self._hi[slots, None]
        if self._valid is not None:
            inside &= self._valid[rows] | self._unbounded[slots, None]
