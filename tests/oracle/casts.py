"""CAST, one value at a time."""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

from datastem.types import Kind, Type
from querystem.expressions import Scalar
from tests.oracle import numbers
from tests.oracle.times import moment_of

_SPECIAL = {"nan", "inf", "+inf", "-inf", "infinity", "+infinity", "-infinity"}


def cast(value: Any, source: Type, target: Type) -> Scalar:
    if source == target:
        result: Scalar = value
        return result
    if source.kind is Kind.TEXT:
        return _read(value.strip(" "), target)
    match target.kind:
        case Kind.TEXT:
            return _write(value, source)
        case Kind.DATE:
            return value.date() if isinstance(value, datetime) else value
        case Kind.TIMESTAMP:
            return moment_of(value)
        case Kind.DOUBLE:
            return numbers.as_double(Fraction(value))
        case Kind.BIGINT:
            return _to_bigint(value, target)
    return _to_decimal(value, target)


def _to_bigint(value: Any, target: Type) -> Scalar:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return numbers.from_fraction(Fraction(math.trunc(value)), target)


def _to_decimal(value: Any, target: Type) -> Scalar:
    if not isinstance(value, float):
        return numbers.from_fraction(Fraction(value), target)
    return numbers.from_fraction(numbers.written(value), target) if math.isfinite(value) else None


def _write(value: Any, source: Type) -> str:
    match source.kind:
        case Kind.BOOLEAN:
            return "true" if value else "false"
        case Kind.DOUBLE:
            return _write_double(value)
        case Kind.DECIMAL:
            return f"{value:.{source.scale}f}"
        case Kind.DATE:
            return str(value.isoformat())
        case Kind.TIMESTAMP:
            return str(value.isoformat(" ")).removesuffix("+00:00")
    return str(value)


def _write_double(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value) if value else "0.0"


def _read(text: str, target: Type) -> Scalar:
    match target.kind:
        case Kind.BOOLEAN:
            if text.lower() in ("true", "t", "yes", "y", "1"):
                return True
            return False if text.lower() in ("false", "f", "no", "n", "0") else None
        case Kind.BIGINT:
            digits = text[1:] if text[:1] in ("+", "-") else text
            if not (digits.isascii() and digits.isdigit()):
                return None
            return numbers.from_fraction(Fraction(int(text)), target)
        case Kind.DOUBLE:
            return float(text) if text.lower() in _SPECIAL or _is_number(text) else None
        case Kind.DECIMAL:
            value = Fraction(Decimal(text)) if _is_number(text) else None
            return None if value is None else numbers.from_fraction(value, target)
        case Kind.DATE:
            return _read_date(text)
    return _read_timestamp(text)


def _is_number(text: str) -> bool:
    if not set(text) <= set("0123456789+-.eE"):
        return False
    try:
        float(text)
    except ValueError:
        return False
    return True


def _read_date(text: str) -> date | None:
    try:
        return date(int(text[:4]), int(text[5:7]), int(text[8:])) if _is_date(text) else None
    except ValueError:
        return None


def _is_date(text: str) -> bool:
    return re.sub("[0-9]", "9", text) == "9999-99-99"


def _read_timestamp(text: str) -> datetime | None:
    day, clock = text[:10], text[10:]
    midnight = _read_date(day)
    if midnight is None:
        return None
    if not clock:
        return moment_of(midnight)
    parts = re.match(r"[ Tt]([0-9:]+)(\.[0-9]+)? ?([Zz]|[+-][0-9:]+)?$", clock)
    if parts is None or clock.endswith("\n"):
        return None
    try:
        return _combine(midnight, parts[1], parts[2], parts[3])
    except (ValueError, OverflowError):
        return None


def _combine(day: date, clock: str, fraction: str | None, zone: str | None) -> datetime:
    if re.sub("[0-9]", "9", clock) not in (("99:99:99",) if fraction else ("99:99", "99:99:99")):
        raise ValueError(clock)
    hour, minute, second = (int(part) for part in [*clock.split(":"), "0"][:3])
    moment = datetime(day.year, day.month, day.day, hour, minute, second, tzinfo=UTC)
    micros = Fraction(fraction or 0) * 1_000_000 if fraction != "." else Fraction(0)
    if micros.denominator != 1:
        raise ValueError(fraction)
    return moment + timedelta(microseconds=int(micros)) - _offset(zone)


def _offset(zone: str | None) -> timedelta:
    if zone is None or zone in "Zz":
        return timedelta(0)
    if re.sub("[0-9]", "9", zone[1:]) not in ("99", "99:99", "9999"):
        raise ValueError(zone)
    hours, minutes = int(zone[1:3]), int(zone[3:].lstrip(":") or 0)
    if hours > 23 or minutes > 59:
        raise ValueError(zone)
    size = timedelta(hours=hours, minutes=minutes)
    return -size if zone[0] == "-" else size
