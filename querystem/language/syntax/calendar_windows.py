"""DURING: windows of calendar units, such as TODAY, LAST 3 MONTHS or THIS WEEK, in a time zone."""

from __future__ import annotations

import re

from sqlglot.tokenizer_core import TokenType

from datastem.calendar import Unit
from datastem.zones import MAX_ZONE_NAME
from querystem.language.errors import BindProblem, Span, SyntaxProblem, WindowProblem
from querystem.language.tokens.durations import MAX_DURATION
from querystem.language.tokens.names import suggest
from querystem.language.tokens.scan import TokenReader, span_of
from results.window import CalendarBound, TimeWindow

_FORM = (
    "write DURING TODAY, DURING YESTERDAY, DURING THIS MONTH or DURING LAST 3 MONTHS, and after it"
    " AT TIME ZONE 'Europe/Madrid' for days of a zone"
)
_ZONE_FORM = "write the name of a zone, such as AT TIME ZONE 'Europe/Madrid'"
_UNITS = [unit.value for unit in Unit if unit is not Unit.WEEK_SUNDAY]
_ZONE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+\-/]*")
# The names under which the rules of UTC, which every process has, are written.
_UTC_NAMES = ("UTC", "ETC/UTC", "Z", "GMT")


def read_during(reader: TokenReader) -> TimeWindow:
    """Return the window after DURING."""
    if reader.take("TODAY"):
        unit, back = Unit.DAY, 0
    elif reader.take("YESTERDAY"):
        unit, back = Unit.DAY, 1
    elif reader.take("THIS"):
        unit, back = _unit(reader), 0
    elif reader.take("LAST"):
        span = reader.span
        back = _count(reader)
        unit = _unit(reader)
        if back * unit.longest > MAX_DURATION:
            raise WindowProblem("the window is longer than 9,998 years", span)
    else:
        reader.fail("expected a calendar unit after DURING", hint=_FORM)
    zone = read_zone(reader)
    end = CalendarBound(unit, 0, zone) if back else None
    return TimeWindow(CalendarBound(unit, back, zone), end)


def read_zone(reader: TokenReader) -> str:
    """Return the zone of AT TIME ZONE, empty for UTC and if there is none.

    Whether there is such a zone is not known here.
    """
    if not reader.take("AT"):
        return ""
    reader.need("TIME", "ZONE", hint=_ZONE_FORM)
    place = reader.span
    token = reader.take_kind(TokenType.STRING)
    if token is None:
        reader.fail("expected a time zone", hint=_ZONE_FORM)
    return checked_zone(token.text, place)


def checked_zone(name: str, place: Span) -> str:
    """Return the name of a zone, empty for UTC; raise BindProblem for what is no name of one."""
    if name.upper() in _UTC_NAMES:
        return ""
    if len(name) > MAX_ZONE_NAME or not _ZONE_NAME.fullmatch(name):
        raise BindProblem(
            f"{name[:MAX_ZONE_NAME]!r} is not a time zone", place, hint=_ZONE_FORM,
            reason="UNKNOWN_TIME_ZONE",
        )  # fmt: skip
    return name


def _count(reader: TokenReader) -> int:
    token = reader.take_kind(TokenType.NUMBER)
    if token is None:
        return 1
    plain = token.text.isascii() and token.text.isdigit() and len(token.text) < 10
    if not plain or not int(token.text):
        raise WindowProblem(
            f"DURING LAST takes a whole number from 1, not {token.text[:60]}", span_of(token)
        )
    return int(token.text)


def _unit(reader: TokenReader) -> Unit:
    token = reader.token
    if token is None:
        reader.fail("expected a calendar unit", hint=_FORM)
    word = token.text.upper().removesuffix("S")
    if token.token_type == TokenType.STRING or word not in _UNITS:
        raise SyntaxProblem(
            f"{token.text[:60]!r} is not a calendar unit", reader.span, hint=suggest(word, _UNITS)
        )
    reader.skip()
    if word == "WEEK" and reader.take("SUNDAY"):
        return Unit.WEEK_SUNDAY
    return Unit(word)
