"""Ranges: pairs of rows where a value of one side lies between bounds from the other side.

One side is sorted; the rows that go with a row of the other side are then a range of it, found by
binary search. If the sides have equalities as well, they are sorted by those join keys first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s, Mask
from querystem.expressions import Expression, Op
from querystem.join.factors import Comparison
from querystem.join.keys import coordinates
from querystem.join.sides import PAIRS_AT_ONCE, Pairs, Side, at_places
from querystem.pace import spending

# Units (`querystem.pace`) of a row that is sorted and looked up, and of a pair that is found.
_ROW_UNITS, _PAIR_UNITS = 300, 20

_ABOVE = frozenset({Op.GT, Op.GE})
_SearchSide: TypeAlias = Literal["left", "right"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Conditions `value op bound`: the value is of one side, the bounds are of the other."""

    value: Expression
    conditions: tuple[Comparison, ...]

    @property
    def is_band(self) -> bool:
        """Whether there is a bound from below and one from above."""
        return len({condition.op in _ABOVE for condition in self.conditions}) == 2


def bounds_of(inequalities: Sequence[Comparison]) -> list[Bounds]:
    """Return the inequalities by their left expression."""
    groups: dict[Expression, list[Comparison]] = {}
    for condition in inequalities:
        groups.setdefault(condition.left, []).append(condition)
    return [Bounds(value, tuple(group)) for value, group in groups.items()]


@dataclass(frozen=True)
class RangeJoin:
    """The pairs of a row of `ordered` and a row of `probing` for which all conditions of `bounds`
    are true, and whose codes are equal, if there are any. A code below 0 equals no other.
    """

    ordered: Side
    probing: Side
    bounds: Bounds
    codes: tuple[Int64s, Int64s] | None = None

    @cached_property
    def count(self) -> int:
        """The number of pairs."""
        if not self.ordered.length or not self.probing.length:
            return 0
        return int(self._ranges.counts.sum())

    @property
    def at_most(self) -> int:
        return self.count

    def pairs(self) -> Iterator[Pairs]:
        """Yield all pairs as (row of `ordered`, row of `probing`), some at a time."""
        if not self.count:
            return
        ranges = self._ranges
        for begin, end in _pieces(ranges.counts):
            pairs = ranges.pairs(begin, end)
            spending()(_PAIR_UNITS * len(pairs[0]))
            yield pairs

    @cached_property
    def _ranges(self) -> _Ranges:
        spending()(_ROW_UNITS * (self.ordered.length + self.probing.length))
        type_ = self.bounds.value.type
        # `rows` are the places in `value` of each combination's value. Coordinates against no right
        # values serve only to sort.
        value, rows = self.ordered.few_values(self.bounds.value)
        ordered_numbers, _ = coordinates(value, type_, value[:0], type_)
        places = self._places(at_places(ordered_numbers, rows), at_places(_valid(value), rows))
        starts, ends = places.whole(self.probing.length)
        # starts[r] and ends[r] are the range of row r of the probing side; each bound narrows it.
        for condition in self.bounds.conditions:
            bound, bound_rows = self.probing.few_values(condition.right)
            # Coordinates depend on both types, so each bound has its own. They keep the order of
            # the left values, so `places.order` sorts them too.
            numbers, limits = coordinates(value, type_, bound, condition.right.type)
            numbers, limits = at_places(numbers, rows), at_places(limits, bound_rows)
            edges = places.find(numbers, limits, _side(condition.op))
            if condition.op in _ABOVE:
                starts = np.maximum(starts, edges)
            else:
                ends = np.minimum(ends, edges)
            # A NULL bound is true of nothing: its range becomes empty.
            ends = np.where(at_places(_valid(bound), bound_rows), ends, starts)
        return _Ranges(places.order, starts, np.maximum(ends - starts, 0))

    def _places(self, values: Int64s, is_valid: Mask) -> _PlainPlaces | _CodedPlaces:
        # Rows with a NULL value, or with NULL in a key, are left out of the order, so no range has
        # them.
        if self.codes is None:
            rows = np.flatnonzero(is_valid)
            return _PlainPlaces(rows[np.argsort(values[rows], kind="stable")])
        code, sought = self.codes
        rows = np.flatnonzero(is_valid & (code >= 0))
        order = rows[np.lexsort((values[rows], code[rows]))]
        return _CodedPlaces(order, code[order], sought)


@dataclass(frozen=True, slots=True)
class _Ranges:
    """The rows that go with row r of the other side: `order[starts[r] : starts[r] + counts[r]]`."""

    order: Int64s
    starts: Int64s
    counts: Int64s

    def pairs(self, begin: int, end: int) -> Pairs:
        """Return the pairs of the rows `[begin, end)` of the other side."""
        counts = self.counts[begin:end]
        ends = np.cumsum(counts)
        # Pairs are numbered; a row's first pair is at its start, and the others follow.
        shifts = np.repeat(self.starts[begin:end] - (ends - counts), counts)
        ordered = self.order[np.arange(len(shifts)) + shifts]
        return ordered, np.repeat(np.arange(begin, end), counts)


@dataclass(frozen=True, slots=True)
class _PlainPlaces:
    """Rows in the order of their values, and the places of limits among them."""

    order: Int64s

    def whole(self, length: int) -> tuple[Int64s, Int64s]:
        """Return begin and end of the range of all values, for each row of the other side."""
        return np.zeros(length, np.int64), np.full(length, len(self.order))

    def find(self, values: Int64s, limits: Int64s, side: _SearchSide) -> Int64s:
        """Return the places where limits stand among the values, before or after equal ones."""
        return values[self.order].searchsorted(limits, side)


@dataclass(frozen=True, slots=True)
class _CodedPlaces:
    """Rows in the order of their codes, then of their values, and the places of limits among them.

    `sought` is the code of each row of the other side. Code c and the value that has rank r among
    all values are one number, c * room + r.
    """

    order: Int64s
    codes: Int64s
    sought: Int64s

    def whole(self, _: int) -> tuple[Int64s, Int64s]:
        """Return begin and end of the range of a row's code, for each row of the other side."""
        # A sought code of −1 is before all codes: its range is empty, as begin and end are both 0.
        begin = self.codes.searchsorted(self.sought)
        return begin, self.codes.searchsorted(self.sought, "right")

    def find(self, values: Int64s, limits: Int64s, side: _SearchSide) -> Int64s:
        """Return the places where limits stand among the values of their codes."""
        values = values[self.order]
        # A limit above all values has rank len(distinct); `room` keeps it below the next code.
        distinct = np.unique(values)
        room = len(distinct) + 1
        numbers = self.codes * room + distinct.searchsorted(values)
        return numbers.searchsorted(self.sought * room + distinct.searchsorted(limits, side))


def _side(op: Op) -> _SearchSide:
    """Return on which side of equal values a limit is put, so that the range has them or not."""
    return "right" if op in (Op.GT, Op.LE) else "left"


def _pieces(counts: Int64s) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows with about PAIRS_AT_ONCE pairs each, or a single row with more."""
    ends = np.cumsum(counts)
    begin = 0
    while begin < len(counts):
        done = ends[begin - 1] if begin else 0
        end = max(begin + 1, int(ends.searchsorted(done + PAIRS_AT_ONCE, "right")))
        yield begin, end
        begin = end


def _valid(array: pa.Array) -> Mask:
    valid: Mask = array.is_valid().to_numpy(zero_copy_only=False)
    return valid
