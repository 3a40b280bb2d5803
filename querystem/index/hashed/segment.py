"""Predicates that fix operands by equality, and many of them as the columns of a segment.

A segment is built once and only loses predicates. New predicates come in new segments, which are
merged as they become alike in size: so each predicate is moved a logarithmic number of times.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from datastem.arrays import Array, Int64s
from datastem.types import Kind
from querystem.expressions import Expression
from querystem.index.batch import EVERYTHING, bounds_of, is_wide, point_of
from querystem.index.formula import ALWAYS, Every, Formula, Interval, Member, Some, all_of
from querystem.index.formula_text import read_formula
from querystem.index.hashed.combinations import LONGEST_TEXT, Combinations, KeyColumn, concat, take
from querystem.index.hashed.ladders import KeyRange, Ladder, ladders_of
from querystem.index.hashed.residuals import Residuals, join_residuals

# A predicate with more combinations of values is matched by bitmaps.
MAX_COMBINATIONS = 32
KeyValue = int | str


@dataclass(frozen=True, slots=True)
class FixedConjunction:
    """A conjunction in three parts: operands that are `fixed` to one of some values, `ranges` with
    the least and the greatest key of an operand, and the `residual` condition."""

    fixed: dict[Expression, tuple[KeyValue, ...]]
    ranges: dict[Expression, tuple[int, int]]
    residual: Formula

    def combinations(self, order: tuple[Expression, ...]) -> list[tuple[KeyValue, ...]]:
        """Return all combinations of the fixed operands' values; `order` is that of the
        operands."""
        return list(itertools.product(*[self.fixed[operand] for operand in order]))


@dataclass(frozen=True, slots=True)
class _Points:
    """All the values an operand may have, ascending."""

    operand: Expression
    keys: tuple[KeyValue, ...]


def split_conjunction(formula: Formula) -> FixedConjunction | None:
    """Return the parts of a formula that fixes an operand; None if it fixes none.

    The order of the formula's parts makes no difference.
    """
    parts = formula.parts if isinstance(formula, Every) else (formula,)
    part_points = [_points(part) for part in parts]
    fixed = _fixed([points for points in part_points if points is not None])
    ranges: dict[Expression, tuple[int, int]] = {}
    residual: list[Formula] = []
    for part, points in zip(parts, part_points, strict=True):
        if points is not None and fixed.get(points.operand) == points.keys:
            continue
        match part:
            case Interval(operand, _, _) if not is_wide(operand.type):
                bounds = bounds_of(part)
                if bounds != EVERYTHING:
                    ranges[operand] = bounds
                    continue
        residual.append(part)
    if not fixed:
        return None
    return FixedConjunction(fixed, ranges, all_of(residual) if residual else ALWAYS)


def _fixed(points: list[_Points]) -> dict[Expression, tuple[KeyValue, ...]]:
    """Return the operands that are fixed: as many as their combinations allow, those with few
    values first."""
    fixed: dict[Expression, tuple[KeyValue, ...]] = {}
    combinations = 1
    for operand_points in sorted(points, key=lambda p: (len(p.keys), repr(p.operand), p.keys)):
        operand, keys = operand_points.operand, operand_points.keys
        if operand not in fixed and combinations * len(keys) <= MAX_COMBINATIONS:
            fixed[operand] = keys
            combinations *= len(keys)
    return fixed


def _points(part: Formula) -> _Points | None:
    """Return the values that a part allows one operand; None if the part says anything else."""
    points = [_point(value) for value in (part.parts if isinstance(part, Some) else (part,))]
    operands = {point[0] for point in points if point is not None}
    if None in points or len(operands) != 1:
        return None
    keys = {point[1] for point in points if point is not None}
    return _Points(operands.pop(), tuple(sorted(keys)))


def _point(part: Formula) -> tuple[Expression, KeyValue] | None:
    match part:
        case Member(operand, value) if len(value.encode()) <= LONGEST_TEXT:
            return operand, value
        case Interval(operand, _, _) if operand.type.kind is not Kind.TEXT:
            key = point_of(part)
            return None if key is None else (operand, key)
    return None


@dataclass(frozen=True, slots=True)
class Entries:
    """Hashed predicates as columns: an entry for each predicate and combination of its values.

    `fixed` has a column for each fixed operand, `ranges` the least and the greatest key of others,
    and `residuals` the conditions that remain.
    """

    ids: Int64s
    fixed: list[KeyColumn]
    ranges: dict[Expression, KeyRange]
    residuals: Residuals

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, places: Int64s) -> Entries:
        """Return the entries at these places."""
        return Entries(
            self.ids[places],
            [take(column, places) for column in self.fixed],
            {operand: (lo[places], hi[places]) for operand, (lo, hi) in self.ranges.items()},
            self.residuals.take(places),
        )


def join_entries(parts: Sequence[Entries]) -> Entries:
    """Return the entries of all parts, one after the other."""
    if len(parts) == 1:
        return parts[0]
    operands = dict.fromkeys(operand for part in parts for operand in part.ranges)
    return Entries(
        np.concatenate([part.ids for part in parts]),
        [concat(columns) for columns in zip(*[part.fixed for part in parts], strict=True)],
        {operand: _join_range(parts, operand) for operand in operands},
        join_residuals([part.residuals for part in parts]),
    )


def _join_range(parts: Sequence[Entries], operand: Expression) -> KeyRange:
    sides = [part.ranges.get(operand) or _unbounded(len(part)) for part in parts]
    return np.concatenate([lo for lo, _ in sides]), np.concatenate([hi for _, hi in sides])


def _unbounded(count: int) -> KeyRange:
    return np.full(count, EVERYTHING[0]), np.full(count, EVERYTHING[1])


class HashedSegment:
    """Entries that are looked up by their combination; a slot is the place of an entry.

    Entries ascend by predicate, and each is in one of the `ladders`.
    `live` is the number of predicates that were not removed; the others' slots are `dead`.
    """

    def __init__(
        self,
        ids: Int64s,
        combinations: Combinations,
        place: Array,
        ranges: dict[Expression, KeyRange],
        residuals: Residuals,
        ladders: Sequence[Ladder],
    ) -> None:
        """Take entries that ascend by predicate: entry i has the combination at `place[i]`."""
        self.ids, self.combinations, self.place = ids, combinations, place
        self.ranges, self.residuals, self.ladders = ranges, residuals, ladders
        self._formulas: dict[int, Formula] = {}
        is_next = ids[1:] != ids[:-1]
        self.repeats = not is_next.all()
        # The number of the predicate of each slot, and the predicate of each number.
        self._numbers = np.append(0, np.cumsum(is_next)) if self.repeats else None
        self._ids = ids[np.append(True, is_next)] if self.repeats else ids
        self.has_dead = False
        self.dead = np.zeros(len(self.ids), np.bool_)
        self.live = len(self._ids)

    @classmethod
    def of(cls, entries: Entries) -> HashedSegment:
        """Return a segment of these entries."""
        entries = entries.take(np.argsort(entries.ids, kind="stable"))
        combinations, places = Combinations.of(entries.fixed)
        place = places.astype(np.int32)
        ladders = ladders_of(place, entries.ranges, len(combinations))
        residuals = entries.residuals.compact()
        return cls(entries.ids, combinations, place, entries.ranges, residuals, ladders)

    def residual(self, code: int) -> Formula:
        """Return a residual condition, which is read at its first use."""
        if code not in self._formulas:
            self._formulas[code] = read_formula(self.residuals.texts[code].as_py())
        return self._formulas[code]

    def numbers(self, slots: Array) -> Array:
        """Return numbers for the predicates of slots, which ascend as the predicates do."""
        return slots if self._numbers is None else self._numbers.take(slots)

    def ids_of(self, numbers: Array) -> Int64s:
        """Return the predicates with these numbers."""
        return self._ids.take(numbers)

    def find(self, id_: int) -> Int64s:
        """Return the slots of a predicate, none if it is not here."""
        first, last = np.searchsorted(self.ids, [id_, id_ + 1])
        slots = np.arange(first, last)
        return slots[~self.dead[slots]]

    def remove(self, slots: Int64s) -> None:
        """Remove a predicate, given all its slots."""
        self.dead[slots] = True
        self.live -= 1
        self.has_dead = True

    def entries(self) -> Entries:
        """Return the entries of the predicates that were not removed."""
        whole = Entries(
            self.ids,
            [take(column, self.place) for column in self.combinations.columns],
            self.ranges,
            self.residuals,
        )
        return whole.take(np.flatnonzero(~self.dead)) if self.has_dead else whole

    def _check(self) -> None:
        self.combinations._check()
        assert (np.diff(self.ids) >= 0).all()
        assert self.live == len(np.unique(self.ids[~self.dead])) > 0
        slots = np.concatenate([ladder.slots for ladder in self.ladders])
        assert (np.sort(slots) == np.arange(len(self.ids))).all()
        for ladder in self.ladders:
            ladder._check(self.place)
