"""Types that can be combined, and the conversions that make values fit."""

from __future__ import annotations

from collections.abc import Sequence

from datastem.types import (
    BIGINT,
    BOOLEAN,
    COLUMN_KINDS,
    DOUBLE,
    MAX_PRECISION,
    TIMESTAMP,
    Kind,
    Type,
    decimal_type,
)
from querystem.expressions import Literal, Op, Parameter
from querystem.language.errors import Span, TypeProblem
from querystem.language.normal_form.normal import call
from querystem.language.tokens.literals import Typed, convert, decimal_literal

BIGINT_DECIMAL = decimal_type(19, 0)
# What to write for or instead of a duration, for hints.
AS_NUMBER = "extract(second FROM duration) is its number of seconds"
AS_INTERVAL = "a duration is written INTERVAL '5' SECOND"
_TIMES = frozenset({Kind.TIMESTAMP, Kind.DATE})


def settle(value: Typed, beside: Type) -> Typed:
    """Return the value with the type that a constant takes from its neighbour: NULL, claims,
    numbers as written, texts of time. Other values stay as they are."""
    node = value.node
    if value.open:
        return value.as_type(beside)
    if value.number is not None and beside.kind is Kind.DECIMAL:
        return Typed(decimal_literal(value.number, value.span), value.span)
    if node.type.kind is Kind.TEXT and beside.kind in _TIMES:
        if isinstance(node, Literal):
            return Typed(convert(node, beside, value.span) or node, value.span)
        if isinstance(node, Parameter):
            return cast(value, beside)
    return value


def settle_pair(lhs: Typed, rhs: Typed) -> tuple[Typed, Typed]:
    if lhs.open:
        return settle(lhs, rhs.type), rhs
    return settle(lhs, rhs.type), settle(rhs, lhs.type)


def cast(value: Typed, to: Type) -> Typed:
    """Return the value converted to another type; a constant is converted at once if that is
    exact."""
    if value.type == to:
        return value
    node = value.node
    if isinstance(node, Literal) and (done := convert(node, to, value.span)) is not None:
        return Typed(done, value.span)
    return Typed(call(Op.CAST, (node,), to), value.span)


def compare(op: Op, lhs: Typed, rhs: Typed, span: Span) -> Typed:
    lhs, rhs = comparable(lhs, rhs, span)
    return Typed(call(op, (lhs.node, rhs.node), BOOLEAN), span)


def comparable(lhs: Typed, rhs: Typed, span: Span) -> tuple[Typed, Typed]:
    """Return two values as they are compared: numbers of any type exactly as they are, a DATE
    beside a TIMESTAMP as its midnight. Raise TypeProblem."""
    lhs, rhs = settle_pair(lhs, rhs)
    kinds = {lhs.type.kind, rhs.type.kind}
    if len(kinds) == 1 or (lhs.type.is_numeric and rhs.type.is_numeric):
        return lhs, rhs
    if kinds == _TIMES:
        return cast(lhs, TIMESTAMP), cast(rhs, TIMESTAMP)
    raise TypeProblem(f"{lhs.type} can't be compared with {rhs.type}", span, hint=_hint(lhs, rhs))


def unify(values: Sequence[Typed], span: Span) -> tuple[Sequence[Typed], Type]:
    """Return the values converted to one type, as CASE, COALESCE and NULLIF need it, and that
    type."""
    typed = [value for value in values if not value.open]
    if not typed:
        raise _untyped(span)
    beside = _guide(typed)
    settled = [settle(value, beside) if beside and not value.open else value for value in values]
    common: Type | None = None
    for value in settled:
        if not value.open:
            common = value.type if common is None else _common(common, value, span)
    assert common is not None
    return [settle(v, common) if v.open else cast(v, common) for v in settled], common


def _guide(values: Sequence[Typed]) -> Type | None:
    """Return the type that constants among the values take theirs from; None if all are
    constants."""
    firm = [v.type for v in values if v.number is None and not _is_text_constant(v)]
    kinds = {type_.kind: type_ for type_ in firm}
    for kind in (Kind.DOUBLE, Kind.DECIMAL, Kind.TIMESTAMP):
        if kind in kinds:
            return kinds[kind]
    return firm[0] if firm else None


def _is_text_constant(value: Typed) -> bool:
    return isinstance(value.node, Literal) and value.type.kind is Kind.TEXT


