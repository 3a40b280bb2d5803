"""Messages of the wire as plain JSON: the same names, values that people can read.

| in the message | in JSON                                                            |
|----------------|--------------------------------------------------------------------|
| bytes          | hexadecimal digits                                                 |
| Timestamp      | "2026-11-16T09:00:00.000000Z", null if absent                      |
| Duration       | seconds, as a number, under the name with `_seconds`; null if absent |
| an enum        | the end of its name in lower case: "wks"; null for UNSPECIFIED     |
| Value          | the value                                                          |
| an integer     | a number, or text past 2^53, which JavaScript would round          |
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from psoup.formats.plain import odd_name
from psoup.v1 import psoup_pb2 as pb

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_SAFE_INTEGER = 2**53
_DURATION = Duration.DESCRIPTOR.full_name

# Descriptors have two classes, which depend on how protobuf is installed.
Field = Any


def plain(message: Message) -> dict[str, Any]:
    """Return a message as plain values, with every field, set or not."""
    return {_name(field): _field(message, field) for field in message.DESCRIPTOR.fields}


def plain_instant(stamp: Timestamp) -> str:
    return _instant(stamp.ToMicroseconds())


def plain_micros(micros: int | None) -> str | None:
    """Return an instant given in microseconds since 1970."""
    return None if micros is None else _instant(micros)


def enum_name(message: Message, field: str) -> str | None:
    """Return the value of a field that is an enum, as `plain` has it."""
    return _enum(getattr(message, field), message.DESCRIPTOR.fields_by_name[field].enum_type)


def _instant(micros: int) -> str:
    moment = _EPOCH + timedelta(microseconds=micros)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")


def plain_value(value: pb.Value) -> Any:
    kind = value.WhichOneof("kind")
    if kind is None:
        return None
    content = getattr(value, kind)
    if kind == "timestamp":
        return plain_instant(content)
    if kind == "double" and not -float("inf") < content < float("inf"):
        return odd_name(content)
    return content


def _name(field: Field) -> str:
    is_duration = field.message_type is not None and field.message_type.full_name == _DURATION
    return f"{field.name}_seconds" if is_duration else field.name


def _field(message: Message, field: Field) -> Any:
    value = getattr(message, field.name)
    if field.is_repeated:
        inside = field.message_type
        if inside is not None and inside.GetOptions().map_entry:
            content = inside.fields_by_name["value"]
            return {str(key): _value(value[key], content) for key in sorted(value)}
        return [_value(element, field) for element in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _value(value, field)


def _value(value: Any, field: Field) -> Any:
    match value:
        case Timestamp():
            return plain_instant(value)
        case Duration():
            return value.ToMicroseconds() / 10**6
        case pb.Value():
            return plain_value(value)
        case Message():
            return plain(value)
        case bytes():
            return value.hex()
        case int() if abs(value) > _MAX_SAFE_INTEGER:
            return str(value)
    return value if field.enum_type is None else _enum(value, field.enum_type)


def _enum(number: int, kind: Any) -> str | None:
    if not number or number not in kind.values_by_number:
        return None
    # The values of an enum begin with its name: UPDATE_PATTERN_WKS.
    unset = kind.values_by_number[0].name.removesuffix("UNSPECIFIED")
    return str(kind.values_by_number[number].name.removeprefix(unset).lower())
