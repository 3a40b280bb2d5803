"""Differences of times: `a.ts - b.ts <= d` as a comparison of one side with the other.

Moments are written as the durations since an epoch. Sums of those are exact: a moment plus `d`
itself may lie past the last year and be NULL, if the difference is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from datastem.instants import from_micros
from datastem.types import BOOLEAN, DURATION, TIMESTAMP, Kind
from querystem.expressions import Call, Expression, Literal, Op

MIRROR = {Op.EQ: Op.EQ, Op.LT: Op.GT, Op.LE: Op.GE, Op.GT: Op.LT, Op.GE: Op.LE}

_EPOCH = Literal(from_micros(0), TIMESTAMP)
# Up to here a duration can be added to any difference of two moments.
_LONGEST = 1 << 62


def without_differences(conditions: Sequence[Expression]) -> list[Expression]:
    """Conditions that together mean what the given ones do, none about a difference of moments.

    Where one was, all that compare moments are written alike, so that they are seen to be bounds of
    one value.
    """
    found = [list(_separated(one)) for one in conditions]
    if all(some == [one] for some, one in zip(found, conditions, strict=True)):
        return list(conditions)
    return [_since_epoch(one) for some in found for one in some]


def _separated(condition: Expression) -> Iterator[Expression]:
    match condition:
        case Call(op, (Literal() as bound, other), _) if op in MIRROR:
            yield from _bounded(condition, MIRROR[op], other, bound)
        case Call(op, (other, Literal() as bound), _) if op in MIRROR:
            yield from _bounded(condition, op, other, bound)
        case _:
            yield condition


def _bounded(
    condition: Expression, op: Op, value: Expression, bound: Literal
) -> Iterator[Expression]:
    """Yield the condition `value op bound`, cut in two where the value is a magnitude."""
    limit = bound.value
    if bound.type.kind is not Kind.DURATION or not isinstance(limit, int) or abs(limit) > _LONGEST:
        yield condition
        return
    match value:
        case Call(Op.SUB, (begin, end), _) if _are_moments(begin, end):
            yield _compared(op, begin, end, limit)
        case Call(Op.ABS, (Call(Op.SUB, (begin, end), _),), _) if op in (
            Op.LT,
            Op.LE,
        ) and _are_moments(begin, end):
            yield _compared(op, begin, end, limit)
            yield _compared(MIRROR[op], begin, end, -limit)
        case _:
            yield condition


def _compared(op: Op, one: Expression, other: Expression, apart: int) -> Expression:
    """Return the condition `one - other op apart`."""
    moved = Call(Op.ADD, (_duration(other), Literal(apart, DURATION)), DURATION)
    return Call(op, (_duration(one), moved if apart else _duration(other)), BOOLEAN)


def _since_epoch(condition: Expression) -> Expression:
    match condition:
        case Call(op, (one, other), _) if op in MIRROR and _are_moments(one, other):
            return Call(op, (_duration(one), _duration(other)), BOOLEAN)
    return condition


def _duration(moment: Expression) -> Expression:
    return Call(Op.SUB, (moment, _EPOCH), DURATION)


def _are_moments(one: Expression, other: Expression) -> bool:
    return one.type.kind is Kind.TIMESTAMP and other.type.kind is Kind.TIMESTAMP
