"""Lone surrogates: no string field and no Arrow column of a request brings one into the store."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from datastem.accept import Limits, accept
from datastem.errors import RowError
from datastem.schema import Column, StreamSchema
from datastem.types import TEXT
from psoup.server.wire.parameters import table_columns
from psoup.v1 import psoup_pb2 as pb

# A surrogate as UTF-8 would write it, if it could.
_SURROGATE = b"\xed\xa0\x80"
_LENGTH_DELIMITED = 2


def _strings(message: Descriptor, visited: tuple[str, ...] = ()) -> Iterator[list[FieldDescriptor]]:
    """Yield the path to each string field of a message, and of the messages in it."""
    for field in message.fields:
        if field.type == FieldDescriptor.TYPE_STRING:
            yield [field]
        elif field.message_type is not None and field.message_type.full_name not in visited:
            for path in _strings(field.message_type, (*visited, message.full_name)):
                yield [field, *path]


def _requests() -> list[Descriptor]:
    methods = pb.DESCRIPTOR.services_by_name["Psoup"].methods
    return [method.input_type for method in methods]


def test_no_string_of_a_request_takes_a_surrogate() -> None:
    count = 0
    for request in _requests():
        for path in _strings(request):
            content = _SURROGATE
            for field in reversed(path):
                # Lengths below 128 are one byte; so are the tags of fields below 16.
                tag = field.number << 3 | _LENGTH_DELIMITED
                head = bytes([tag]) if tag < 128 else bytes([tag & 0x7F | 0x80, tag >> 7])
                content = head + bytes([len(content)]) + content
            with pytest.raises(DecodeError):
                GetMessageClass(request).FromString(content)
            count += 1
    assert count > 40


def _texts() -> pa.Table:
    offsets = pa.array([0, len(_SURROGATE)], pa.int32()).buffers()[1]
    buffers = [None, offsets, pa.py_buffer(_SURROGATE)]
    return pa.table({"t": pa.Array.from_buffers(pa.string(), 1, buffers)})


def test_no_column_takes_a_surrogate() -> None:
    with pytest.raises(RowError):
        accept(_texts(), StreamSchema("s", (Column("t", TEXT),)), 0, Limits())
    with pytest.raises(RowError):
        table_columns(_texts(), Limits())
