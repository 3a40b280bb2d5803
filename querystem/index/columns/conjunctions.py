"""Predicates of one template split into fixed operands, ranges and residual conditions, as columns.

The split is that of `hashed.conjunction.split_conjunction`, for all predicates of a template
together. Predicates of one template may fix different operands, since `a BETWEEN 5 AND 5` fixes
`a`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datastem.arrays import Int64s, Mask
from querystem.expressions import Expression
from querystem.index.batch import EVERYTHING, is_wide
from querystem.index.columns.constants import ConstantColumns
from querystem.index.columns.formulas import (
    ColumnFormula,
    IntervalColumn,
    LikeColumn,
    MemberColumn,
    NodeColumn,
    column_formula,
    filled_texts,
)
from querystem.index.columns.templates import OtherTexts, TemplateTexts, places_by_code
from querystem.index.formula import formula_of
from querystem.index.hashed.coded_texts import CodedTexts
from querystem.index.hashed.combinations import LONGEST_TEXT, KeyColumn, column_of, equal
from querystem.index.hashed.conjunction import MAX_COMBINATIONS, FixedConjunction, LikeKey
from querystem.index.hashed.entries import Entries, join_entries
from querystem.index.hashed.ladders import KeyRange

# One bit of an int64 for each part that may fix an operand.
_MAX_POINT_PARTS = 62


@dataclass(frozen=True, slots=True)
class CheckColumns:
    """What predicates ask for besides the access they are found by; `ranges`, `likes` and
    `residuals` are those of `Entries`."""

    ranges: dict[Expression, KeyRange]
    likes: dict[LikeKey, CodedTexts]
    residuals: CodedTexts


@dataclass(frozen=True, slots=True)
class FixedColumns:
    """Conjunctions that fix the same operands: each operand has one of the values that its columns
    in `fixed` hold for the predicate."""

    fixed: dict[Expression, tuple[KeyColumn, ...]]
    checks: CheckColumns

    @classmethod
    def of(cls, conjunction: FixedConjunction) -> FixedColumns:
        """Return one conjunction as columns of length one."""
        checks = CheckColumns(
            {
                operand: (np.array([least]), np.array([most]))
                for operand, (least, most) in conjunction.ranges.items()
            },
            {key: _coded(pattern) for key, pattern in conjunction.likes.items()},
            _coded(conjunction.residual_text),
        )
        fixed = {
            operand: tuple(column_of([key], operand.type) for key in keys)
            for operand, keys in conjunction.fixed.items()
        }
        return cls(fixed, checks)

    @property
    def key(self) -> AccessKey:
        return False, tuple(sorted(self.fixed, key=repr))

    def entries(self, order: tuple[Expression, ...], ids: Int64s) -> Entries:
        """Return the entries of these predicates; `order` is that of the fixed operands."""
        checks = self.checks
        values = itertools.product(*[self.fixed[operand] for operand in order])
        return join_entries(
            [
                Entries(ids, list(columns), checks.ranges, checks.likes, checks.residuals)
                for columns in values
            ]
        )


def _coded(text: str | None) -> CodedTexts:
    return CodedTexts.of(pa.array([text], pa.string()))


@dataclass(frozen=True, slots=True)
class PatternColumns:
    """Conjunctions in which one operand has to match a pattern."""

    operand: Expression
    patterns: pa.Array
    checks: CheckColumns

    @property
    def key(self) -> AccessKey:
        return True, (self.operand,)

    def entries(self, order: tuple[Expression, ...], ids: Int64s) -> Entries:
        """Return the entries of these predicates, whose only key is the pattern."""
        checks = self.checks
        return Entries(ids, [self.patterns], checks.ranges, checks.likes, checks.residuals)


# Whether predicates are found by a pattern, and the operands that they are found by.
AccessKey = tuple[bool, tuple[Expression, ...]]
AccessColumns = FixedColumns | PatternColumns


@dataclass(frozen=True, slots=True)
class ShapeColumns:
    """The predicates of the texts at places `rows`, which have the same shape in every respect.

    `fixed` is None if they fix no operand. Then a row that satisfies one of them is found by one of
    the `alternatives`, unless there are none.
    """

    rows: Int64s
    formula: ColumnFormula
    fixed: FixedColumns | None
    alternatives: tuple[AccessColumns, ...] = ()


@dataclass(frozen=True, slots=True)
class _PointParts:
    """A part that allows `operand` only the values in `columns`, for predicates in `mask`."""

    operand: Expression
    columns: tuple[KeyColumn, ...]
    mask: Mask


def shape_columns(texts: TemplateTexts) -> Iterator[ShapeColumns | OtherTexts]:
    """Yield the predicates of a template, those that fix the same operands together."""
    constants = texts.constants
    formula = column_formula(formula_of(texts.template), constants)
    parts = _conjuncts(formula)
    points = [_points(part) for part in parts]
    if sum(point is not None for point in points) > _MAX_POINT_PARTS:
        yield OtherTexts(texts.rows)
        return
    # Bit i of a code says that part i fixes an operand; negative codes are for special cases.
    codes = np.zeros(constants.count, np.int64)
    for place, point in enumerate(point for point in points if point is not None):
        codes |= point.mask.astype(np.int64) << place
    codes[_is_special(parts, points, constants.count)] = -1
    for places in _places_of_codes(codes):
        rows = texts.rows if places is None else texts.rows[places]
        if codes[0 if places is None else places[0]] < 0:
            yield OtherTexts(rows)
        elif places is None:
            yield from _shape(rows, formula, constants)
        else:
            yield from _shape(rows, formula.take(places), constants.take(places))


def _places_of_codes(codes: Int64s) -> Iterator[Int64s | None]:
    """Yield the places of each code, or None for all if there is a single code."""
    if (codes == codes[0]).all():
        yield None
        return
    _, numbers = np.unique(codes, return_inverse=True)
    for _, places in places_by_code(numbers):
        yield places


def _points(part: ColumnFormula) -> _PointParts | None:
    """Return the values that a part allows one operand, if it may say nothing else."""
    is_some = isinstance(part, NodeColumn) and not part.is_every
    values = part.parts if isinstance(part, NodeColumn) and is_some else (part,)
    operands = set()
    columns = []
    mask: Mask | None = None
    for value in values:
        match value:
            case IntervalColumn(operand, least, _, _) if not is_wide(operand.type):
                column, is_point = least, value.is_point
            case MemberColumn(operand, texts, _):
                lengths = pc.binary_length(texts).to_numpy(zero_copy_only=False)
                column, is_point = texts, lengths <= LONGEST_TEXT
            case _:
                return None
        operands.add(operand)
        columns.append(column)
        mask = is_point if mask is None else mask & is_point
    if len(operands) != 1 or mask is None:
        return None
    return _PointParts(operands.pop(), tuple(columns), mask)


def _is_special(
    parts: tuple[ColumnFormula, ...], points: list[_PointParts | None], count: int
) -> Mask:
    """Return a mask of the predicates that are to be split one by one: they repeat a value, or
    have an interval that holds every key."""
    special = np.zeros(count, np.bool_)
    for point in points:
        if point is not None:
            for column, twin in itertools.combinations(point.columns, 2):
                special |= equal(column, twin)
    for part in parts:
        if isinstance(part, IntervalColumn) and not is_wide(part.operand.type):
            special |= _holds_all(part)
    return special


def _holds_all(part: IntervalColumn) -> Mask:
    """Return a mask of the intervals that hold every key, but no NULL."""
    return np.asarray((part.least == EVERYTHING[0]) & (part.most == EVERYTHING[1]))


def _shape(
    rows: Int64s, formula: ColumnFormula, constants: ConstantColumns
) -> Iterator[ShapeColumns | OtherTexts]:
    """Yield predicates whose parts fix operands either for all of them or for none."""
    parts = _conjuncts(formula)
    points = [point for part in parts if (point := _points(part)) is not None and point.mask.all()]
    if len({point.operand for point in points}) < len(points):
        yield OtherTexts(rows)
        return
    fixed = _fixed_columns(parts, constants)
    alternatives = _alternatives(parts, constants) if fixed is None else ()
    yield ShapeColumns(rows, formula, fixed, alternatives)


def _conjuncts(formula: ColumnFormula) -> tuple[ColumnFormula, ...]:
    is_every = isinstance(formula, NodeColumn) and formula.is_every
    return formula.parts if isinstance(formula, NodeColumn) and is_every else (formula,)


def _fixed_columns(
    parts: Sequence[ColumnFormula], constants: ConstantColumns
) -> FixedColumns | None:
    """Return a conjunction split by the operands that it fixes; None if it fixes none."""
    points = [(part, point) for part in parts if (point := _points(part)) is not None]
    fixed: dict[Expression, tuple[KeyColumn, ...]] = {}
    fixing: list[ColumnFormula] = []
    combinations = 1
    for part, point in sorted(points, key=lambda pair: _point_order(pair[1])):
        count = combinations * len(point.columns)
        if point.mask.all() and point.operand not in fixed and count <= MAX_COMBINATIONS:
            fixed[point.operand] = point.columns
            fixing.append(part)
            combinations = count
    if not fixed:
        return None
    others = [part for part in parts if not any(part is fixed_part for fixed_part in fixing)]
    return FixedColumns(fixed, _checks(others, constants))


def _point_order(point: _PointParts) -> tuple[int, str]:
    return len(point.columns), repr(point.operand)


def _alternatives(
    parts: Sequence[ColumnFormula], constants: ConstantColumns
) -> tuple[AccessColumns, ...]:
    """Return accesses of which one finds each row of a conjunction that fixes no operand: its first
    pattern, or else the parts of a disjunction in it. Return none if there are no such accesses."""
    access = _access(parts, constants)
    if access is not None:
        return (access,)
    for some in parts:
        if isinstance(some, NodeColumn) and not some.is_every and some.parts:
            others = [part for part in parts if part is not some]
            accesses = [_access([*_conjuncts(part), *others], constants) for part in some.parts]
            chosen = [access for access in accesses if access is not None]
            if len(chosen) == len(accesses) <= MAX_COMBINATIONS:
                return tuple(sorted(chosen, key=lambda access: repr(access.key)))
    return ()


def _access(parts: Sequence[ColumnFormula], constants: ConstantColumns) -> AccessColumns | None:
    fixed = _fixed_columns(parts, constants)
    if fixed is not None:
        return fixed
    for like in parts:
        if isinstance(like, LikeColumn) and like.is_match:
            others = [part for part in parts if part is not like]
            return PatternColumns(like.operand, like.patterns, _checks(others, constants))
    return None


def _checks(parts: Sequence[ColumnFormula], constants: ConstantColumns) -> CheckColumns:
    ranges: dict[Expression, KeyRange] = {}
    likes: dict[LikeKey, CodedTexts] = {}
    residual: list[ColumnFormula] = []
    for part in parts:
        match part:
            case IntervalColumn(operand, least, most, _) if (
                operand not in ranges and not is_wide(operand.type) and not _holds_all(part).any()
            ):
                ranges[operand] = least, most
            case LikeColumn(operand, patterns, is_match, _) if (operand, is_match) not in likes:
                likes[operand, is_match] = CodedTexts.of(patterns)
            case _:
                residual.append(part)
    return CheckColumns(ranges, likes, _residuals(residual, constants))


def _residuals(parts: Sequence[ColumnFormula], constants: ConstantColumns) -> CodedTexts:
    if not parts:
        return CodedTexts.none(constants.count)
    texts = filled_texts([form for part in parts for form in part.forms], constants)
    return CodedTexts.of(texts)
