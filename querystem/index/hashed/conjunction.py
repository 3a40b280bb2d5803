"""Predicates that fix operands by equality, split into the parts that are indexed."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from datastem.types import Kind
from querystem.expressions import Expression
from querystem.index.batch import EVERYTHING, bounds_of, is_wide, point_of
from querystem.index.formula import (
    ALWAYS,
    Condition,
    Every,
    Formula,
    Interval,
    Member,
    Some,
    all_of,
    like_of,
)
from querystem.index.formula_text import formula_text
from querystem.index.hashed.combinations import LONGEST_TEXT

# A predicate with more combinations of values is matched by bitmaps.
MAX_COMBINATIONS = 32
KeyValue = int | str
# An operand, and whether it has to match a pattern or must not.
LikeKey = tuple[Expression, bool]


@dataclass(frozen=True, slots=True)
class FixedConjunction:
    """A conjunction in four parts: operands that are `fixed` to one of some values, `ranges` with
    the least and the greatest key of an operand, the pattern of `likes`, and the `residual`
    condition."""

    fixed: dict[Expression, tuple[KeyValue, ...]]
    ranges: dict[Expression, tuple[int, int]]
    likes: dict[LikeKey, str]
    residual: Formula

    @property
    def residual_text(self) -> str | None:
        """The residual condition as a text; None if there is none."""
        return None if self.residual == ALWAYS else formula_text(self.residual)

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
    likes: dict[LikeKey, str] = {}
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
            case Condition(_, value) if (like := like_of(part)) is not None:
                # A second pattern for the same operand stays a residual condition.
                if likes.setdefault((like[0], value), like[1]) == like[1]:
                    continue
        residual.append(part)
    if not fixed:
        return None
    return FixedConjunction(fixed, ranges, likes, all_of(residual) if residual else ALWAYS)


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
