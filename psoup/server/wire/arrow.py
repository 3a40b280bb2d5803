"""Arrow on the wire: IPC from outside, which may hold anything, and answers cut into messages."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any

import pyarrow as pa

from datastem.accept import Limits
from datastem.errors import RowError
from datastem.schema import Column
from psoup.server.wire.typed import typed_rows
from psoup.v1 import psoup_pb2 as pb
from querystem.pace import spending

_HINT = "send an Arrow IPC stream: a schema, then record batches"
Buffer = bytes | memoryview
# A message, or the bytes it would have on the wire.
Message = pb.InvokeResponse | bytes

# Columns of the record batches of a message, each counted in every one: an empty one takes some
# tens of bytes, and some tens of microseconds to check.
MAX_ARRAYS = 20_000
# What a piece may have besides its values.
_FRAME_BYTES = 8 << 10
# How an IPC stream ends.
_END = b"\xff\xff\xff\xff\0\0\0\0"
_LENGTH_DELIMITED = 2
_ARROW, _ROWS = pb.InvokeResponse.ARROW_FIELD_NUMBER, pb.InvokeResponse.ROWS_FIELD_NUMBER
_HEADER = pb.InvokeResponse.HEADER_FIELD_NUMBER
# The tags of pieces that are sent by themselves, and those of the same pieces beside a header.
_TAGS = {
    bytes([apart << 3 | _LENGTH_DELIMITED]): bytes([beside << 3 | _LENGTH_DELIMITED])
    for apart, beside in (
        (_ARROW, pb.InvokeResponse.ALL_ARROW_FIELD_NUMBER),
        (_ROWS, pb.InvokeResponse.ALL_ROWS_FIELD_NUMBER),
    )
}


# ---- from outside


@dataclass(frozen=True, slots=True)
class BatchMeasures:
    """The measures of an IPC stream, by what it says of itself: its buffers unpacked, its rows, its
    record batches, and whether some of its values are in dictionaries, which a few bytes may repeat
    any number of times."""

    nbytes: int
    rows: int
    batches: int
    dictionaries: bool


def measure(content: Buffer, limits: Limits) -> BatchMeasures:
    """Measure an IPC stream without unpacking it. Raise RowError if it is malformed, or past the
    limits."""
    try:
        measures = _measured(content)
    except RowError:
        raise
    except Exception as error:
        raise RowError("MALFORMED_ARROW", f"no Arrow IPC stream: {error}", hint=_HINT) from error
    if measures.nbytes > limits.batch_bytes:
        raise too_large(
            f"the batch unpacks to {measures.nbytes:,}", measures.nbytes, limits.batch_bytes
        )
    return measures


def read_table(content: Buffer, limits: Limits) -> pa.Table:
    """Read an IPC stream. Raise RowError if it is malformed, or would unpack to more than the
    limits allow.

    Values are not checked here; `accept` does that.
    """
    measure(content, limits)
    try:
        with pa.ipc.open_stream(content) as reader:
            reader.schema.names  # noqa: B018 - raises if a name is no UTF-8
            return reader.read_all()
    except Exception as error:
        raise RowError("MALFORMED_ARROW", f"no Arrow IPC stream: {error}", hint=_HINT) from error


def too_large(what: str, nbytes: int, limit: int) -> RowError:
    return RowError(
        "BATCH_TOO_LARGE",
        f"{what} bytes; at most {limit:,} are taken",
        expected=f"at most {limit} bytes",
        got=f"{nbytes} bytes",
        hint="send it in several batches",
    )


def _measured(content: Buffer) -> BatchMeasures:
    """Compressed buffers begin with the size they unpack to: 64 bits, -1 for not compressed."""
    nbytes, rows, batches, arrays, dictionaries = 0, 0, 0, 0, False
    for message in pa.ipc.MessageReader.open_stream(content):
        metadata = memoryview(message.metadata)
        body = memoryview(message.body) if message.body is not None else memoryview(b"")
        kind, batch = _header(metadata)
        # Counted before the body is looked at: many tiny batches cost time, not bytes.
        arrays += 1 + (_arrays(metadata, batch) if batch else 0)
        if arrays > MAX_ARRAYS:
            raise _too_many_arrays()
        if not batch or kind == _SCHEMA:
            continue
        dictionaries |= kind == _DICTIONARY_BATCH
        batches += kind == _RECORD_BATCH
        rows += _length(metadata, batch) if kind == _RECORD_BATCH else 0
        # While a compressed body is unpacked, both forms are in memory, so both count.
        nbytes += len(body)
        if _field(metadata, batch, 3) or _OLD_COMPRESSION in message.metadata.to_pybytes():
            nbytes += sum(_unpacked(body, *extent) for extent in _buffers(metadata, batch))
    return BatchMeasures(nbytes, rows, batches, dictionaries)


def _too_many_arrays() -> RowError:
    return RowError(
        "BATCH_TOO_LARGE",
        f"the columns of all record batches are more than {MAX_ARRAYS:,}",
        expected=f"at most {MAX_ARRAYS} columns, each counted in every record batch",
        hint="send the rows as one record batch, or as few",
    )


def _unpacked(body: memoryview, offset: int, length: int) -> int:
    if length < 8 or not 0 <= offset <= len(body) - 8:
        return 0
    return max(int(struct.unpack_from("<q", body, offset)[0]), 0)


# ---- just enough of the flatbuffers in which IPC writes its metadata

# Field numbers of the tables that are read below. Message: 1 kind, 2 header. Schema: 1 fields.
# DictionaryBatch: 1 data. RecordBatch: 0 length, 1 nodes, 2 buffers, 3 compression.
_SCHEMA, _DICTIONARY_BATCH, _RECORD_BATCH = 1, 2, 3
# Before the format had a field for it, and Arrow still reads it.
_OLD_COMPRESSION = b"ARROW:experimental_compression"


def _header(metadata: memoryview) -> tuple[int, int]:
    """Return the kind of a message, and the offset of its schema or batch; 0 if it has neither."""
    message = _u32(metadata, 0)
    kind_at, header_at = _field(metadata, message, 1), _field(metadata, message, 2)
    if not kind_at or not header_at:
        return 0, 0
    kind, batch = metadata[kind_at], header_at + _u32(metadata, header_at)
    if kind == _DICTIONARY_BATCH:
        data_at = _field(metadata, batch, 1)
        return kind, data_at + _u32(metadata, data_at) if data_at else 0
    return kind, batch if kind in (_SCHEMA, _RECORD_BATCH) else 0


def _arrays(metadata: memoryview, table: int) -> int:
    """Return how many fields a schema has, or how many columns a batch, those inside others too."""
    # A field of a vector holds its distance; the vector begins with its length, 32 bits.
    vector_at = _field(metadata, table, 1)
    return _u32(metadata, vector_at + _u32(metadata, vector_at)) if vector_at else 0


def _length(metadata: memoryview, batch: int) -> int:
    """Return the rows of a batch."""
    at = _field(metadata, batch, 0)
    return max(0, int(struct.unpack_from("<q", metadata, at)[0])) if at else 0


def _buffers(metadata: memoryview, batch: int) -> list[tuple[int, int]]:
    """Return the places of a batch's buffers in its body, those of nested columns too."""
    buffers_at = _field(metadata, batch, 2)
    if not buffers_at:
        return []
    vector = buffers_at + _u32(metadata, buffers_at)
    count = _u32(metadata, vector)
    # Each buffer is an offset into the body and a length, 64 bits both.
    return [struct.unpack_from("<qq", metadata, vector + 4 + 16 * index) for index in range(count)]


