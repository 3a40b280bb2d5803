"""Predicates of one template split into fixed operands, ranges and residual conditions, as columns.

The split is that of `hashed.segment.split_conjunction`, for all predicates of a template together.
Predicates of one template may fix different operands, since `a BETWEEN 5 AND 5` fixes `a`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
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
    MemberColumn,
    NodeColumn,
    column_formula,
    filled_texts,
)
from querystem.index.columns.templates import OtherTexts, TemplateTexts, places_by_code
from querystem.index.formula import ALWAYS, formula_of
from querystem.index.formula_text import formula_text
from querystem.index.hashed.combinations import LONGEST_TEXT, KeyColumn, column_of, equal
from querystem.index.hashed.ladders import KeyRange
from querystem.index.hashed.residuals import Residuals
from querystem.index.hashed.segment import (
    MAX_COMBINATIONS,
    Entries,
    FixedConjunction,
    join_entries,
)

# One bit of an int64 for each part that may fix an operand.
_MAX_POINT_PARTS = 62


@dataclass(frozen=True, slots=True)
class FixedColumns:
    """Conjunctions that fix the same operands: each operand has one of the values that its columns
    in `fixed` hold for the predicate. `ranges` and `residuals` are those of `Entries`."""

    fixed: dict[Expression, tuple[KeyColumn, ...]]
    ranges: dict[Expression, KeyRange]
    residuals: Residuals

    @classmethod
    def of(cls, conjunction: FixedConjunction) -> FixedColumns:
        """Return one conjunction as columns of length one."""
        condition = conjunction.residual
        text = None if condition == ALWAYS else formula_text(condition)
        return cls(
            {
                operand: tuple(column_of([key], operand.type) for key in keys)
                for operand, keys in conjunction.fixed.items()
            },
            {
                operand: (np.array([least]), np.array([most]))
                for operand, (least, most) in conjunction.ranges.items()
            },
            Residuals.of(pa.array([text], pa.string())),
        )

    def entries(self, order: tuple[Expression, ...], ids: Int64s) -> Entries:
        """Return the entries of these predicates; `order` is that of the fixed operands."""
        values = itertools.product(*[self.fixed[operand] for operand in order])
        return join_entries(
            [Entries(ids, list(columns), self.ranges, self.residuals) for columns in values]
        )


@dataclass(frozen=True, slots=True)
class ShapeColumns:
    """The predicates of the texts at places `rows`, which have the same shape in every respect;
    `fixed` is None if they fix no operand."""

    rows: Int64s
    formula: ColumnFormula
    fixed: FixedColumns | None


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
    parts = formula.parts if isinstance(formula, NodeColumn) and formula.is_every else (formula,)
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
            special |= (part.least == EVERYTHING[0]) & (part.most == EVERYTHING[1])
    return special


def _shape(
    rows: Int64s, formula: ColumnFormula, constants: ConstantColumns
) -> Iterator[ShapeColumns | OtherTexts]:
    """Yield predicates whose parts fix operands either for all of them or for none."""
    parts = formula.parts if isinstance(formula, NodeColumn) and formula.is_every else (formula,)
    part_points = [_points(part) for part in parts]
    points = [point for point in part_points if point is not None and point.mask.all()]
    if len({point.operand for point in points}) < len(points):
        yield OtherTexts(rows)
        return
    fixed: dict[Expression, tuple[KeyColumn, ...]] = {}
    combinations = 1
    for point in sorted(points, key=lambda point: (len(point.columns), repr(point.operand))):
        if combinations * len(point.columns) <= MAX_COMBINATIONS:
            fixed[point.operand] = point.columns
            combinations *= len(point.columns)
    if not fixed:
        yield ShapeColumns(rows, formula, None)
        return
    ranges: dict[Expression, KeyRange] = {}
    residual: list[ColumnFormula] = []
    for part, part_point in zip(parts, part_points, strict=True):
        is_fixed = part_point is not None and part_point.mask.all()
        if part_point is not None and is_fixed and part_point.operand in fixed:
            continue
        if isinstance(part, IntervalColumn) and not is_wide(part.operand.type):
            ranges[part.operand] = part.least, part.most
        else:
            residual.append(part)
    split = FixedColumns(fixed, ranges, _residuals(residual, constants))
    yield ShapeColumns(rows, formula, split)


def _residuals(parts: list[ColumnFormula], constants: ConstantColumns) -> Residuals:
    if not parts:
        return Residuals.none(constants.count)
    texts = filled_texts([form for part in parts for form in part.forms], constants)
    return Residuals.of(texts)
