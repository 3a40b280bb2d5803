"""A condition as the index holds it: AND and OR over factors, without NOT.

Only the rows for which a condition is *true* count. A NOT moves inwards until it meets a factor,
which then has to be false; NULL satisfies neither. So a formula needs two values instead of SQL's
three.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from datastem.types import BOOLEAN, Kind
from querystem.expressions import Call, Expression, Literal, Op, Parameter
from querystem.kernel.compare import COMPARISONS, END, START, cuts_of, interval

ORDERED = frozenset(Kind) - {Kind.BOOLEAN, Kind.TEXT}
# A parameter is the constant of a template, whose value is not there yet.
_CONSTANT = Literal, Parameter
_OPPOSITE = {
    Op.EQ: Op.NE,
    Op.NE: Op.EQ,
    Op.LT: Op.GE,
    Op.GE: Op.LT,
    Op.LE: Op.GT,
    Op.GT: Op.LE,
}
_MIRROR = {Op.LT: Op.GT, Op.LE: Op.GE, Op.GT: Op.LT, Op.GE: Op.LE}
# A longer IN list is cheaper as one look-up than as one factor for each value.
_LONGEST_IN = 32


@dataclass(frozen=True, slots=True)
class Interval:
    """A factor that holds if the operand's value lies in `[begin, end)`, which are cuts of its
    type."""

    operand: Expression
    begin: Any
    end: Any


@dataclass(frozen=True, slots=True)
class Member:
    """A factor that holds if the operand, a TEXT, is this value."""

    operand: Expression
    value: str


@dataclass(frozen=True, slots=True)
class Condition:
    """A factor that holds if any other condition has this value, true or false."""

    expression: Expression
    value: bool


@dataclass(frozen=True, slots=True)
class Every:
    parts: tuple[Formula, ...]


@dataclass(frozen=True, slots=True)
class Some:
    parts: tuple[Formula, ...]


Factor = Interval | Member | Condition
Formula = Factor | Every | Some

ALWAYS = Every(())
NEVER = Some(())


def formula_of(where: Expression, value: bool = True) -> Formula:
    """Return the formula that holds if `where` has this value, true or false."""
    match where:
        case Literal(constant, _):
            return ALWAYS if constant is value else NEVER
        case Call(Op.NOT, (arg,), _):
            return formula_of(arg, not value)
        case Call(Op.AND | Op.OR as op, args, _):
            parts = [formula_of(arg, value) for arg in args]
            return all_of(parts) if (op is Op.AND) is value else any_of(parts)
        case Call(Op.IN, (operand, *constants), _) if value and len(constants) <= _LONGEST_IN:
            return any_of([_comparison(Op.EQ, operand, constant) for constant in constants])
        case Call(op, (operand, constant), _) if op in COMPARISONS:
            return _comparison(op if value else _OPPOSITE[op], operand, constant)
    return Condition(where, value)


def like_of(condition: Condition) -> tuple[Expression, str] | None:
    """Return the operand and the pattern of a LIKE that an axis answers; None for any other
    condition."""
    match condition.expression:
        case Call(Op.LIKE, (operand, Literal(str() as pattern, _)), _):
            return None if isinstance(operand, _CONSTANT) else (operand, pattern)
    return None


def all_of(parts: list[Formula]) -> Formula:
    """Return the conjunction of the parts; intervals of one operand become one."""
    flat = _flat(parts, Every)
    if NEVER in flat:
        return NEVER
    met: dict[Expression, Interval] = {}
    conjuncts: list[Formula] = []
    for part in flat:
        if isinstance(part, Interval):
            earlier = met.get(part.operand)
            met[part.operand] = part if earlier is None else _meet(earlier, part)
        else:
            conjuncts.append(part)
    distinct = list(dict.fromkeys([*met.values(), *conjuncts]))
    return distinct[0] if len(distinct) == 1 else Every(tuple(distinct))


def any_of(parts: list[Formula]) -> Formula:
    """Return the disjunction of the parts."""
    flat = _flat(parts, Some)
    if ALWAYS in flat:
        return ALWAYS
    distinct = list(dict.fromkeys(flat))
    return distinct[0] if len(distinct) == 1 else Some(tuple(distinct))


def _flat(parts: list[Formula], kind: type[Every] | type[Some]) -> list[Formula]:
    return [
        inner for part in parts for inner in (part.parts if isinstance(part, kind) else (part,))
    ]


def cut_order(cut: Any) -> tuple[int, bool, Any]:
    """Return a key that orders one type's cuts: the edges outermost, NaN after every number."""
    if cut is START or cut is END:
        return (0 if cut is START else 2), False, 0
    is_nan = isinstance(cut, float) and math.isnan(cut)
    return 1, is_nan, 0 if is_nan else cut


def _comparison(op: Op, operand: Expression, constant: Expression) -> Formula:
    if isinstance(operand, _CONSTANT) and not isinstance(constant, _CONSTANT):
        return _comparison(_MIRROR.get(op, op), constant, operand)
    if not isinstance(constant, Literal) or isinstance(operand, Literal):
        return Condition(_call(op, operand, constant), True)
    if constant.value is None:
        return NEVER
    if operand.type.kind in ORDERED:
        return _intervals(op, operand, constant)
    if operand.type.kind is Kind.TEXT and op is Op.EQ:
        return Member(operand, str(constant.value))
    return Condition(_call(op, operand, constant), True)


def _call(op: Op, operand: Expression, constant: Expression) -> Call:
    return Call(op, (operand, constant), BOOLEAN)


def _intervals(op: Op, operand: Expression, constant: Literal) -> Formula:
    cuts = cuts_of(constant, operand.type)
    if op is Op.NE:
        return any_of([Interval(operand, START, cuts.at_least), Interval(operand, cuts.above, END)])
    return Interval(operand, *interval(op, cuts))


def _meet(first: Interval, second: Interval) -> Interval:
    return Interval(
        first.operand,
        max(first.begin, second.begin, key=cut_order),
        min(first.end, second.end, key=cut_order),
    )
