"""An answer in messages: Arrow IPC cut anywhere, or rows of typed values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

import pyarrow as pa

from datastem.schema import Column
from psoup.server.wire.values import to_rows
from psoup.v1 import psoup_pb2 as pb
from querystem.pace import spending

# A message, or the bytes it would have on the wire.
Message = pb.InvokeResponse | bytes

# What a piece may have besides its values.
_FRAME = 8 << 10
# How an IPC stream ends.
_END = b"\xff\xff\xff\xff\0\0\0\0"
_LENGTH_DELIMITED = 2
# Units (`querystem.pace`) of a value that is made a message of its own.
_TYPED_UNITS = 500
_TAG = bytes([pb.InvokeResponse.DESCRIPTOR.fields_by_name["arrow"].number << 3 | _LENGTH_DELIMITED])


def serialize(message: Message) -> bytes:
    return message if isinstance(message, bytes) else message.SerializeToString()


def pieces(
    batches: Sequence[pa.RecordBatch], columns: Sequence[Column], encoding: int, limit: int
) -> Iterator[Message]:
    """Messages of about `limit` bytes, made one by one, of one batch or more."""
    if encoding == pb.ENCODING_ARROW:
        if len(batches) == 1 and (whole := _whole(batches[0], tuple(columns), limit)):
            yield whole
            return
        # Made by hand, because a message would copy the rows twice more.
        yield from _arrow(batches, limit, framed=True)
        return
    for batch in batches:
        for part in _slices(batch, limit):
            spending()(part.num_rows * len(columns) * _TYPED_UNITS)
            for message in to_rows(part, columns, limit):
                yield pb.InvokeResponse(rows=message)


def arrow_pieces(batches: Sequence[pa.RecordBatch], limit: int) -> Iterator[bytes]:
    """An IPC stream of one batch or more; joined, the pieces are it."""
    return _arrow(batches, limit, framed=False)


def _arrow(batches: Sequence[pa.RecordBatch], limit: int, framed: bool) -> Iterator[bytes]:
    room = max(limit - _FRAME, limit // 2, 1)
    parts = (part.serialize() for batch in batches for part in _slices(batch, room))
    waiting, size = [batches[0].schema.serialize()], 0
    for part in chain(parts, [_END]):
        spending()(len(part))
        if size and size + len(part) > limit:
            yield from _cut(waiting, limit, framed)
            waiting, size = [], 0
        waiting.append(part)
        size += len(part)
    yield from _cut(waiting, limit, framed)


def _cut(content: Sequence[Any], limit: int, framed: bool) -> Iterator[bytes]:
    size = sum(map(len, content))
    if size <= limit:
        yield b"".join([_prefix(size), *content] if framed else content)
        return
    whole = b"".join(content)
    for start in range(0, size, limit):
        piece = whole[start : start + limit]
        yield _prefix(len(piece)) + piece if framed else piece


def _prefix(size: int) -> bytes:
    """What stands before so many bytes of Arrow in an InvokeResponse."""
    varint = bytearray(_TAG)
    while size > 0x7F:
        varint.append(size & 0x7F | 0x80)
        size >>= 7
    varint.append(size)
    return bytes(varint)


def _whole(rows: pa.RecordBatch, columns: tuple[Column, ...], limit: int) -> bytes | None:
    """A small answer in one message. To ask a batch for its size takes longer than to make it."""
    width = _width(columns)
    if width is None or width * rows.num_rows + 2 * _FRAME > limit:
        return None
    batch = rows.serialize() if rows.num_rows else b""
    content = rows.schema.serialize(), batch, _END
    size = sum(map(len, content))
    return None if size > limit else b"".join([_prefix(size), *content])


@lru_cache(maxsize=4096)
def _width(columns: tuple[Column, ...]) -> int | None:
    """Bytes a row takes at most; None where that depends on its values."""
    types = [column.type.arrow for column in columns]
    if not all(pa.types.is_primitive(type_) for type_ in types):
        return None
    return sum(int(type_.bit_width) // 8 + 1 for type_ in types)


def _slices(rows: pa.RecordBatch, limit: int) -> Iterator[pa.RecordBatch]:
    """Of about `limit` bytes on average. No rows, no slices."""
    if not rows.num_rows:
        return
    count = -(-int(rows.nbytes) // limit)
    if count < 2:
        yield rows
        return
    step = -(-rows.num_rows // count)
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)
