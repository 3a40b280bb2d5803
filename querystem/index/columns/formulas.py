"""The formulas of all predicates of one template, as columns.

A column formula has the shape of the template's formula. In the place of each factor it has a
column with the factor of every predicate.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datastem.arrays import Array, Int64s, Mask
from datastem.types import Kind
from querystem.expressions import Call, Expression, Literal, Op, Parameter
from querystem.index.batch import bounds_of, edges_of, is_wide, last_key
from querystem.index.columns.constants import ConstantColumns
from querystem.index.formula import (
    ORDERED,
    Condition,
    Every,
    Formula,
    Interval,
    Member,
    Some,
    like_of,
)
from querystem.index.formula_text import formula_text
from querystem.kernel.compare import COMPARISONS

_PARAMETERS = re.compile(r'\["par","([^"]*)","([^"]*)"\]')


@dataclass(frozen=True, slots=True)
class IntervalColumn:
    """Intervals of one operand: predicate i allows the keys in `[least[i], most[i]]`. `forms` are
    the formulas of the template that it was made of."""

    operand: Expression
    least: Array
    most: Array
    forms: tuple[Formula, ...]

    def take(self, rows: Int64s) -> IntervalColumn:
        return replace(self, least=self.least[rows], most=self.most[rows])

    @property
    def is_point(self) -> Mask:
        """Which of the intervals are a single key."""
        if is_wide(self.operand.type):
            return np.zeros(len(self.least), np.bool_)
        type_ = self.operand.type
        is_single = self.least == np.minimum(self.most, last_key(type_))
        return np.asarray(is_single & (self.least != edges_of(type_)[0]))


@dataclass(frozen=True, slots=True)
class MemberColumn:
    """Texts that one operand has to equal."""

    operand: Expression
    texts: pa.Array
    forms: tuple[Formula, ...]

    def take(self, rows: Int64s) -> MemberColumn:
        return replace(self, texts=self.texts.take(pa.array(rows)))


@dataclass(frozen=True, slots=True)
class LikeColumn:
    """Patterns that one operand has to match, or must not match unless `is_match`."""

    operand: Expression
    patterns: pa.Array
    is_match: bool
    forms: tuple[Formula, ...]

    def take(self, rows: Int64s) -> LikeColumn:
        return replace(self, patterns=self.patterns.take(pa.array(rows)))


@dataclass(frozen=True, slots=True)
class ConditionColumn:
    """Any other conditions, as texts of formulas."""

    texts: pa.Array
    forms: tuple[Formula, ...]

    def take(self, rows: Int64s) -> ConditionColumn:
        return replace(self, texts=self.texts.take(pa.array(rows)))


@dataclass(frozen=True, slots=True)
class NodeColumn:
    """AND or OR over columns. There may be none: then every row matches, or no row does."""

    is_every: bool
    parts: tuple[ColumnFormula, ...]
    forms: tuple[Formula, ...]

    def take(self, rows: Int64s) -> NodeColumn:
        return replace(self, parts=tuple(part.take(rows) for part in self.parts))


ColumnFormula = IntervalColumn | MemberColumn | LikeColumn | ConditionColumn | NodeColumn


def column_formula(form: Formula, constants: ConstantColumns) -> ColumnFormula:
    """Return the formulas of all predicates of a template, given the template's formula."""
    match form:
        case Condition(Call(op, (operand, Parameter(name, _)), _), True) if _is_indexed(
            op, operand
        ):
            if operand.type.kind is Kind.TEXT:
                return MemberColumn(operand, constants.texts(name), (form,))
            if op is not Op.NE:
                return IntervalColumn(operand, *constants.bounds(op, name, operand), (form,))
            sides = [
                IntervalColumn(operand, *constants.bounds(side, name, operand), (form,))
                for side in (Op.LT, Op.GT)
            ]
            return NodeColumn(False, tuple(sides), (form,))
        case Condition(Call(Op.LIKE, (operand, Parameter(name, _)), _), value) if not (
            isinstance(operand, Literal) or _parameters(operand)
        ):
            return LikeColumn(operand, constants.texts(name), value, (form,))
        case Condition(_, value) if (like := like_of(form)) is not None:
            patterns = pa.repeat(like[1], constants.count)
            return LikeColumn(like[0], patterns, value, (form,))
        case Condition():
            return ConditionColumn(filled_texts([form], constants), (form,))
        case Interval(operand, _, _):
            dtype = object if is_wide(operand.type) else np.int64
            bounds = [np.full(constants.count, bound, dtype) for bound in bounds_of(form)]
            return IntervalColumn(operand, bounds[0], bounds[1], (form,))
        case Member(operand, value):
            return MemberColumn(operand, pa.repeat(value, constants.count), (form,))
        case Every(parts):
            met = _met([column_formula(part, constants) for part in parts])
            return met[0] if len(met) == 1 else NodeColumn(True, met, (form,))
        case Some(parts):
            columns = tuple(column_formula(part, constants) for part in parts)
            return NodeColumn(False, columns, (form,))


def _is_indexed(op: Op, operand: Expression) -> bool:
    """Return whether an axis answers a comparison of the operand with constants."""
    if op not in COMPARISONS or _parameters(operand):
        return False
    return operand.type.kind in ORDERED or (operand.type.kind is Kind.TEXT and op is Op.EQ)


def _met(parts: Sequence[ColumnFormula]) -> tuple[ColumnFormula, ...]:
    """Return the parts of a conjunction, in which intervals of one operand become one."""
    intervals: dict[Expression, IntervalColumn] = {}
    conjuncts: list[ColumnFormula] = []
    for part in parts:
        if not isinstance(part, IntervalColumn):
            conjuncts.append(part)
        elif part.operand not in intervals:
            intervals[part.operand] = part
        else:
            earlier = intervals[part.operand]
            intervals[part.operand] = IntervalColumn(
                part.operand,
                np.maximum(earlier.least, part.least),
                np.minimum(earlier.most, part.most),
                earlier.forms + part.forms,
            )
    return (*intervals.values(), *conjuncts)


def filled_texts(forms: Sequence[Formula], constants: ConstantColumns) -> pa.Array:
    """Return the conjunction of formulas of a template as a text for each predicate."""
    text = formula_text(forms[0] if len(forms) == 1 else Every(tuple(forms)))
    pieces = _PARAMETERS.split(text)
    if len(pieces) == 1:
        return pa.repeat(text, constants.count)
    columns: list[pa.Array | str] = [pieces[0]]
    for type_, name, after in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
        columns[-1] += f'["lit","{type_}",'
        columns += [constants.written[name], f"]{after}"]
    return pc.binary_join_element_wise(*columns, "")


def operand_parameters(form: Formula) -> list[str]:
    """Return the parameters inside operands that an axis could answer, and those that are a
    condition by themselves: with their values the formula has another shape."""
    match form:
        case Condition(Parameter(name, _), _):
            return [name]
        case Condition(Call(op, (operand, Parameter()), _), True) if op in COMPARISONS:
            return list(_parameters(operand))
        case Condition(Call(Op.LIKE, (operand, Parameter()), _), _):
            return list(_parameters(operand))
        case Every(parts) | Some(parts):
            return list(dict.fromkeys(name for part in parts for name in operand_parameters(part)))
    return []


def _parameters(expression: Expression) -> list[str]:
    match expression:
        case Parameter(name, _):
            return [name]
        case Call(_, args, _):
            return [name for arg in args for name in _parameters(arg)]
    return []


def formula_column(formula: Formula) -> ColumnFormula:
    """Return one formula as columns of length one."""
    return column_formula(formula, ConstantColumns({}, {}, 1))
