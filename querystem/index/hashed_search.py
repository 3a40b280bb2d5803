"""One batch against a segment: rows find their combination, combinations their predicates.

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
from querystem.index.combinations import KeyColumn, codes_of, take
from querystem.index.formula import ALWAYS, Formula
from querystem.index.hashed_segment import NO_RESIDUAL, HashedSegment
from querystem.index.matches import RowLists
from querystem.kernel.vector import both

_LOW = 0xFFFFFFFF
# How many pairs of a row and a slot are checked at a time.
_PAIRS = 1 << 16
# A combination with a greater share of the rows is checked against its predicates as a matrix.
_HEAVY_SHARE = 16
_HEAVY_LEAST = 1024

Pairs = tuple[Int64s, Int64s]


# ---- residual conditions


@dataclass(slots=True)
class _Residual:
    formula: Formula
    users: int = 0


class ResidualConditions:
    """The conditions of hashed predicates beside their fixed operands and ranges, equal ones once.

    A condition has a number, which is used again after the condition has gone.
    """

    def __init__(self) -> None:
        self._residuals: dict[int, _Residual] = {}
        self._numbers: dict[Formula, int] = {}
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._residuals)

    def acquire(self, formula: Formula) -> int:
        if formula == ALWAYS:
            return NO_RESIDUAL
        number = self._numbers.get(formula)
        if number is None:
            number = self._free.pop() if self._free else len(self._residuals)
            self._numbers[formula] = number
            self._residuals[number] = _Residual(formula)
        self._residuals[number].users += 1
        return number

    def release(self, number: int) -> None:
        if number == NO_RESIDUAL:
            return
        residual = self._residuals[number]
        residual.users -= 1
        if not residual.users:
            del self._residuals[number], self._numbers[residual.formula]
            self._free.append(number)

    def formula(self, number: int) -> Formula:
        return self._residuals[number].formula

    def mask(self, number: int, batch: ProbeBatch) -> Mask:
        return truth(self._residuals[number].formula, batch)

    def _check(self, users: dict[int, int]) -> None:
        assert users == {number: residual.users for number, residual in self._residuals.items()}
        formulas = {number: residual.formula for number, residual in self._residuals.items()}
        assert self._numbers == {formula: number for number, formula in formulas.items()}
        numbers = [*self._residuals, *self._free]
        assert sorted(numbers) == list(range(len(numbers)))


# ---- candidates: rows and slots with the same combination of values


@dataclass(frozen=True, slots=True)
class Candidates:
    """The slots of a segment and the rows of a batch that have the same combination of values.

    Slot `slots[i]`, ascending, has combination `which[i]` of those that occur. Combination c has
    `row_counts[c]` of the `rows`, ascending, from `row_begins[c]` on.
    """

    rows: Int64s
    row_begins: Int64s
    row_counts: Int64s
    slots: Int64s
    which: Int64s

    @classmethod
    def of(cls, segment: HashedSegment, rows: Int64s, places: Int64s) -> Candidates:
        """The candidates of `rows`, each of which has the combination at its place in `places`."""
        # A pair of numbers below 2^32 in one int64 is sorted in one step.
        packed = np.sort(places << 32 | rows)
        places = packed >> 32
        begins = np.flatnonzero(np.append(True, places[1:] != places[:-1]))
        counts = np.diff(np.append(begins, len(places)))
        slots, which = _slots(segment, places[begins])
        return cls(packed & _LOW, begins, counts, slots, which)

    def of_combinations(self, chosen: Mask) -> Candidates:
        kept = chosen[self.which]
        return Candidates(
            self.rows, self.row_begins, self.row_counts, self.slots[kept], self.which[kept]
        )

    def rows_of(self, combination: int) -> slice:
        begin = int(self.row_begins[combination])
        return slice(begin, begin + int(self.row_counts[combination]))

    def pairs(self, most: int) -> Iterator[tuple[Int64s, Int64s]]:
        """Every slot with each of its rows, as places in `slots` and in `rows`.

        They come about `most` at a time, or as many as one slot has.
        """
        counts = self.row_counts.take(self.which)
        ends = np.cumsum(counts)
        shift = self.row_begins.take(self.which) - (ends - counts)
        edges = np.searchsorted(ends, np.arange(0, counts.sum(), most))
        done = 0
        for first, last in pairwise(np.unique(np.append(edges, len(ends))).tolist()):
            which = np.repeat(np.arange(first, last), counts[first:last])
            places = shift.take(which)
            places += np.arange(done, done + len(which))
            done += len(which)
            yield which, places


def _slots(segment: HashedSegment, places: Int64s) -> tuple[Int64s, Int64s]:
    """The slots of the combinations at `places`, ascending, and the combination of each."""
    begins = segment.begins[places]
    counts = segment.begins[places + 1] - begins
    which = np.repeat(np.arange(len(places)), counts)
    shift = begins - (np.cumsum(counts) - counts)
    slots = segment.slots[np.arange(len(which)) + shift.take(which)].astype(np.int64)
    if segment.has_dead:
        left = ~segment.dead[slots]
        slots, which = slots[left], which[left]
    packed = np.sort(slots << 32 | which)
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
        """The rows that have a combination of the segment, and the place of each one's."""
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


