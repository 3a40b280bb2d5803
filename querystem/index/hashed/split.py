"""What of a conjunction can be found by hash: the operands it fixes by equality."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from datastem.types import Kind
from querystem.expressions import Expression
from querystem.index.formula import ALWAYS, Every, Formula, Interval, Member, Some, every
from querystem.index.hashed.columns import LONGEST_TEXT
from querystem.index.keys import EVERYTHING, bounds_of, is_wide, point_of

# A predicate with more combinations of values stays with the bitmaps.
_MOST = 32
Key = int | str


@dataclass(frozen=True, slots=True)
class Split:
    """True where the fixed operands have one of the `values`, each range holds, and the rest does.

    `ranges` have the least and greatest key of an operand.
    """

    fixed: dict[Expression, tuple[Key, ...]]
    ranges: dict[Expression, tuple[int, int]]
    rest: Formula

    def combinations(self, order: tuple[Expression, ...]) -> list[tuple[Key, ...]]:
        """Of the fixed operands' values, in this order of operands."""
        return list(itertools.product(*[self.fixed[operand] for operand in order]))


@dataclass(frozen=True, slots=True)
class _Points:
    """All the values an operand may have, ascending."""

    operand: Expression
    keys: tuple[Key, ...]


def split(formula: Formula) -> Split | None:
    """None where nothing is fixed. The order of the formula's parts makes no difference."""
    parts = formula.parts if isinstance(formula, Every) else (formula,)
    points = [_points(part) for part in parts]
    fixed = _fixed([each for each in points if each is not None])
    ranges: dict[Expression, tuple[int, int]] = {}
    rest: list[Formula] = []
    for part, found in zip(parts, points, strict=True):
        if found is not None and fixed.get(found.operand) == found.keys:
            continue
        match part:
            case Interval(operand, _, _) if not is_wide(operand.type):
                bounds = bounds_of(part)
                if bounds != EVERYTHING:
                    ranges[operand] = bounds
                    continue
        rest.append(part)
    return Split(fixed, ranges, every(rest) if rest else ALWAYS) if fixed else None


def _fixed(points: list[_Points]) -> dict[Expression, tuple[Key, ...]]:
    """As many as there may be, those with few values first."""
    fixed: dict[Expression, tuple[Key, ...]] = {}
    combinations = 1
    for each in sorted(points, key=lambda each: (len(each.keys), repr(each.operand), each.keys)):
        if each.operand not in fixed and combinations * len(each.keys) <= _MOST:
            fixed[each.operand] = each.keys
            combinations *= len(each.keys)
    return fixed


def _points(part: Formula) -> _Points | None:
    """What a part says of one operand, if that is all."""
    points = [_point(each) for each in (part.parts if isinstance(part, Some) else (part,))]
    operands = {point[0] for point in points if point is not None}
    if None in points or len(operands) != 1:
        return None
    keys = {point[1] for point in points if point is not None}
    return _Points(operands.pop(), tuple(sorted(keys)))


def _point(part: Formula) -> tuple[Expression, Key] | None:
    match part:
        case Member(operand, value) if len(value.encode()) <= LONGEST_TEXT:
            return operand, value
        case Interval(operand, _, _) if operand.type.kind is not Kind.TEXT:
            key = point_of(part)
            return None if key is None else (operand, key)
    return None
