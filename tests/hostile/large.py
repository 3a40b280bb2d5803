"""Large requests to any method, made from its descriptor: the shapes that cost a parser most."""

from __future__ import annotations

import random
from collections.abc import Iterator

from google.protobuf.descriptor import Descriptor, FieldDescriptor

_DEEPEST = 4


def varint(number: int) -> bytes:
    content = bytearray()
    while number > 0x7F:
        content.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*content, number])


def field(number: int, content: bytes) -> bytes:
    """Return a field of bytes, a text or a message."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def large_messages(kind: Descriptor, nbytes: int) -> Iterator[tuple[str, bytes]]:
    """Yield messages of about so many bytes, and what each is: one field that is long, a field
    again and again, for every field of the type and those inside it, and bytes that are none."""
    yield "0xff", b"\xff" * nbytes
    yield "zeros", bytes(nbytes)
    yield "random", random.Random(nbytes).randbytes(nbytes)
    yield from _of_fields(kind, nbytes, 0)


def _of_fields(kind: Descriptor, nbytes: int, depth: int) -> Iterator[tuple[str, bytes]]:
    for field_message in kind.fields:
        name = f"{kind.name}.{field_message.name}"
        if field_message.message_type is not None:
            yield f"{name} empty", _again(field(field_message.number, b""), nbytes)
            if depth < _DEEPEST:
                for inner, content in _of_fields(
                    field_message.message_type, nbytes - 10, depth + 1
                ):
                    yield f"{name} {inner}", field(field_message.number, content)
        elif field_message.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            yield f"{name} long", field(field_message.number, b"x" * (nbytes - 10))
            yield f"{name} empty", _again(field(field_message.number, b""), nbytes)
        elif field_message.is_repeated:
            yield f"{name} packed", field(field_message.number, b"\x01" * (nbytes - 10))
            yield f"{name} again", _again(varint(field_message.number << 3) + b"\x01", nbytes)


def _again(piece: bytes, nbytes: int) -> bytes:
    return piece * (nbytes // len(piece))
