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


def split(formula: Formula) -> Split | None:
    """None where nothing is fixed."""
    fixed: dict[Expression, tuple[Key, ...]] = {}
    ranges: dict[Expression, tuple[int, int]] = {}
    rest: list[Formula] = []
    combinations = 1
    for part in formula.parts if isinstance(formula, Every) else (formula,):
        match _points(part):
            case operand, keys if operand not in fixed and combinations * len(keys) <= _MOST:
                fixed[operand] = keys
                combinations *= len(keys)
                continue
        match part:
            case Interval(operand, _, _) if not is_wide(operand.type):
                bounds = bounds_of(part)
                if bounds != EVERYTHING:
                    ranges[operand] = bounds
                    continue
        rest.append(part)
    return Split(fixed, ranges, every(rest) if rest else ALWAYS) if fixed else None


def _points(part: Formula) -> tuple[Expression, tuple[Key, ...]] | None:
    """The operand and the values it may have, if that is all a part says."""
    if not isinstance(part, Some):
        found = _point(part)
        return None if found is None else (found[0], (found[1],))
    points = [_point(each) for each in part.parts]
    operands = {point[0] for point in points if point is not None}
    if None in points or len(operands) != 1:
        return None
    return operands.pop(), tuple(dict.fromkeys(point[1] for point in points if point is not None))


def _point(part: Formula) -> tuple[Expression, Key] | None:
    match part:
        case Member(operand, value) if len(value.encode()) <= LONGEST_TEXT:
            return operand, value
        case Interval(operand, _, _) if operand.type.kind is not Kind.TEXT:
            key = point_of(part)
            return None if key is None else (operand, key)
    return None