def _u32(data: memoryview, at: int) -> int:
    return int(struct.unpack_from("<I", data, at)[0])


def _field(data: memoryview, table: int, number: int) -> int:
    """Return the offset of a table's field, or 0 if it is left out."""
    # A table begins with its distance to the vtable. That has two sizes, then an offset for each
    # field, all of 16 bits.
    vtable = table - struct.unpack_from("<i", data, table)[0]
    slot = 4 + 2 * number
    if slot + 2 > struct.unpack_from("<H", data, vtable)[0]:
        return 0
    offset = int(struct.unpack_from("<H", data, vtable + slot)[0])
    return table + offset if offset else 0


# ---- answers


def serialize(message: Message) -> bytes:
    return message if isinstance(message, bytes) else message.SerializeToString()


@dataclass(frozen=True, slots=True)
class AnswerPart:
    """The batches of an answer that are sent together: whether its first or its last are among
    them."""

    first: bool = True
    last: bool = True


WHOLE = AnswerPart()


# Makes messages, or other content, of about `limit` bytes out of batches of an answer.
Encode = Callable[[Sequence[pa.RecordBatch], Sequence[Column], int, AnswerPart], Iterator[Message]]


def encode_as(encoding: int) -> Encode:
    """Return what makes messages of the wire in an encoding."""

    def encode(
        batches: Sequence[pa.RecordBatch],
        columns: Sequence[Column],
        limit: int,
        answer_part: AnswerPart,
    ) -> Iterator[Message]:
        return pieces(batches, columns, encoding, limit, answer_part)

    return encode


