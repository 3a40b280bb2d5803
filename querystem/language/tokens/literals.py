"""Constants: reading them, and converting them if that is exact.

A text of time is read as the kernel reads it, so that both always agree.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from datastem.instants import from_micros
from datastem.types import (
    BIGINT,
    DATE,
    DOUBLE,
    MAX_PRECISION,
    TEXT,
    TIMESTAMP,
    Kind,
    Type,
    decimal_type,
)
from querystem.expressions import Expression, Literal, Parameter, Scalar
from querystem.kernel import cast
from querystem.kernel.cast import PARSERS
from querystem.language.errors import Span, TypeProblem

MAX_BIGINT = 2**63 - 1
MIN_BIGINT = -(2**63)

_NUMBER = re.compile(r"\d+(\.\d*)?([eE][+-]?\d{1,6})?|\.\d+([eE][+-]?\d{1,6})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Typed:
    """A bound expression and its place in the text, while its neighbours may still give it a type.

    `number` is the exact value of a number as written: with a point it is DOUBLE, but DECIMAL
    beside a DECIMAL. `open` marks NULL without a type, or the value of the caller's `claim` of a
    name, which has none either.
    """

    node: Expression
    span: Span
    number: Decimal | None = None
    open: bool = False
    claim: str | None = None

    @property
    def type(self) -> Type:
        return self.node.type

    def as_type(self, type_: Type) -> Typed:
        """Return an open value with the type that it takes."""
        if self.claim is None:
            return Typed(Literal(None, type_), self.span)
        return Typed(Parameter(f"{type_} {self.claim}", type_), self.span)


def null(span: Span) -> Typed:
    return Typed(Literal(None, TEXT), span, open=True)


def claim(name: str, span: Span) -> Typed:
    """Return the value of a claim, which is a parameter once it has a type."""
    return Typed(Parameter(UNTYPED + name, TEXT), span, open=True, claim=name)


# Before the name of a claim that nothing has given a type.
UNTYPED = "? "


def number(text: str, span: Span, negative: bool = False) -> Typed:
    """Return the constant of a number as written: BIGINT, or DECIMAL(p,0) beyond it, or DOUBLE with
    a point or an exponent."""
    if not _NUMBER.fullmatch(text):
        raise TypeProblem(f"{text[:60]!r} is not a number", span, reason="BAD_LITERAL")
    if text.isdigit() and len(text.lstrip("0")) > MAX_PRECISION:
        raise _too_long(span)
    exact = Decimal(text).copy_negate() if negative else Decimal(text)
    if not text.isdigit():
        return Typed(Literal(_double(exact, span), DOUBLE), span, exact)
    whole = int(exact)
    if MIN_BIGINT <= whole <= MAX_BIGINT:
        return Typed(Literal(whole, BIGINT), span, exact)
    return Typed(decimal_literal(exact, span), span, exact)


def decimal_literal(value: Decimal, span: Span | None) -> Literal:
    """Return the constant `value`, of the type that `type_of_decimal` gives it."""
    type_ = type_of_decimal(value, span)
    return Literal(fixed(value, type_.scale), type_)


def type_of_decimal(value: Decimal, span: Span | None) -> Type:
    """Return the DECIMAL with the least precision and scale that hold `value` as it is written.

    If `value` has more digits than a DECIMAL, zeros at the end of its fraction do not count.
    """
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise TypeProblem(f"{value} is not a DECIMAL", span, reason="BAD_LITERAL")
    scale, count = max(0, -exponent), len(digits)
    while max(count, scale) > MAX_PRECISION and scale and not digits[count - 1]:
        scale, count = scale - 1, max(1, count - 1)
    precision = max(count + max(0, exponent), scale, 1)
    if precision > MAX_PRECISION:
        raise _too_long(span)
    return decimal_type(precision, scale)


def fixed(value: Decimal, scale: int) -> Decimal:
    """Return the value with exactly `scale` digits after the point; it must not need more."""
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    whole = int("".join(map(str, digits))) * 10 ** max(0, exponent + scale)
    whole //= 10 ** max(0, -exponent - scale)
    return Decimal((sign if whole else 0, tuple(map(int, str(whole))), -scale))


def convert(literal: Literal, to: Type, span: Span | None) -> Literal | None:
    """Return the constant as another type, if that loses nothing; else None.

    A TEXT is read as the kernel reads it: a text that is no number is NULL. Raise TypeProblem for a
    text that should be a TIMESTAMP or a DATE and is neither.
    """
    value = literal.value
    if value is None or literal.type == to:
        return Literal(value, to)
    if literal.type.kind is Kind.TEXT:
        return _from_text(str(value), to, span)
    if isinstance(value, date) and not isinstance(value, datetime):
        return Literal(midnight(value), to) if to.kind is Kind.TIMESTAMP else None
    if literal.type.is_numeric and to.is_numeric:
        return _number_as(value, to)
    return None


def scalar(value: Scalar, to: Type, name: str, span: Span | None) -> Literal:
    """Return a parameter's value as its declared type; raise TypeProblem, naming the parameter."""
    if value is None:
        return Literal(None, to)
    value_type = infer(value, name, span)
    assert value_type is not None
    if value_type.kind is Kind.DECIMAL:
        assert isinstance(value, int | Decimal)
        value = fixed(Decimal(value), value_type.scale)
    if value_type == to:
        return Literal(_clean(value), to)
    literal = (
        convert(Literal(_clean(value), value_type), to, span)
        if value_type.kind is not Kind.TEXT
        else None
    )
    if literal is None or (isinstance(value, date) and not isinstance(value, datetime)):
        raise TypeProblem(
            f":{name} is {to}; {_short_repr(value)} is {value_type}", span, reason="BAD_VALUE"
        )
    return literal


