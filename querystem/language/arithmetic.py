"""The types of + - * / div %, and of the minus sign."""

from __future__ import annotations

from datastem.types import BIGINT, DOUBLE, MAX_PRECISION, Kind, Type, decimal_type
from querystem.expressions import Op
from querystem.language.coerce import BIGINT_DECIMAL, cast, need_number, settle_pair
from querystem.language.errors import NotYet, Span, TypeProblem
from querystem.language.literals import Typed
from querystem.language.normal import call

# Past this a product of two DECIMALs can't even be held while it is computed.
_WIDEST_PRODUCT = 75
_LEAST_QUOTIENT_SCALE = 6


def arithmetic(op: Op, left: Typed, right: Typed, span: Span) -> Typed:
    """Raises TypeProblem; NotYet for times."""
    _refuse_times(left, right, span)
    left, right = settle_pair(left, right)
    what = op.value
    left, right = need_number(left, what), need_number(right, what)
    kinds = {left.type.kind, right.type.kind}
    if op is Op.INT_DIV:
        if kinds != {Kind.BIGINT}:
            raise TypeProblem("div needs BIGINT on both sides", span, hint="/ divides any numbers")
        return _made(op, left, right, BIGINT, span)
    if Kind.DOUBLE in kinds or (op is Op.DIV and kinds == {Kind.BIGINT}):
        return _made(op, cast(left, DOUBLE), cast(right, DOUBLE), DOUBLE, span)
    if kinds == {Kind.BIGINT}:
        return _made(op, left, right, BIGINT, span)
    left, right = _decimal(left), _decimal(right)
    return _made(op, left, right, _decimal_result(op, left.type, right.type, span), span)


def negative(value: Typed, span: Span) -> Typed:
    value = need_number(value, "-")
    return Typed(call(Op.NEG, (value.node,), value.type), span)


def _made(op: Op, left: Typed, right: Typed, type_: Type, span: Span) -> Typed:
    return Typed(call(op, (left.node, right.node), type_), span)


def _decimal(value: Typed) -> Typed:
    return cast(value, BIGINT_DECIMAL) if value.type.kind is Kind.BIGINT else value


def _decimal_result(op: Op, left: Type, right: Type, span: Span) -> Type:
    whole = max(left.precision - left.scale, right.precision - right.scale)
    scale = max(left.scale, right.scale)
    match op:
        case Op.ADD | Op.SUB:
            return decimal_type(min(MAX_PRECISION, whole + scale + 1), scale)
        case Op.MOD:
            least = min(left.precision - left.scale, right.precision - right.scale)
            return decimal_type(min(MAX_PRECISION, max(1, least + scale)), scale)
        case Op.DIV:
            return decimal_type(MAX_PRECISION, max(_LEAST_QUOTIENT_SCALE, scale))
    return _product(left, right, span)


def _product(left: Type, right: Type, span: Span) -> Type:
    scale, precision = left.scale + right.scale, left.precision + right.precision
    if scale > MAX_PRECISION or precision > _WIDEST_PRODUCT:
        raise TypeProblem(
            f"the product of {left} and {right} has too many digits",
            span,
            hint="CAST one of them to a smaller DECIMAL, or to DOUBLE",
        )
    return decimal_type(min(MAX_PRECISION, precision), scale)


def _refuse_times(left: Typed, right: Typed, span: Span) -> None:
    times = (Kind.TIMESTAMP, Kind.DATE)
    if left.type.kind in times or right.type.kind in times:
        raise NotYet(
            "arithmetic with times", span, hint="choose rows by time with the window of the query"
        )
