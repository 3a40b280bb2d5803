"""One batch against a segment: rows find their combination, combinations their predicates.

What comes of it are pairs of a row and a slot, slot by slot and rows ascending, so that the
matches of each predicate need no sorting. Ranges and rests are then held against the pairs.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from datastem.arrays import Int64s, Mask, UInt64s
from datastem.types import Kind
from querystem.expressions import Expression
from querystem.index.batch import Batch
from querystem.index.hashed.columns import Column, codes_of, take
from querystem.index.hashed.found import Found
from querystem.index.hashed.rests import Rests
from querystem.index.hashed.segment import NO_REST, Segment
from querystem.index.keys import EVERYTHING
from querystem.index.matches import Lists
from querystem.kernel.vector import both

# Pairs of a row and a slot held at a time.
_PAIRS = 1 << 16
# A combination with a greater share of the rows is held against its predicates as a matrix.
_HEAVY_SHARE = 16
_HEAVY_LEAST = 1024

Pairs = tuple[Int64s, Int64s]


class Rows:
    """The rows of a batch that have a value in every fixed operand, and their codes."""

    def __init__(self, batch: Batch, fixed: tuple[Expression, ...]) -> None:
        self.batch = batch
        columns = [_column(batch, operand) for operand in fixed]
        valid = None
        for operand in fixed:
            valid = both(valid, batch.valid(operand))
        self._rows = None if valid is None else np.flatnonzero(valid)
        self._columns = columns if self._rows is None else [take(c, self._rows) for c in columns]
        self._codes: dict[int, UInt64s] = {}

    def find(self, segment: Segment) -> tuple[Int64s, Int64s]:
        """The rows with a combination of the segment, and which."""
        seed = segment.combinations.seed
        if seed not in self._codes:
            self._codes[seed] = codes_of(self._columns, seed)
        rows, places = segment.combinations.find(self._columns, self._codes[seed])
        return (rows if self._rows is None else self._rows[rows]), places


def _column(batch: Batch, operand: Expression) -> Column:
    if operand.type.kind is Kind.TEXT:
        return batch.texts(operand)
    return np.ascontiguousarray(batch.keys(operand)[0])


def search(segment: Segment, rows: Rows, rests: Rests) -> list[Lists]:
    """The matches; no predicate is in two of the lists."""
    met, places = rows.find(segment)
    if not len(met):
        return []
    found = Found.of(segment, met, places)
    heavy = found.row_counts > max(rows.batch.length // _HEAVY_SHARE, _HEAVY_LEAST)
    if segment.repeats or not heavy.any():
        return [_Held(segment, found, rows.batch, rests).by_pairs()]
    parts = [_Held(segment, found.of_combinations(~heavy), rows.batch, rests).by_pairs()]
    for each in np.flatnonzero(heavy).tolist():
        one = found.of_combinations(np.arange(len(heavy)) == each)
        parts.append(_Held(segment, one, rows.batch, rests).by_matrix(each))
    return parts


class _Held:
    """What was found, held against ranges and rests."""

    def __init__(self, segment: Segment, found: Found, batch: Batch, rests: Rests) -> None:
        self._segment, self._found, self._batch, self._rests = segment, found, batch, rests
        self._rest = segment.rest[found.slots] if segment.has_rest else None
        self._ranges = [
            _Range(side, found, batch, *segment.ranges[side]) for side in segment.ranges
        ]

    def by_pairs(self) -> Lists:
        return self._lists(map(self._hold, self._found.pairs(_PAIRS)))

    def by_matrix(self, combination: int) -> Lists:
        """All slots of one combination against all its rows."""
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
        return self._hold_rest(line + slots.start, place + rows.start)

    def _hold(self, pairs: Pairs) -> Pairs:
        which, places = pairs
        inside: Mask | None = None
        for each in self._ranges:
            inside = both(inside, each.inside(which, places))
        if inside is not None:
            left = np.flatnonzero(inside)
            which, places = which.take(left), places.take(left)
        return self._hold_rest(which, places)

    def _hold_rest(self, which: Int64s, places: Int64s) -> Pairs:
        """`which` of the slots found, with the row at `places`; gives rows for places."""
        rows = self._found.rows.take(places)
        if self._rest is None:
            return which, rows
        rest = self._rest.take(which)
        left = rest == NO_REST
        order = np.argsort(rest, kind="stable")
        numbers, counts = np.unique(rest, return_counts=True)
        ends = np.cumsum(counts)
        for number, begin, end in zip(numbers.tolist(), ends - counts, ends, strict=True):
            if number != NO_REST:
                pairs = order[begin:end]
                left[pairs] = self._rests.mask(number, self._batch)[rows[pairs]]
        return which[left], rows[left]

    def _lists(self, parts: Iterator[Pairs]) -> Lists:
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
        return Lists(ids[held], counts[held], numbered)


class _Range:
    """The bounds of one operand, of the slots that were found."""

    def __init__(
        self, operand: Expression, found: Found, batch: Batch, lo: Int64s, hi: Int64s
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
        """Of pairs; None where all are."""
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
        """The same of all slots with all rows, in place."""
        keys = self._keys[rows]
        if self._lo is not None:
            inside &= keys >= self._lo[slots, None]
        if self._hi is not None:
            inside &= keys <= self._hi[slots, None]
        if self._valid is not None:
            inside &= self._valid[rows] | self._unbounded[slots, None]