def pieces(
    batches: Sequence[pa.RecordBatch],
    columns: Sequence[Column],
    encoding: int,
    limit: int,
    answer_part: AnswerPart = WHOLE,
) -> Iterator[Message]:
    """Messages of about `limit` bytes, made one by one, of one batch or more."""
    if encoding == pb.ENCODING_ARROW:
        small = answer_part == WHOLE and len(batches) == 1
        if small and (whole := _whole(batches[0], tuple(columns), limit)):
            yield whole
            return
        # Made by hand, because a message would copy the rows twice more.
        yield from _arrow(batches, limit, True, answer_part)
        return
    for batch in batches:
        for content in typed_rows(batch, columns, limit):
            yield _prefix(len(content), _ROWS) + content


def one_message(header: bytes, rows: Sequence[Message] = ()) -> bytes:
    """Return the message with a serialized header, and with all rows of an answer beside it:
    `rows` is what `pieces` gave, one message or none."""
    content: list[bytes | memoryview] = [_prefix(len(header), _HEADER), header]
    for piece in map(serialize, rows):
        # Only the tag differs. Field numbers below 16 make one of one byte.
        content += [_TAGS[piece[:1]], memoryview(piece)[1:]]
    return b"".join(content)


def arrow_pieces(
    batches: Sequence[pa.RecordBatch], limit: int, answer_part: AnswerPart = WHOLE
) -> Iterator[bytes]:
    """Return an IPC stream of one batch or more; joined, the pieces are it."""
    return _arrow(batches, limit, False, answer_part)


def _arrow(
    batches: Sequence[pa.RecordBatch], limit: int, framed: bool, answer_part: AnswerPart
) -> Iterator[bytes]:
    room = max(limit - _FRAME_BYTES, limit // 2, 1)
    parts = (part.serialize() for batch in batches for part in _slices(batch, room))
    # The schema is not counted in `size`: it goes with the first rows, and `_cut` splits the two if
    # need be.
    waiting: list[Any] = [batches[0].schema.serialize()] if answer_part.first else []
    size = 0
    for part in chain(parts, [_END] if answer_part.last else []):
        spending()(len(part))
        if size and size + len(part) > limit:
            yield from _cut(waiting, limit, framed)
            waiting, size = [], 0
        waiting.append(part)
        size += len(part)
    if waiting:
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


def _prefix(size: int, field: int = _ARROW) -> bytes:
    """Return the bytes that stand before `size` bytes of a field in an InvokeResponse."""
    # Field numbers below 16 make a tag of one byte.
    varint = bytearray([field << 3 | _LENGTH_DELIMITED])
    while size > 0x7F:
        varint.append(size & 0x7F | 0x80)
        size >>= 7
    varint.append(size)
    return bytes(varint)


def _whole(rows: pa.RecordBatch, columns: tuple[Column, ...], limit: int) -> bytes | None:
    """Return a small answer in one message. To ask a batch for its size takes longer than to make
    it."""
    width = _width(columns)
    if width is None or width * rows.num_rows + 2 * _FRAME_BYTES > limit:
        return None
    schema = rows.schema
    usual, head = _schema(columns)
    batch = rows.serialize() if rows.num_rows else b""
    content = head if schema.equals(usual) else schema.serialize(), batch, _END
    size = sum(map(len, content))
    return None if size > limit else b"".join([_prefix(size), *content])


@lru_cache(maxsize=4096)
def _width(columns: tuple[Column, ...]) -> int | None:
    """Return the most bytes of a row; None if they depend on its values."""
    types = [column.type.arrow for column in columns]
    if not all(pa.types.is_primitive(type_) for type_ in types):
        return None
    # One byte more for each column covers its bit of validity, and the bit of a boolean.
    return sum(int(type_.bit_width) // 8 + 1 for type_ in types)


@lru_cache(maxsize=4096)
def _schema(columns: tuple[Column, ...]) -> tuple[pa.Schema, bytes]:
    """Return the schema that batches of an answer have as a rule, and its message."""
    schema = pa.schema([(column.name, column.type.arrow) for column in columns])
    return schema, schema.serialize().to_pybytes()


def _slices(rows: pa.RecordBatch, limit: int) -> Iterator[pa.RecordBatch]:
    """Slices of about `limit` bytes on average. No rows give no slices."""
    if not rows.num_rows:
        return
    count = -(-int(rows.nbytes) // limit)
    if count < 2:
        yield rows
        return
    step = -(-rows.num_rows // count)
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)
