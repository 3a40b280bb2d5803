"""Instants and durations are integers: microseconds, UTC, since 1970."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

MICROSECOND = 1
SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STEP = timedelta(microseconds=1)

# The years a TIMESTAMP may have: 0001 to 9999.
MIN_INSTANT = (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH) // _STEP
MAX_INSTANT = (datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC) - _EPOCH) // _STEP

# No instant is before the one, none after the other: the least and the greatest int64.
SINCE_EVER = -(1 << 63)
FOR_EVER = (1 << 63) - 1


def to_micros(moment: datetime) -> int:
    """Return the instant of a datetime; one without a zone is taken as UTC."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _STEP


def from_micros(micros: int) -> datetime:
    """Return the instant as a datetime; raise OverflowError outside the years 0001 to 9999."""
    return _EPOCH + timedelta(microseconds=micros)


def format_instant(micros: int) -> str:
    """Return the instant as `2026-11-16 09:00:00.000250`, without the fraction if it is zero."""
    moment = from_micros(micros)
    text = moment.strftime("%Y-%m-%d %H:%M:%S").rjust(19, "0")
    return f"{text}.{moment.microsecond:06d}" if moment.microsecond else text
