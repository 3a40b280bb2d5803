"""EXTRACT and DATE_TRUNC, one at a time, with Python's calendar."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from fractions import Fraction

from datastem.types import Kind, Type
from querystem.expressions import Scalar


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
