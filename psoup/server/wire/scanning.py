"""A bounded scan of a message before it is parsed: how many fields it has, and where its Arrow is.

The parser of protobuf holds the interpreter until it is done, and makes an object of about a
hundred bytes out of two bytes of an empty message. So what it is given is bounded first, and an
Arrow batch is left where it is. The scan follows only those fields that hold repeated fields
themselves, rows for example, and skips the others by their lengths; it takes a step for each field
and stops after `max_fields` steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor

from psoup.v1 import psoup_pb2 as pb

# The most bytes of a varint.
_MAX_VARINT_BYTES = 10
_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5


class Malformed(Exception):
    """Bytes that the parser would refuse, or that no client writes: a group, two Arrow batches."""


@dataclass(frozen=True, slots=True)
class MessageShape:
    """What the scan needs of a message type: the shapes of fields that hold repeated fields, by
    tag, and the tag of the Arrow batch, 0 if there is none."""

    nested: Mapping[int, MessageShape]
    arrow_tag: int = 0


@dataclass(frozen=True, slots=True)
class Scan:
    """The Arrow batch, if there is one, as the places where its field begins, its content begins,
    and both end. A scan that is not `complete` has stopped at its bound."""

    arrow: tuple[int, int, int] | None
    complete: bool

    @property
    def arrow_bytes(self) -> int:
        return 0 if self.arrow is None else self.arrow[2] - self.arrow[0]

    def split(self, message: bytes, shape: MessageShape) -> tuple[bytes, memoryview | None]:
        """Return the message with an empty Arrow batch, and the batch, which is not copied."""
        if self.arrow is None:
            return message, None
        field, begin, end = self.arrow
        envelope = message[:field] + bytes([shape.arrow_tag, 0]) + message[end:]
        return envelope, memoryview(message)[begin:end]


_ARROW_FIELD = "arrow"
_ARROW_TYPES = frozenset({pb.PublishRequest.DESCRIPTOR, pb.RegisterManyRequest.DESCRIPTOR})


@cache
def shape_of(method: str) -> MessageShape:
    """Return the shape of the requests of a method, such as `/psoup.v1.Psoup/Publish`; that of an
    empty message for a method of an unknown service."""
    service, _, name = method[1:].partition("/")
    try:
        shape = descriptor_pool.Default().FindServiceByName(service)
    except KeyError:
        return MessageShape({})
    kind = shape.methods_by_name[name].input_type
    arrow = kind.fields_by_name[_ARROW_FIELD].number if kind in _ARROW_TYPES else 0
    return MessageShape(_nested(kind), _tag(arrow) if arrow else 0)


def _nested(kind: Descriptor) -> dict[int, MessageShape]:
    """Return the shapes of the fields of a type that hold repeated fields, however deep. No request
    holds a message of its own type."""
    return {
        _tag(field.number): MessageShape(_nested(field.message_type))
        for field in kind.fields
        if field.message_type is not None and _has_repeated(field.message_type)
    }


def _has_repeated(kind: Descriptor) -> bool:
    return any(
        field.is_repeated or (field.message_type is not None and _has_repeated(field.message_type))
        for field in kind.fields
    )


def _tag(number: int) -> int:
    return number << 3 | _LENGTH_DELIMITED


def scan(message: bytes, shape: MessageShape, max_fields: int) -> Scan:
    """Scan at most `max_fields` fields, those of the outermost message first. Raise Malformed."""
    fields, arrow = 0, None
    # Begin, end and shape of the messages to scan; the last is next.
    # A list in place of recursion: the depth of a message can't exhaust the stack.
    pending = [(0, len(message), shape)]
    try:
        while pending:
            at, end, inside = pending.pop()
            nested, arrow_tag = inside.nested, inside.arrow_tag
            while at < end:
                fields += 1
                if fields > max_fields:
                    return Scan(arrow, complete=False)
                field, tag, at = at, message[at], at + 1
                # Most tags and lengths are one byte, and are read without a call.
                if tag & 0x80:
                    tag, at = _varint(message, field)
                kind = tag & 7
                if kind == _LENGTH_DELIMITED:
                    size, at = message[at], at + 1
                    if size & 0x80:
                        size, at = _varint(message, at - 1)
                    if tag in nested:
                        pending.append((at, at + size, nested[tag]))
                    elif tag == arrow_tag:
                        if arrow is not None:
                            raise Malformed
                        arrow = field, at, at + size
                    at += size
                elif kind == _VARINT:
                    _, at = _varint(message, at)
                elif kind == _FIXED64:
                    at += 8
                elif kind == _FIXED32:
                    at += 4
                else:
                    raise Malformed
            # A length may reach past its message, or past all bytes; then nothing inside was
            # scanned yet.
            if at > end:
                raise Malformed
    except IndexError:
        raise Malformed from None
    return Scan(arrow, complete=True)


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Return the number there, and where it ends. Raise Malformed, IndexError."""
    value = 0
    for place in range(_MAX_VARINT_BYTES):
        byte = message[at + place]
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    raise Malformed
