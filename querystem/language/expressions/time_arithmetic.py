"""Arithmetic with instants and durations.

An instant plus or minus a duration is an instant, the difference of two instants a duration.
Durations are added, subtracted, and multiplied by numbers. A DATE counts as its midnight.
"""

from __future__ import annotations

from datastem.types import BIGINT, DURATION, TIMESTAMP, Kind, Type
from querystem.expressions import Op
from querystem.language.errors import Span, TypeProblem
from querystem.language.expressions.clocks import check_days
from querystem.language.expressions.coerce import AS_INTERVAL, AS_NUMBER, cast, operation, settle
from querystem.language.tokens.literals import Typed

_TIMES = frozenset({Kind.TIMESTAMP, Kind.DATE, Kind.DURATION})
_RESULTS = {
    (Op.ADD, Kind.TIMESTAMP, Kind.DURATION): TIMESTAMP,
    (Op.ADD, Kind.DURATION, Kind.DURATION): DURATION,
    (Op.SUB, Kind.TIMESTAMP, Kind.DURATION): TIMESTAMP,
    (Op.SUB, Kind.TIMESTAMP, Kind.TIMESTAMP): DURATION,
    (Op.SUB, Kind.DURATION, Kind.DURATION): DURATION,
    (Op.MUL, Kind.DURATION, Kind.BIGINT): DURATION,
    (Op.MUL, Kind.DURATION, Kind.DECIMAL): DURATION,
    (Op.MUL, Kind.DURATION, Kind.DOUBLE): DURATION,
}


def is_of_time(lhs: Typed, rhs: Typed) -> bool:
    """Return whether an operand is an instant, a day or a duration."""
    return lhs.type.kind in _TIMES or rhs.type.kind in _TIMES


def time_arithmetic(op: Op, lhs: Typed, rhs: Typed, span: Span) -> Typed:
    """Return the call of an arithmetic operator, an operand of which is of time; raise
    TypeProblem."""
    check_days(lhs, rhs, span)
    lhs, rhs = _instant(lhs), _instant(rhs)
    lhs, rhs = _beside(op, lhs, rhs.type), _beside(op, rhs, lhs.type)
    first, second = (rhs, lhs) if _is_turned(op, lhs, rhs) else (lhs, rhs)
    type_ = _RESULTS.get((op, first.type.kind, second.type.kind))
    if type_ is None:
        raise TypeProblem(
            f"{lhs.type} {op.value} {rhs.type} has no meaning",
            span,
            hint=_hint(op, lhs.type, rhs.type),
        )
    return operation(op, first, second, type_, span)


def _instant(value: Typed) -> Typed:
    return cast(value, TIMESTAMP) if value.type.kind is Kind.DATE else value


def _beside(op: Op, value: Typed, beside: Type) -> Typed:
    """Return a constant, NULL or the text of an instant, with the type that it must have beside an
    operand of type `beside`. Other values stay as they are."""
    if value.open:
        return value.as_type(_open_type(op, beside))
    if beside.kind is Kind.DURATION and op in (Op.ADD, Op.SUB):
        return settle(value, TIMESTAMP)
    return settle(value, beside) if op is Op.SUB else value


def _open_type(op: Op, beside: Type) -> Type:
    if op is Op.SUB:
        return beside
    return BIGINT if op is Op.MUL else DURATION


def _is_turned(op: Op, lhs: Typed, rhs: Typed) -> bool:
    """Return whether the operands are to be exchanged: the normal form has instants before
    durations, and durations before numbers."""
    if op is Op.ADD:
        return rhs.type.kind is Kind.TIMESTAMP
    return op is Op.MUL and rhs.type.kind is Kind.DURATION


def _hint(op: Op, lhs: Type, rhs: Type) -> str:
    kinds = {lhs.kind, rhs.kind}
    if kinds == {Kind.TIMESTAMP}:
        return "the difference of two instants is a duration"
    if op not in (Op.ADD, Op.SUB):
        return f"durations are multiplied by numbers; {AS_NUMBER}"
    if lhs.kind is Kind.DURATION and rhs.kind is Kind.TIMESTAMP:
        return "subtract the duration from the instant"
    return AS_INTERVAL
