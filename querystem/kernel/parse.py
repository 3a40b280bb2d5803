"""Reading values from TEXT, one at a time: strict, except for spaces at both ends.

Each reader returns None for a text that is no value of its type.
"""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Callable
from typing import Any

from datastem.instants import MAX_INSTANT, MIN_INSTANT, MINUTE, to_micros
from datastem.types import Kind, Type
from querystem.kernel.integers import INT64_MAX, INT64_MIN

_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")
_SPECIAL = re.compile(r"[+-]?(inf|infinity)|nan", re.IGNORECASE)
_DATE = r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
_TIME = r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]+))?)?"
_ZONE = r"(?:[Zz]|([+-])([0-9]{2})(?::?([0-9]{2}))?)"
_MOMENT = re.compile(rf"{_DATE}(?:[ Tt]{_TIME} ?{_ZONE}?)?")
_DAY = re.compile(_DATE)
_BOOLEANS = {
    **dict.fromkeys(("true", "t", "yes", "y", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "0"), False),
}
# No DECIMAL has more digits; a longer text is no number worth the work.
_LONGEST = 4096
_CONTEXT = decimal.Context(prec=2 * _LONGEST, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)


def read_boolean(text: str, _: Type) -> bool | None:
    return _BOOLEANS.get(text.strip(" ").lower())


def read_bigint(text: str, _: Type) -> int | None:
    text = text.strip(" ")
    if not _INTEGER.fullmatch(text) or len(text) > _LONGEST:
        return None
    value = int(text)
    return value if INT64_MIN <= value <= INT64_MAX else None


def read_double(text: str, _: Type) -> float | None:
    text = text.strip(" ")
    if _NUMBER.fullmatch(text) or _SPECIAL.fullmatch(text):
        return float(text)
    return None


def read_decimal(text: str, type_: Type) -> decimal.Decimal | None:
    text = text.strip(" ")
    if not _NUMBER.fullmatch(text) or len(text) > _LONGEST:
        return None
    value = _CONTEXT.create_decimal(text)
    if value and value.adjusted() > type_.precision:
        return None
    step = decimal.Decimal(1).scaleb(-type_.scale)
    rounded = value.quantize(step, decimal.ROUND_HALF_UP, _CONTEXT)
    return rounded if abs(rounded) < 10 ** (type_.precision - type_.scale) else None


def read_timestamp(text: str, _: Type) -> int | None:
    """Microseconds; a text without a zone is UTC, and one without a time midnight."""
    match = _MOMENT.fullmatch(text.strip(" "))
    if match is None or (match[7] or "")[6:].strip("0"):
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    try:
        moment = datetime.datetime(year, month, day, hour, minute, second)
    except ValueError:
        return None
    hours, minutes = int(match[9] or 0), int(match[10] or 0)
    if hours > 23 or minutes > 59:
        return None
    offset = (hours * 60 + minutes) * (-MINUTE if match[8] == "-" else MINUTE)
    micros = to_micros(moment) + int((match[7] or "")[:6].ljust(6, "0")) - offset
    return micros if MIN_INSTANT <= micros <= MAX_INSTANT else None


def read_date(text: str, _: Type) -> datetime.date | None:
    match = _DAY.fullmatch(text.strip(" "))
    if match is None:
        return None
    try:
        return datetime.date(int(match[1]), int(match[2]), int(match[3]))
    except ValueError:
        return None


PARSERS: dict[Kind, Callable[[str, Type], Any]] = {
    Kind.BOOLEAN: read_boolean,
    Kind.BIGINT: read_bigint,
    Kind.DOUBLE: read_double,
    Kind.DECIMAL: read_decimal,
    Kind.TIMESTAMP: read_timestamp,
    Kind.DATE: read_date,
}
