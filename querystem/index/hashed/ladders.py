"""Ladders: entries of a segment in the order of (combination, bound).

A row has one combination and one key. The entries of that combination whose bound admits the key
are a run of the ladder, found by binary search, so that no other entry is touched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from datastem import native
from datastem.arrays import Array, Int64s, Mask
from querystem.expressions import Expression
from querystem.index.batch import EVERYTHING, ProbeBatch

KeyRange = tuple[Int64s, Int64s]

# With fewer rows a search in each row's own combination is faster than one in steps for all rows.
_FEW_ROWS = 16


@dataclass(frozen=True, slots=True)
class RangeEnd:
    """The low or the high end of an operand's range."""

    operand: Expression
    is_low: bool

    def bounds(self, ranges: Mapping[Expression, KeyRange], slots: Array) -> Int64s:
        """Return this end of some entries, so turned that a key is admitted if its turned key is
        not below."""
        low, high = ranges[self.operand]
        return low.take(slots) if self.is_low else ~high.take(slots)

    def keys(self, batch: ProbeBatch, rows: Array) -> tuple[Int64s, Mask | None]:
        """Return the turned key of some rows, and a mask of those that have one."""
        keys, valid = batch.keys(self.operand)
        turned = keys.take(rows) if self.is_low else ~keys.take(rows)
        return turned, None if valid is None else valid.take(rows)


# An end that admits every key is the least number, low or turned high.
_NO_BOUND = EVERYTHING[0]


@dataclass(frozen=True, slots=True)
class Ladder:
    """Entries with a bound on one side, or with no bound at all.

    Combination c has the entries `slots[begins[c]:begins[c + 1]]`, and `bounds` ascend with them.
    `others` are the other sides on which an entry has a bound.
    """

    side: RangeEnd | None
    slots: Array
    bounds: Int64s
    begins: Array
    others: tuple[RangeEnd, ...]

    def ends(self, batch: ProbeBatch, rows: Int64s, places: Int64s) -> Array:
        """Return, for rows with the combinations at `places`, where the run of entries ends that
        admit the row's key; it begins with the combination."""
        if self.side is None:
            return self.begins.take(places + 1)
        keys, valid = self.side.keys(batch, rows)
        ends = self._search(places, keys)
        return ends if valid is None else np.where(valid, ends, self.begins.take(places))

    def _search(self, places: Int64s, keys: Int64s) -> Array:
        begins, ends = self.begins.take(places), self.begins.take(places + 1)
        if native.core is not None:
            return native.search_runs(self.bounds, begins, ends, keys)
        if len(places) <= _FEW_ROWS:
            runs = zip(begins.tolist(), ends.tolist(), keys, strict=True)
            run_ends = [
                begin + self.bounds[begin:end].searchsorted(key, "right")
                for begin, end, key in runs
            ]
            return np.array(run_ends, np.int32)
        # All rows at once: each goes a step forward if the bound before that place is not above its
        # key, then the same with half the step.
        step = 1 << int((ends - begins).max()).bit_length() >> 1
        reached = begins
        while step:
            ahead = reached + np.int32(step)
            admitted = self.bounds.take(ahead - 1, mode="clip") <= keys
            admitted &= ahead <= ends
            reached = np.where(admitted, ahead, reached)
            step >>= 1
        return reached

    def _check(self, place: Array) -> None:
        """Assert every invariant; entry i has the combination at `place[i]`."""
        assert self.begins[0] == 0 and self.begins[-1] == len(self.slots) == len(self.bounds)
        assert self.side not in self.others
        for number, (begin, end) in enumerate(pairwise(self.begins.tolist())):
            assert (place[self.slots[begin:end]] == number).all()
            assert (np.diff(self.bounds[begin:end].astype(object)) >= 0).all()


def ladders_of(place: Array, ranges: Mapping[Expression, KeyRange], count: int) -> list[Ladder]:
    """Return ladders in which each entry is once: entry i has the combination at `place[i]`, of
    which there are `count`. Entries with a single bound need no other test, so they are apart."""
    sides = [RangeEnd(operand, is_low) for operand in ranges for is_low in (True, False)]
    entries = np.arange(len(place))
    # A line for each side, which says which entries have a bound there.
    has_bound = np.array([side.bounds(ranges, entries) != _NO_BOUND for side in sides])
    has_bound = has_bound.reshape(len(sides), len(place))
    first = (
        np.where(has_bound.any(axis=0), has_bound.argmax(axis=0), -1) if sides else entries * 0 - 1
    )
    kinds = 2 * first + (has_bound.sum(axis=0) > 1)
    ladders = []
    for kind in np.unique(kinds).tolist():
        members = np.flatnonzero(kinds == kind)
        side = None if kind < 0 else sides[kind // 2]
        bounds = np.zeros(len(members), np.int64) if side is None else side.bounds(ranges, members)
        order = np.lexsort((bounds, place[members]))
        slots = members[order].astype(np.int32)
        begins = np.searchsorted(place[slots], np.arange(count + 1)).astype(np.int32)
        others = [
            other
            for other, bounded in zip(sides, has_bound, strict=True)
            if other != side and bounded[members].any()
        ]
        ladders.append(Ladder(side, slots, bounds[order], begins, tuple(others)))
    return ladders


def admitted_pairs(
    sides: Sequence[RangeEnd],
    ranges: Mapping[Expression, KeyRange],
    batch: ProbeBatch,
    slots: Array,
    rows: Array,
) -> Mask:
    """Return a mask of the pairs of a slot and a row whose keys are inside the slot's bounds on all
    of these sides."""
    admitted = np.ones(len(slots), np.bool_)
    for side in sides:
        bounds = side.bounds(ranges, slots)
        keys, valid = side.keys(batch, rows)
        inside = bounds <= keys
        if valid is not None:
            inside &= valid | (bounds == _NO_BOUND)
        admitted &= inside
    return admitted
