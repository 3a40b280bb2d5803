"""A condition as the index keeps it: AND and OR over factors, without NOT.

Only the rows for which a condition is *true* count. A NOT moves inwards until it meets a factor,
which is then wanted false; NULL satisfies neither. So a formula needs two values where SQL has
three.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from datastem.types import BOOLEAN, Kind
from querystem.expressions import Call, Expression, Literal, Op
from querystem.kernel.compare import COMPARISONS, END, START, cuts_of, interval

_ORDERED = frozenset(Kind) - {Kind.BOOLEAN, Kind.TEXT}
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
    """Holds where the operand's value lies in `[begin, end)`; the ends are cuts of its type."""

    operand: Expression
    begin: Any
    end: Any


@dataclass(frozen=True, slots=True)
class Member:
    """Holds where the operand, a TEXT, is this value."""

    operand: Expression
    value: str


@dataclass(frozen=True, slots=True)
class Condition:
    """Holds where any other condition is true, or is false if `wanted` is."""

    expression: Expression
    wanted: bool


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


def formula_of(where: Expression, wanted: bool = True) -> Formula:
    """The formula that holds where `where` is true, or is false if `wanted` is."""
    match where:
        case Literal(value, _):
            return ALWAYS if value is wanted else NEVER
        case Call(Op.NOT, (arg,), _):
            return formula_of(arg, not wanted)
        case Call(Op.AND | Op.OR as op, args, _):
            parts = [formula_of(arg, wanted) for arg in args]
            return every(parts) if (op is Op.AND) is wanted else some(parts)
        case Call(Op.IN, (operand, *constants), _) if wanted and len(constants) <= _LONGEST_IN:
            return some([_comparison(Op.EQ, operand, constant) for constant in constants])
        case Call(op, (left, right), _) if op in COMPARISONS:
            return _comparison(op if wanted else _OPPOSITE[op], left, right)
    return Condition(where, wanted)


def every(parts: list[Formula]) -> Formula:
    """The conjunction of the parts; intervals of one operand become one."""
    flat = _flat(parts, Every)
    if NEVER in flat:
        return NEVER
    met: dict[Expression, Interval] = {}
    others: list[Formula] = []
    for part in flat:
        if isinstance(part, Interval):
            known = met.get(part.operand)
            met[part.operand] = part if known is None else _meet(known, part)
        else:
            others.append(part)
    distinct = list(dict.fromkeys([*met.values(), *others]))
    return distinct[0] if len(distinct) == 1 else Every(tuple(distinct))


def some(parts: list[Formula]) -> Formula:
    """The disjunction of the parts."""
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
    """The order of one type's cuts: the edges outermost, NaN after every number."""
    if cut is START or cut is END:
        return (0 if cut is START else 2), False, 0
    is_nan = isinstance(cut, float) and math.isnan(cut)
    return 1, is_nan, 0 if is_nan else cut


def _comparison(op: Op, left: Expression, right: Expression) -> Formula:
    if isinstance(left, Literal) and not isinstance(right, Literal):
        return _comparison(_MIRROR.get(op, op), right, left)
    if not isinstance(right, Literal) or isinstance(left, Literal):
        return Condition(_call(op, left, right), True)
    if right.value is None:
        return NEVER
    if left.type.kind in _ORDERED:
        return _intervals(op, left, right)
    if left.type.kind is Kind.TEXT and op is Op.EQ:
        return Member(left, str(right.value))
    return Condition(_call(op, left, right), True)


def _call(op: Op, left: Expression, right: Expression) -> Call:
    return Call(op, (left, right), BOOLEAN)


def _intervals(op: Op, operand: Expression, constant: Literal) -> Formula:
    cuts = cuts_of(constant, operand.type)
    if op is Op.NE:
        return some([Interval(operand, START, cuts.at_least), Interval(operand, cuts.above, END)])
    return Interval(operand, *interval(op, cuts))


def _meet(left: Interval, right: Interval) -> Interval:
    return Interval(
        left.operand,
        max(left.begin, right.begin, key=cut_order),
        min(left.end, right.end, key=cut_order),
    )