def need_type(value: Typed) -> Typed:
    """Return the value; raise TypeProblem for a NULL to which nothing gives a type, and for a
    duration, which no column holds."""
    if closed(value).type.kind is Kind.DURATION:
        raise TypeProblem("a duration can't be an output or a key", value.span, hint=AS_NUMBER)
    return value


def closed(value: Typed) -> Typed:
    """Return the value; raise TypeProblem for a NULL to which nothing gives a type."""
    if value.claim is not None:
        raise untyped_claim(value.claim, value.span)
    if value.open:
        raise _untyped(value.span)
    return value


def untyped_claim(name: str, span: Span | None) -> TypeProblem:
    return TypeProblem(
        f"nothing here gives claim('{name}') a type",
        span,
        hint=f"give it one: CAST(claim('{name}') AS TEXT)",
    )


def _untyped(span: Span) -> TypeProblem:
    return TypeProblem("NULL alone has no type", span, hint="give it one: CAST(NULL AS BIGINT)")


def need(value: Typed, kind: Kind, what: str) -> Typed:
    """Return the value; raise TypeProblem unless it has this kind, which NULL takes."""
    if value.open:
        return value.as_type(Type(kind))
    if value.type.kind is not kind:
        raise TypeProblem(f"{what} needs {kind.value}, not {value.type}", value.span)
    return value


def need_number(value: Typed, what: str) -> Typed:
    if value.open:
        return closed(value) if value.claim else value.as_type(BIGINT)
    if not value.type.is_numeric:
        hint = AS_NUMBER if value.type.kind is Kind.DURATION else ""
        raise TypeProblem(f"{what} needs a number, not {value.type}", value.span, hint=hint)
    return value


def need_signed(value: Typed, what: str) -> Typed:
    """Return the value; raise TypeProblem unless it is a number or a duration."""
    return value if value.type.kind is Kind.DURATION else need_number(value, what)


def _common(lhs: Type, value: Typed, span: Span) -> Type:
    rhs = value.type
    if lhs == rhs:
        return lhs
    kinds = {lhs.kind, rhs.kind}
    if kinds == _TIMES:
        return TIMESTAMP
    if not (lhs.is_numeric and rhs.is_numeric):
        raise TypeProblem(f"{lhs} and {rhs} have no common type", value.span)
    if Kind.DOUBLE in kinds:
        return DOUBLE
    return _common_decimal(as_decimal(lhs), as_decimal(rhs), span)


def as_decimal(type_: Type) -> Type:
    return BIGINT_DECIMAL if type_.kind is Kind.BIGINT else type_


def _common_decimal(lhs: Type, rhs: Type, span: Span) -> Type:
    scale = max(lhs.scale, rhs.scale)
    # The common type keeps all whole digits of the one and all fraction digits of the other.
    precision = max(lhs.precision - lhs.scale, rhs.precision - rhs.scale) + scale
    if precision > MAX_PRECISION:
        raise TypeProblem(
            f"{lhs} and {rhs} together need {precision} digits; the limit is {MAX_PRECISION}",
            span,
            hint="CAST one of them to a smaller DECIMAL, or to DOUBLE",
        )
    return decimal_type(precision, scale)


def _hint(lhs: Typed, rhs: Typed) -> str:
    texts = [side for side in (lhs, rhs) if side.type.kind is Kind.TEXT]
    non_texts = [side for side in (lhs, rhs) if side.type.kind is not Kind.TEXT]
    if Kind.DURATION in (lhs.type.kind, rhs.type.kind):
        return f"{AS_INTERVAL}; {AS_NUMBER}"
    if len(texts) == 1 and isinstance(texts[0].node, Literal) and non_texts[0].type.is_numeric:
        return "write a number without quotes"
    if len(texts) == 1:
        return f"write CAST(… AS {non_texts[0].type})"
    return ""


