"""Mutations of bytes, of texts and of messages, each drawn from a random number generator."""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Sequence
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

_NUMBERS = (0, 1, -1, 127, 255, 2**15, 2**31 - 1, -(2**31), 2**32, 2**62, 2**63 - 1, -(2**63))
# So many words are taken more often than the others.
_FIRST = 7
_TOKENS = re.compile(r"\w+|'[^']*'|\s+|.", re.DOTALL)
_WORDS = (
    *("SELECT", "FROM", "WHERE", "AND", "OR", "NOT", "NULL", "IN", "LIKE", "BETWEEN", "CASE"),
    *("WHEN", "END", "BEGIN", "RANGE", "ROWS", "SLIDE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT"),
    *("UNION ALL", "EXCEPT", "JOIN", "LEFT JOIN", "ON", "USING", "AS OF", "EXISTS", "WITH"),
    *("REFRESH EVERY", "REFRESH ON", "CREATE", "STREAM", "VIEW", "POLICY", "DROP", "GRANT", "TO"),
    *("claim('a')", ":p", "$1", "?", "*", "(", ")", ",", ";", "--", "/*", "*/", "''", "'", '"'),
    *("1e999", "-0", "0x", "99999999999999999999", "1 HOUR", "INTERVAL", "NaN", "\x00", "\ud7ff"),
    *("é", "\u202e", "%", "_", "\\", "||", "::", "<>", ">=", "count(*)", "sum(", "CAST(x AS"),
)


def mutated_bytes(draw: random.Random, content: bytes, samples: Sequence[bytes]) -> bytes:
    """The content with one to four changes; `others` are contents to take pieces from."""
    changed = bytearray(content)
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        _change(draw, changed, samples)
    return bytes(changed)


def _change(draw: random.Random, content: bytearray, samples: Sequence[bytes]) -> None:
    place = draw.randrange(len(content) + 1)
    match draw.randrange(8):
        case 0 if place < len(content):
            content[place] ^= 1 << draw.randrange(8)
        case 1 if place < len(content):
            content[place] = draw.choice((0, 1, 127, 128, 255))
        case 2:
            del content[place:]
        case 3:
            del content[place : place + draw.randrange(1, 9)]
        case 4:
            content[place:place] = draw.randbytes(draw.randrange(1, 9))
        case 5:
            number = draw.choice(_NUMBERS) & (2**64 - 1)
            content[place : place + 8] = struct.pack("<Q", number)
        case 6:
            sample = draw.choice(samples)
            begin = draw.randrange(len(sample) + 1)
            content[place:] = sample[begin:]
        case _:
            piece = content[place : place + draw.randrange(1, 65)]
            content[place:place] = piece


def mutated_text(draw: random.Random, text: str, samples: Sequence[str]) -> str:
    """The text with one to four of its tokens changed, moved, left out or brought from others."""
    tokens = _TOKENS.findall(text)
    for _ in range(draw.choice((1, 1, 2, 4))):
        place = draw.randrange(len(tokens) + 1)
        match draw.randrange(7):
            case 0:
                tokens[place:place] = [" ", draw.choice(_WORDS), " "]
            case 1:
                del tokens[place : place + draw.randrange(1, 4)]
            case 2:
                tokens[place : place + 1] = [draw.choice(_WORDS)]
            case 3:
                piece = tokens[place : place + draw.randrange(1, 12)]
                tokens[place:place] = piece * draw.choice((1, 2, 50))
            case 4:
                sample = _TOKENS.findall(draw.choice(samples))
                tokens[place:] = sample[draw.randrange(len(sample) + 1) :]
            case 5:
                tokens[place:place] = ["("] * draw.choice((1, 3, 400))
            case _:
                tokens[place:place] = [draw.choice(("x", "9", "'", "\x00", "é")) * 300]
    return "".join(tokens)


def random_message(draw: random.Random, kind: Descriptor, words: Sequence[Any]) -> Message:
    """A message with some of its fields set: to odd values, or to `words` of their types, which
    are names, texts, handles and tokens that mean something to the server."""
    message = GetMessageClass(kind)()
    for field in kind.fields:
        if draw.random() < 0.5:
            _set(draw, message, field, words)
    return message


def _set(
    draw: random.Random, message: Message, field: FieldDescriptor, words: Sequence[Any]
) -> None:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return
    if field.is_repeated:
        values = [_value(draw, field, words) for _ in range(draw.choice((1, 1, 2, 5)))]
        getattr(message, field.name).extend(values)
    elif field.message_type is not None:
        getattr(message, field.name).CopyFrom(_value(draw, field, words))
    else:
        setattr(message, field.name, _value(draw, field, words))


def _value(draw: random.Random, field: FieldDescriptor, words: Sequence[Any]) -> Any:
    if field.message_type is not None:
        return random_message(draw, field.message_type, words)
    if field.type == FieldDescriptor.TYPE_BYTES:
        contents = [word for word in words if isinstance(word, bytes)]
        return draw.choice(contents) if draw.random() < 0.8 else draw.randbytes(16)
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING:
            sample_values = [word for word in words if isinstance(word, str)]
            sample_values = sample_values if draw.random() < 0.3 else sample_values[:_FIRST]
            odd = ("", "\x00", "é" * 90, "x" * 300, "../..", "%s", "'; DROP STREAM s; --")
            return draw.choice(sample_values if sample_values and draw.random() < 0.8 else odd)
        case FieldDescriptor.CPPTYPE_BOOL:
            return draw.random() < 0.5
        case FieldDescriptor.CPPTYPE_ENUM:
            assert field.enum_type is not None
            return draw.choice([choice.number for choice in field.enum_type.values])
        case FieldDescriptor.CPPTYPE_DOUBLE | FieldDescriptor.CPPTYPE_FLOAT:
            return draw.choice((0.0, -1.5, 1e308, float("nan"), float("inf")))
        case FieldDescriptor.CPPTYPE_INT32:
            return draw.choice((0, 1, -1, 100, 2**31 - 1, -(2**31)))
        case FieldDescriptor.CPPTYPE_UINT32:
            return draw.choice((0, 1, 100, 2**32 - 1))
        case FieldDescriptor.CPPTYPE_INT64:
            return draw.choice((0, 1, -1, 100, 2**62, 2**63 - 1, -(2**63)))
        case FieldDescriptor.CPPTYPE_UINT64:
            return draw.choice((0, 1, 100, 2**63, 2**64 - 1))
    raise AssertionError(f"a field of a type that nobody thought of: {field.full_name}")