def search(
    segment: HashedSegment, rows: CodedRows, residuals: ResidualConditions
) -> list[RowLists]:
    """The matches of a segment's predicates; no predicate is in two of the lists."""
    met, places = rows.find(segment)
    if not len(met):
        return []
    found = Candidates.of(segment, met, places)
    heavy = found.row_counts > max(rows.batch.length // _HEAVY_SHARE, _HEAVY_LEAST)
    if segment.repeats or not heavy.any():
        return [_Check(segment, found, rows.batch, residuals).by_pairs()]
    parts = [_Check(segment, found.of_combinations(~heavy), rows.batch, residuals).by_pairs()]
    for each in np.flatnonzero(heavy).tolist():
        one = found.of_combinations(np.arange(len(heavy)) == each)
        parts.append(_Check(segment, one, rows.batch, residuals).by_matrix(each))
    return parts


class _Check:
    """Checks candidates against their ranges and residual conditions."""

    def __init__(
        self,
        segment: HashedSegment,
        found: Candidates,
        batch: ProbeBatch,
        residuals: ResidualConditions,
    ) -> None:
        self._segment, self._found, self._batch, self._residuals = segment, found, batch, residuals
        self._residual = segment.residual[found.slots] if segment.has_residual else None
        self._ranges = [
            _Range(side, found, batch, *segment.ranges[side]) for side in segment.ranges
        ]

    def by_pairs(self) -> RowLists:
        return self._lists(map(self._check_ranges, self._found.pairs(_PAIRS)))

    def by_matrix(self, combination: int) -> RowLists:
        """Checks all slots of one combination with all its rows."""
        rows = self._found.rows_of(combination)
        step = max(_PAIRS // (rows.stop - rows.start), 1)
        parts = range(0, len(self._found.slots), step)
        return self._lists(self._matrix(slice(begin, begin + step), rows) for begin in parts)

    def _matrix(self, slots: slice, rows: slice) -> Pairs:
        count = len(self._found.slots[slots])
        inside = np.ones((count, rows.stop - rows.start), np.bool_)
        for each in self._ranges:
            each.narrow(inside, slots, rows)
        line, place = np.nonzero(inside)
        return self._check_residual(line + slots.start, place + rows.start)

    def _check_ranges(self, pairs: Pairs) -> Pairs:
        which, places = pairs
        inside: Mask | None = None
        for each in self._ranges:
            inside = both(inside, each.inside(which, places))
        if inside is not None:
            left = np.flatnonzero(inside)
            which, places = which.take(left), places.take(left)
        return self._check_residual(which, places)

    def _check_residual(self, which: Int64s, places: Int64s) -> Pairs:
        """The pairs whose residual condition holds, with row numbers instead of places."""
        rows = self._found.rows.take(places)
        if self._residual is None:
            return which, rows
        residual = self._residual.take(which)
        left = residual == NO_RESIDUAL
        order = np.argsort(residual, kind="stable")
        numbers, counts = np.unique(residual, return_counts=True)
        ends = np.cumsum(counts)
        for number, begin, end in zip(numbers.tolist(), ends - counts, ends, strict=True):
            if number != NO_RESIDUAL:
                pairs = order[begin:end]
                left[pairs] = self._residuals.mask(number, self._batch)[rows[pairs]]
        return which[left], rows[left]

    def _lists(self, parts: Iterator[Pairs]) -> RowLists:
        pairs = list(parts)
        ids = self._segment.ids[self._found.slots]
        which = np.concatenate([np.empty(0, np.int64), *[part[0] for part in pairs]])
        rows = np.concatenate([np.empty(0, np.int64), *[part[1] for part in pairs]])
        if self._segment.repeats:
            ids, first = np.unique(ids, return_inverse=True)
            order = np.sort(first[which] << 32 | rows)
            which, rows = order >> 32, order & 0xFFFFFFFF
        counts = np.bincount(which, minlength=len(ids))
        held = np.flatnonzero(counts > 0)
        numbered = (rows + self._batch.first).astype(np.uint32)
        return RowLists(ids[held], counts[held], numbered)


class _Range:
    """The bounds that the candidates' slots set one operand."""

    def __init__(
        self, operand: Expression, found: Candidates, batch: ProbeBatch, lo: Int64s, hi: Int64s
    ) -> None:
        keys, valid = batch.keys(operand)
        self._keys = keys.take(found.rows)
        lo, hi = lo.take(found.slots), hi.take(found.slots)
        self._lo = None if (lo == EVERYTHING[0]).all() else lo
        self._hi = None if (hi == EVERYTHING[1]).all() else hi
        self._valid: Mask | None = None
        if valid is not None:
            self._valid = valid.take(found.rows)
            self._unbounded = (lo == EVERYTHING[0]) & (hi == EVERYTHING[1])

    def inside(self, which: Int64s, places: Int64s) -> Mask | None:
        """A mask of the pairs that are inside the bounds; None where all are."""
        inside: Mask | None = None
        if self._lo is not None or self._hi is not None:
            keys = self._keys.take(places)
            if self._lo is not None:
                inside = keys >= self._lo.take(which)
            if self._hi is not None:
                inside = both(inside, keys <= self._hi.take(which))
        if self._valid is not None:
            inside = both(inside, self._valid.take(places) | self._unbounded.take(which))
        return inside

    def narrow(self, inside: Mask, slots: slice, rows: slice) -> None:
        """Clears `inside` for the pairs of all `slots` with all `rows` that are out of bounds."""
        keys = self._keys[rows]
        if self._lo is not None:
            inside &= keys >= self._lo[slots, None]
        if self._hi is not None:
            inside &= keys <= self._hi[slots, None]
        if self._valid is not None:
            inside &= self._valid[rows] | self._unbounded[slots, None]