_NUMBERS = frozenset({Kind.BIGINT, Kind.DOUBLE, Kind.DECIMAL})
_TO: dict[Kind, frozenset[Kind]] = {
    Kind.BOOLEAN: frozenset({Kind.BOOLEAN, Kind.BIGINT, Kind.TEXT}),
    Kind.BIGINT: _NUMBERS | {Kind.TEXT},
    Kind.DOUBLE: _NUMBERS | {Kind.TEXT},
    Kind.DECIMAL: _NUMBERS | {Kind.TEXT},
    Kind.TEXT: COLUMN_KINDS,
    Kind.TIMESTAMP: frozenset({Kind.TIMESTAMP, Kind.DATE, Kind.TEXT}),
    Kind.DATE: frozenset({Kind.TIMESTAMP, Kind.DATE, Kind.TEXT}),
    Kind.DURATION: frozenset(),
}


def can_cast(from_: Kind, to: Kind) -> bool:
    return to in _TO[from_]


def explicit_cast(value: Typed, to: Type, span: Span) -> Typed:
    """Return a CAST as written. A value that can't be converted is NULL in its row. Raise
    TypeProblem for types without a conversion, and for a text that is no time."""
    if value.open:
        return Typed(value.as_type(to).node, span)
    if not can_cast(value.type.kind, to.kind):
        hint = AS_NUMBER if value.type.kind is Kind.DURATION else ""
        raise TypeProblem(f"{value.type} can't be converted to {to}", span, hint=hint)
    done = cast(settle(value, to), to)
    return Typed(done.node, span)


# With more digits a product of two DECIMALs can't even be computed.
_MAX_PRODUCT_DIGITS = 75
_LEAST_QUOTIENT_SCALE = 6


def arithmetic(op: Op, lhs: Typed, rhs: Typed, span: Span) -> Typed:
    """Return the call of an arithmetic operator on numbers; raise TypeProblem."""
    lhs, rhs = settle_pair(lhs, rhs)
    what = op.value
    lhs, rhs = need_number(lhs, what), need_number(rhs, what)
    kinds = {lhs.type.kind, rhs.type.kind}
    if op is Op.INT_DIV:
        if kinds != {Kind.BIGINT}:
            raise TypeProblem("div needs BIGINT on both sides", span, hint="/ divides any numbers")
        return operation(op, lhs, rhs, BIGINT, span)
    if Kind.DOUBLE in kinds or (op is Op.DIV and kinds == {Kind.BIGINT}):
        return operation(op, cast(lhs, DOUBLE), cast(rhs, DOUBLE), DOUBLE, span)
    if kinds == {Kind.BIGINT}:
        return operation(op, lhs, rhs, BIGINT, span)
    lhs, rhs = _as_decimal_value(lhs), _as_decimal_value(rhs)
    return operation(op, lhs, rhs, _decimal_result(op, lhs.type, rhs.type, span), span)


def negative(value: Typed, span: Span) -> Typed:
    value = need_signed(value, "-")
    return Typed(call(Op.NEG, (value.node,), value.type), span)


def operation(op: Op, lhs: Typed, rhs: Typed, type_: Type, span: Span) -> Typed:
    return Typed(call(op, (lhs.node, rhs.node), type_), span)


def _as_decimal_value(value: Typed) -> Typed:
    return cast(value, BIGINT_DECIMAL) if value.type.kind is Kind.BIGINT else value


def _decimal_result(op: Op, lhs: Type, rhs: Type, span: Span) -> Type:
    whole = max(lhs.precision - lhs.scale, rhs.precision - rhs.scale)
    scale = max(lhs.scale, rhs.scale)
    match op:
        case Op.ADD | Op.SUB:
            # A sum may need one more digit than its greater term.
            return decimal_type(min(MAX_PRECISION, whole + scale + 1), scale)
        case Op.MOD:
            least = min(lhs.precision - lhs.scale, rhs.precision - rhs.scale)
            return decimal_type(min(MAX_PRECISION, max(1, least + scale)), scale)
        case Op.DIV:
            return decimal_type(MAX_PRECISION, max(_LEAST_QUOTIENT_SCALE, scale))
    return _product(lhs, rhs, span)


def _product(lhs: Type, rhs: Type, span: Span) -> Type:
    scale, precision = lhs.scale + rhs.scale, lhs.precision + rhs.precision
    if scale > MAX_PRECISION or precision > _MAX_PRODUCT_DIGITS:
        raise TypeProblem(
            f"the product of {lhs} and {rhs} has too many digits",
            span,
            hint="CAST one of them to a smaller DECIMAL, or to DOUBLE",
        )
    return decimal_type(min(MAX_PRECISION, precision), scale)
