"""Constants of time: the kernel's own reading of a text, so that both always agree."""

from __future__ import annotations

from datetime import UTC, date, datetime

from datastem.instants import from_micros
from datastem.types import DATE, TIMESTAMP
from querystem.kernel import cast

TIMESTAMP_FORM = (
    "write '2026-11-16', '2026-11-16 09:00' or '2026-11-16T09:00:00.000250+01:00';"
    " nothing is finer than a microsecond"
)
DATE_FORM = "write '2026-11-16'"


def read_timestamp(text: str) -> datetime:
    """An instant, in UTC. Raises ValueError, with a message for people."""
    micros = cast.read_timestamp(text, TIMESTAMP)
    if micros is None:
        raise ValueError(f"{text[:60]!r} is not a TIMESTAMP")
    return from_micros(micros)


def read_date(text: str) -> date:
    """Raises ValueError, with a message for people."""
    day = cast.read_date(text, DATE)
    if day is None:
        raise ValueError(f"{text[:60]!r} is not a DATE")
    return day


def midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)
