"""Instants and durations between Python and the wire. A datetime without a zone is UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def utc(moment: datetime) -> datetime:
    """The same instant in UTC. Raises ValueError for digits finer than a microsecond."""
    if getattr(moment, "nanosecond", 0):
        raise ValueError(f"{moment} is finer than a microsecond; round it first")
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def timestamp(moment: datetime) -> Timestamp:
    seconds, rest = divmod(to_micros(moment), 1_000_000)
    return Timestamp(seconds=seconds, nanos=rest * 1000)


def moment(stamp: Timestamp) -> datetime:
    return _EPOCH + timedelta(seconds=stamp.seconds, microseconds=stamp.nanos // 1000)


def optional_moment(message: Message, field: str) -> datetime | None:
    return moment(getattr(message, field)) if message.HasField(field) else None


def to_micros(instant: datetime) -> int:
    """Microseconds since 1970."""
    return (utc(instant) - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def duration(span: timedelta) -> Duration:
    message = Duration()
    message.FromTimedelta(span)
    return message


def span(message: Duration) -> timedelta:
    return timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)
