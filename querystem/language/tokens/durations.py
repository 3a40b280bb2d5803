"""Durations: `10 MINUTES`, `INTERVAL '10' MINUTE`, or a bare number of seconds.

In an expression a duration is written with INTERVAL, and may be negative.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

from sqlglot.tokenizer_core import Token, TokenType

from datastem.instants import DAY, HOUR, MAX_INSTANT, MICROSECOND, MIN_INSTANT, MINUTE, SECOND
from querystem.language.errors import Span, SyntaxProblem, TypeProblem
from querystem.language.tokens.literals import MAX_BIGINT
from querystem.language.tokens.names import is_unit_like, suggest
from querystem.language.tokens.scan import TokenReader, span_of

UNITS = {
    "MICROSECOND": MICROSECOND,
    "MILLISECOND": 1000 * MICROSECOND,
    "SECOND": SECOND,
    "MINUTE": MINUTE,
    "HOUR": HOUR,
    "DAY": DAY,
    "WEEK": 7 * DAY,
}
MAX_DURATION = MAX_INSTANT - MIN_INSTANT  # microseconds

_UNEVEN = {"MONTH": "30 DAYS", "QUARTER": "90 DAYS", "YEAR": "365 DAYS"}
_SIGNED_FORM = "write INTERVAL '10' MINUTE, or INTERVAL '-1.5' HOUR"
_FORM = "write 10 MINUTES, INTERVAL '10' MINUTE, or a number of seconds"


def read_duration(reader: TokenReader) -> int:
    """Return a duration in microseconds, zero or more."""
    start = reader.span
    if reader.take("INTERVAL"):
        amount, unit = _interval(reader)
    else:
        token = reader.take_kind(TokenType.NUMBER)
        if token is None:
            reader.fail("expected a duration", hint=_FORM)
        amount, unit = _amount(token.text, token), _unit_ahead(reader)
    if reader.token is not None and reader.token.token_type == TokenType.NUMBER:
        reader.fail("a duration has one number and one unit", hint="write 90 MINUTES")
    return _micros(amount, unit, start, MAX_DURATION, "at most 9,998 years")


def read_interval(
    written: str, place: Span, unit: str | None, unit_place: Span, whole: Span
) -> int:
    """Return the microseconds of INTERVAL '`written`' `unit` in an expression, of either sign.

    `place`, `unit_place` and `whole` are the places of the text, the unit and the whole INTERVAL.
    """
    number, _, inner = written.strip().partition(" ")
    if inner:
        unit, unit_place = inner.strip(), place
    size = "SECOND" if unit is None else _unit(unit, unit_place)
    amount = _number(number.removeprefix("-"), place, _SIGNED_FORM)
    negative = number.startswith("-")
    micros = _micros(amount, size, whole, MAX_BIGINT + negative, "at most 292,271 years")
    return -micros if negative else micros


def write_interval(micros: int) -> str:
    """Return a duration as it is written in an expression; `read_interval` reads it back."""
    count, _, unit = write_duration(abs(micros)).partition(" ")
    return f"INTERVAL '{'-' if micros < 0 else ''}{count}' {unit.removesuffix('S')}"


def write_duration(micros: int) -> str:
    """Return a duration in the largest unit that needs no fraction."""
    for unit, size in reversed(UNITS.items()):
        if micros % size == 0 and micros:
            count = micros // size
            return f"{count} {unit}{'S' if count != 1 else ''}"
    return "0 SECONDS"


def _interval(reader: TokenReader) -> tuple[Decimal, str]:
    token = reader.take_kind(TokenType.STRING) or reader.take_kind(TokenType.NUMBER)
    if token is None:
        reader.fail("expected a number after INTERVAL", hint=_FORM)
    number, _, unit = token.text.strip().partition(" ")
    if unit:
        return _amount(number, token), _unit(unit.strip(), span_of(token))
    return _amount(number, token), _unit_ahead(reader)


def _unit_ahead(reader: TokenReader) -> str:
    token = reader.token
    if token is None or token.token_type != TokenType.VAR or not is_unit_like(token.text):
        return "SECOND"
    reader.skip()
    return _unit(token.text, span_of(token))


def _unit(text: str, span: Span) -> str:
    word = text.upper().removesuffix("S")
    if word in UNITS:
        return word
    if word in _UNEVEN:
        raise SyntaxProblem(
            f"{text} has no fixed length", span, hint=f"write days, such as {_UNEVEN[word]}"
        )
    raise SyntaxProblem(f"{text!r} is not a unit of time", span, hint=suggest(word, UNITS))


def _amount(text: str, token: Token) -> Decimal:
    return _number(text, span_of(token), _FORM)


def _number(text: str, span: Span, form: str) -> Decimal:
    try:
        amount = Decimal(text)
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite() or amount < 0 or "_" in text:
        raise SyntaxProblem(f"{text!r} is not a number", span, hint=form)
    return amount


def _micros(amount: Decimal, unit: str, span: Span, longest: int, hint: str) -> int:
    if abs(amount.adjusted()) > 30 or amount * UNITS[unit] > longest:
        raise TypeProblem("the duration is out of range", span, hint=hint, reason="BAD_LITERAL")
    micros = amount * UNITS[unit]
    if micros.as_integer_ratio()[1] != 1:
        raise TypeProblem(
            "the duration is not a whole number of microseconds", span, reason="BAD_LITERAL"
        )
    return int(micros)
