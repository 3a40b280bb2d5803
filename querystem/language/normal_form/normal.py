"""The normal form: one way to write equal predicates, so that they share their matches.

`call` builds a node from arguments that are normal already; every rule here keeps SQL's
three-valued meaning. NOT moves inwards as far as that allows. AND and OR are flat, sorted and
without repeats. A constant stands on the right and has the type of its neighbour if that is exact.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal
from fractions import Fraction

from datastem.instants import MAX_INSTANT, MIN_INSTANT, from_micros, to_micros
from datastem.types import BOOLEAN, Kind, Type
from querystem.expressions import TRUE, Call, Expression, Literal, Op, Parameter, to_json
from querystem.language.errors import Span, TypeProblem
from querystem.language.tokens.literals import MAX_BIGINT, MIN_BIGINT, convert

FALSE = Literal(False, BOOLEAN)

_CONSTANT = (Literal, Parameter)
_TIMES = (Kind.TIMESTAMP, Kind.DURATION)
_ENCODE = json.JSONEncoder(separators=(",", ":")).encode

_MIRROR = {
    Op.EQ: Op.EQ,
    Op.NE: Op.NE,
    Op.LT: Op.GT,
    Op.LE: Op.GE,
    Op.GT: Op.LT,
    Op.GE: Op.LE,
    Op.IS_DISTINCT: Op.IS_DISTINCT,
}
_OPPOSITE = {
    Op.EQ: Op.NE,
    Op.NE: Op.EQ,
    Op.LT: Op.GE,
    Op.GE: Op.LT,
    Op.GT: Op.LE,
    Op.LE: Op.GT,
}


def normal(expression: Expression) -> Expression:
    """Return the normal form of a whole expression; applying it twice changes nothing."""
    if isinstance(expression, Call):
        args = tuple(normal(arg) for arg in expression.args)
        return call(expression.op, args, expression.type)
    return expression


def call(op: Op, args: tuple[Expression, ...], type_: Type) -> Expression:
    """Return the call in normal form; its arguments must be in normal form."""
    if op in _MIRROR:
        return _comparison(op, *args)
    match op:
        case Op.AND | Op.OR:
            return _connective(op, args)
        case Op.NOT:
            return negate(args[0])
        case Op.IN:
            return _in(args[0], args[1:])
        case Op.CAST:
            return _cast(args[0], type_)
        case Op.NEG:
            return _neg(args[0], type_)
        case Op.ADD | Op.SUB | Op.MUL if type_.kind in _TIMES:
            return _of_time(op, type_, *args)
        case Op.CONCAT:
            return _concatenation(args, type_)
        case Op.STARTS_WITH if isinstance(args[1], Literal):
            return _prefixed(args[0], args[1])
        case Op.LIKE if isinstance(args[1], Literal) and isinstance(args[1].value, str):
            pattern = Literal(like_pattern(args[1].value), args[1].type)
            return Call(op, (args[0], pattern), type_)
    return Call(op, args, type_)


def negate(expression: Expression) -> Expression:
    match expression:
        case Literal(value, _):
            return Literal(None if value is None else not value, BOOLEAN)
        case Call(Op.NOT, (arg,), _):
            return arg
        case Call(Op.AND, args, _):
            return _connective(Op.OR, tuple(negate(arg) for arg in args))
        case Call(Op.OR, args, _):
            return _connective(Op.AND, tuple(negate(arg) for arg in args))
        # The opposite comparison is NULL for the same rows, so NOT may be moved inside.
        case Call(op, args, _) if op in _OPPOSITE:
            return _comparison(_OPPOSITE[op], *args)
    return Call(Op.NOT, (expression,), BOOLEAN)


def sort_key(expression: Expression) -> str:
    return _ENCODE(to_json(expression))


def _connective(op: Op, args: Iterable[Expression]) -> Expression:
    neutral, absorbing = (TRUE, FALSE) if op is Op.AND else (FALSE, TRUE)
    parts: dict[str, Expression] = {}
    for arg in args:
        flat = arg.args if isinstance(arg, Call) and arg.op is op else (arg,)
        for part in flat:
            if part == absorbing:
                return absorbing
            if part != neutral:
                # The text of a part is its identity: repeated parts are dropped, and the rest is
                # sorted.
                parts[sort_key(part)] = part
    if len(parts) < 2:
        return next(iter(parts.values()), neutral)
    return Call(op, tuple(parts[key] for key in sorted(parts)), BOOLEAN)


def _comparison(op: Op, lhs: Expression, rhs: Expression) -> Expression:
    lhs, rhs = _aligned(lhs, rhs), _aligned(rhs, lhs)
    if _belongs_right(lhs, rhs):
        lhs, rhs, op = rhs, lhs, _MIRROR[op]
    return Call(op, (lhs, rhs), BOOLEAN)


def _belongs_right(lhs: Expression, rhs: Expression) -> bool:
    """Return whether the operands have to be exchanged: constants stand on the right, and two
    operands of a kind are sorted."""
    constant = isinstance(lhs, _CONSTANT)
    if constant != isinstance(rhs, _CONSTANT):
        return constant
    return sort_key(lhs) > sort_key(rhs)


def _aligned(expression: Expression, beside: Expression) -> Expression:
    """Return a constant with the type of its neighbour, if that holds its value: comparisons are
    exact."""
    if not isinstance(expression, Literal) or not expression.type.is_numeric:
        return expression
    # −0.0 equals 0.0 in every comparison, so they have one form.
    if isinstance(expression.value, float) and expression.value == 0:
        expression = Literal(0.0, expression.type)
    if isinstance(beside, _CONSTANT) or not beside.type.is_numeric:
        return expression
    return convert(expression, beside.type, None) or expression


def _in(arg: Expression, values: Iterable[Expression]) -> Expression:
    aligned = (_aligned(value, arg) for value in values)
    distinct = {sort_key(value): value for value in aligned}
    if len(distinct) == 1:
        return _comparison(Op.EQ, arg, next(iter(distinct.values())))
    return Call(Op.IN, (arg, *(distinct[key] for key in sorted(distinct))), BOOLEAN)


def _cast(arg: Expression, to: Type) -> Expression:
    if arg.type == to:
        return arg
    if isinstance(arg, Literal) and (converted := convert(arg, to, None)) is not None:
        return converted
    return Call(Op.CAST, (arg,), to)


def _concatenation(args: Iterable[Expression], type_: Type) -> Expression:
    """Return the texts in one call: (a || b) || c is a || b || c."""
    flat: list[Expression] = []
    for arg in args:
        flat.extend(arg.args if isinstance(arg, Call) and arg.op is Op.CONCAT else (arg,))
    return Call(Op.CONCAT, tuple(flat), type_)


def _prefixed(text: Expression, prefix: Literal) -> Expression:
    """Return starts_with as LIKE, which the index of predicates looks up."""
    if not isinstance(prefix.value, str):
        return Literal(None, BOOLEAN)
    escaped = re.sub(r"([%_\\])", r"\\\1", prefix.value)
    return Call(Op.LIKE, (text, Literal(f"{escaped}%", prefix.type)), BOOLEAN)


def _neg(arg: Expression, type_: Type) -> Expression:
    if isinstance(arg, Literal):
        match arg.value:
            case None:
                return arg
            case int() if MIN_BIGINT <= -arg.value <= MAX_BIGINT:
                return Literal(-arg.value, type_)
            case float():
                return Literal(-arg.value, type_)
            case Decimal():
                return Literal(arg.value.copy_negate(), type_)
    return Call(Op.NEG, (arg,), type_)


def _of_time(op: Op, type_: Type, lhs: Expression, rhs: Expression) -> Expression:
    """Return an instant or a duration. For two constants it is a constant, equal to what the kernel
    computes."""
    if not isinstance(lhs, Literal) or not isinstance(rhs, Literal):
        return Call(op, (lhs, rhs), type_)
    is_instant = type_.kind is Kind.TIMESTAMP
    micros = _computed(op, _number_of(lhs), _number_of(rhs))
    least, most = (MIN_INSTANT, MAX_INSTANT) if is_instant else (MIN_BIGINT, MAX_BIGINT)
    if micros is None or not least <= micros <= most:
        return Literal(None, type_)
    return Literal(from_micros(micros) if is_instant else micros, type_)


def _number_of(literal: Literal) -> int | Fraction | float | None:
    """Return a number as it is, a DECIMAL as a fraction, an instant in microseconds; None is
    NULL."""
    match literal.value:
        case datetime() as moment:
            return to_micros(moment)
        case Decimal() as number:
            return Fraction(number)
        case int() | float() as number:
            return number
    return None


def _computed(
    op: Op, lhs: int | Fraction | float | None, rhs: int | Fraction | float | None
) -> int | None:
    """Return the sum, difference or product, halves away from zero; None if it has no value."""
    if lhs is None or rhs is None:
        return None
    if op is not Op.MUL:
        return int(lhs + rhs if op is Op.ADD else lhs - rhs)
    product = lhs * rhs
    if isinstance(product, float) and not math.isfinite(product):
        return None
    magnitude = math.floor(abs(Fraction(product)) + Fraction(1, 2))
    return -magnitude if product < 0 else magnitude


_SPECIAL = "%_\\"


def like_pattern(pattern: str, escape: str = "\\", span: Span | None = None) -> str:
    """Return the pattern with a backslash as its escape, which stands before %, _ and itself only;
    raise TypeProblem for a pattern that ends in an escape."""
    parts: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, None)
            if escaped is None:
                raise TypeProblem(
                    f"the pattern ends with {escape}, which escapes nothing",
                    span,
                    hint=f"write {escape * 2} for the character itself",
                    reason="BAD_LITERAL",
                )
            parts.append("\\" + escaped if escaped in _SPECIAL else escaped)
        else:
            parts.append("\\\\" if character == "\\" else character)
    return "".join(parts)
