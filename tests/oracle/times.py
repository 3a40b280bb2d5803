"""EXTRACT, DATE_TRUNC and arithmetic of times, one at a time, with Python's calendar."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

from datastem.types import Kind, Type
from querystem.expressions import Op, Scalar
from tests.oracle.numbers import half_away


def moment_of(value: datetime | date) -> datetime:
    if isinstance(value, datetime):
        return value
    return datetime(value.year, value.month, value.day, tzinfo=UTC)


def date_trunc(unit: str, value: datetime | date) -> datetime:
    moment = moment_of(value)
    if unit == "microsecond":
        return moment
    if unit == "millisecond":
        return moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    moment = moment.replace(microsecond=0)
    if unit == "second":
        return moment
    moment = moment.replace(second=0)
    if unit == "minute":
        return moment
    moment = moment.replace(minute=0)
    if unit == "hour":
        return moment
    return _day_trunc(unit, moment.replace(hour=0))


def _day_trunc(unit: str, day: datetime) -> datetime:
    match unit:
        case "day":
            return day
        case "week":
            return day - timedelta(days=day.weekday())
        case "month":
            return day.replace(day=1)
        case "quarter":
            return day.replace(day=1, month=(day.month - 1) // 3 * 3 + 1)
    return day.replace(day=1, month=1)


def extract(unit: str, value: datetime | date, type_: Type) -> Scalar:
    field = _field(unit, moment_of(value))
    return float(field) if type_.kind is Kind.DOUBLE else int(field)


def in_unit(unit: str, micros: int, type_: Type) -> Scalar:
    """Return all of a duration in a unit."""
    sizes = {
        "microsecond": timedelta(microseconds=1),
        "millisecond": timedelta(milliseconds=1),
        "second": timedelta(seconds=1),
        "minute": timedelta(minutes=1),
        "hour": timedelta(hours=1),
        "day": timedelta(days=1),
        "week": timedelta(weeks=1),
    }
    count = Fraction(micros, sizes[unit] // timedelta(microseconds=1))
    return float(count) if type_.kind is Kind.DOUBLE else int(count)


def calculate(op: Op, values: list[Any]) -> Scalar:
    """Return an instant as a datetime, or a duration in microseconds; None if it is out of
    range."""
    first, *operands = values
    if isinstance(first, datetime):
        return _with_instant(op, first, *operands)
    match op:
        case Op.NEG:
            micros = -first
        case Op.ABS:
            micros = abs(first)
        case Op.ADD:
            micros = first + operands[0]
        case Op.SUB:
            micros = first - operands[0]
        case _:
            micros = _product(first, operands[0])
    return micros if micros is not None and -(2**63) <= micros < 2**63 else None


def _with_instant(op: Op, instant: datetime, operand: datetime | int) -> Scalar:
    if isinstance(operand, datetime):
        return (instant - operand) // timedelta(microseconds=1)
    size = timedelta(microseconds=operand)
    try:
        return instant + size if op is Op.ADD else instant - size
    except OverflowError:
        return None


def _product(micros: int, number: int | float | Decimal) -> int | None:
    """Return the product with a DOUBLE as doubles multiply, with any other number exactly."""
    if not isinstance(number, float):
        return half_away(Fraction(micros) * Fraction(number))
    product = float(micros) * number
    return half_away(Fraction(product)) if math.isfinite(product) else None


def _field(unit: str, moment: datetime) -> int | Fraction:
    micros = moment.second * 1_000_000 + moment.microsecond
    fields: dict[str, int | Fraction] = {
        "year": moment.year,
        "quarter": (moment.month + 2) // 3,
        "month": moment.month,
        "week": moment.isocalendar().week,
        "day": moment.day,
        "doy": moment.timetuple().tm_yday,
        "dow": moment.isoweekday() % 7,
        "hour": moment.hour,
        "minute": moment.minute,
        "second": Fraction(micros, 1_000_000),
    }
    return fields[unit]
