"""Differences of times: `a.ts - b.ts <= d` as a comparison of one side with the other.

Moments are written as the durations since an epoch. Sums of those are exact, whereas a moment plus
`d` may lie past the last year and be NULL although the difference is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from datastem.instants import from_micros
from datastem.types import BOOLEAN, DURATION, TIMESTAMP, Kind
from querystem.expressions import Call, Expression, Literal, Op

MIRROR = {Op.EQ: Op.EQ, Op.LT: Op.GT, Op.LE: Op.GE, Op.GT: Op.LT, Op.GE: Op.LE}

_EPOCH = Literal(from_micros(0), TIMESTAMP)
# A duration of at most this many microseconds can be added to any difference of two moments.
_MAX_DURATION_MICROS = 1 << 62


def without_differences(conditions: Sequence[Expression]) -> list[Expression]:
    """Return conditions with the same conjunction, none of them about a difference of moments.

    If one was, all conditions that compare moments are written alike, so that they are recognised
    as bounds of one value.
    """
    separated = [part for condition in conditions for part in _separated(condition)]
    return list(conditions) if separated == list(conditions) else list(map(_since_epoch, separated))


def _separated(condition: Expression) -> Iterator[Expression]:
    match condition:
        case Call(op, (Literal() as bound, value), _) if op in MIRROR:
            yield from _bounded(condition, MIRROR[op], value, bound)
        case Call(op, (value, Literal() as bound), _) if op in MIRROR:
            yield from _bounded(condition, op, value, bound)
        case _:
            yield condition


def _bounded(
    condition: Expression, op: Op, value: Expression, bound: Literal
) -> Iterator[Expression]:
    """Yield the condition `value op bound`, cut in two if the value is a magnitude."""
    limit = bound.value
    if (
        bound.type.kind is not Kind.DURATION
        or not isinstance(limit, int)
        or abs(limit) > _MAX_DURATION_MICROS
    ):
        yield condition
        return
    match value:
        case Call(Op.SUB, (begin, end), _) if _are_moments(begin, end):
            yield _compared(op, begin, end, limit)
        # Only < and <= of a magnitude are a conjunction of two bounds; > and >= would be a
        # disjunction.
        case Call(Op.ABS, (Call(Op.SUB, (begin, end), _),), _) if op in (
            Op.LT,
            Op.LE,
        ) and _are_moments(begin, end):
            yield _compared(op, begin, end, limit)
            yield _compared(MIRROR[op], begin, end, -limit)
        case _:
            yield condition


def _compared(op: Op, later: Expression, earlier: Expression, apart: int) -> Expression:
    """Return the condition `later - earlier op apart`."""
    moved = Call(Op.ADD, (_duration(earlier), Literal(apart, DURATION)), DURATION)
    return Call(op, (_duration(later), moved if apart else _duration(earlier)), BOOLEAN)


def _since_epoch(condition: Expression) -> Expression:
    match condition:
        case Call(op, (first, second), _) if op in MIRROR and _are_moments(first, second):
            return Call(op, (_duration(first), _duration(second)), BOOLEAN)
    return condition


def _duration(moment: Expression) -> Expression:
    return Call(Op.SUB, (moment, _EPOCH), DURATION)


def _are_moments(first: Expression, second: Expression) -> bool:
    return first.type.kind is Kind.TIMESTAMP and second.type.kind is Kind.TIMESTAMP