def infer(value: Scalar, name: str, span: Span | None = None) -> Type | None:
    """Return the type of a Python value; None for None."""
    match value:
        case None:
            return None
        case bool():
            return Type(Kind.BOOLEAN)
        case int():
            if MIN_BIGINT <= value <= MAX_BIGINT:
                return BIGINT
            return type_of_decimal(Decimal(value), span)
        case float():
            return DOUBLE
        case Decimal():
            return type_of_decimal(value, span)
        case str():
            return TEXT
        case datetime():
            return Type(Kind.TIMESTAMP)
        case date():
            return Type(Kind.DATE)
    raise TypeProblem(
        f":{name} is a {type(value).__name__}, which is no value of the language",
        span,
        hint=_DURATION_FORM if isinstance(value, timedelta) else "",
        reason="BAD_VALUE",
    )


def _clean(value: Scalar) -> Scalar:
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    if isinstance(value, int) and not isinstance(value, bool) and not _fits(value):
        return Decimal(value)
    return value


def _from_text(text: str, to: Type, span: Span | None) -> Literal | None:
    try:
        if to.kind is Kind.TIMESTAMP:
            return Literal(read_timestamp(text), to)
        if to.kind is Kind.DATE:
            return Literal(read_date(text), to)
    except ValueError as problem:
        form = TIMESTAMP_FORM if to.kind is Kind.TIMESTAMP else DATE_FORM
        raise TypeProblem(str(problem), span, hint=form, reason="BAD_LITERAL") from None
    return Literal(PARSERS[to.kind](text, to), to)


def _number_as(value: Scalar, to: Type) -> Literal | None:
    if isinstance(value, float) and not math.isfinite(value):
        return Literal(value, to) if to.kind is Kind.DOUBLE else None
    assert isinstance(value, int | float | Decimal)
    exact = Decimal(value)
    if to.kind is Kind.DOUBLE:
        try:
            double = float(value)
        except OverflowError:
            return None
        return Literal(double, to) if Decimal(double) == exact else None
    if to.kind is Kind.BIGINT:
        whole = int(exact) if exact.adjusted() < 20 else MAX_BIGINT + 1
        return Literal(whole, to) if _fits(whole) and whole == exact else None
    return _as_decimal(exact, to)


def _as_decimal(exact: Decimal, to: Type) -> Literal | None:
    if exact.adjusted() >= to.precision - to.scale and exact:
        return None
    if exact and -exact.adjusted() > to.scale:
        return None
    scaled = fixed(exact, to.scale)
    return Literal(scaled, to) if scaled == exact else None


def _fits(value: int) -> bool:
    return MIN_BIGINT <= value <= MAX_BIGINT


def _double(exact: Decimal, span: Span) -> float:
    value = float(exact)
    if math.isinf(value) or (value == 0 and exact != 0):
        raise TypeProblem("the number is out of the range of DOUBLE", span, reason="BAD_LITERAL")
    return value + 0.0


def _too_long(span: Span | None) -> TypeProblem:
    return TypeProblem(
        f"the number is a DECIMAL here, and has more than {MAX_PRECISION} digits",
        span,
        hint="write fewer digits, or CAST('…' AS DOUBLE) with the number in quotes for a DOUBLE",
        reason="BAD_LITERAL",
    )


def _short_repr(value: Scalar) -> str:
    return repr(value)[:60]


_DURATION_FORM = "give a number, and multiply: :n * INTERVAL '1' SECOND"
TIMESTAMP_FORM = (
    "write '2026-11-16', '2026-11-16 09:00' or '2026-11-16T09:00:00.000250+01:00';"
    " nothing is finer than a microsecond"
)
DATE_FORM = "write '2026-11-16'"


def read_timestamp(text: str) -> datetime:
    """Return the instant that a text says, in UTC; raise ValueError with a message for people."""
    micros = cast.read_timestamp(text, TIMESTAMP)
    if micros is None:
        raise ValueError(f"{text[:60]!r} is not a TIMESTAMP")
    return from_micros(micros)


def read_date(text: str) -> date:
    """Return the day that a text says; raise ValueError with a message for people."""
    day = cast.read_date(text, DATE)
    if day is None:
        raise ValueError(f"{text[:60]!r} is not a DATE")
    return day


def midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)
