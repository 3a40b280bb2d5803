"""Arrow → typed values, as the bytes that protobuf would write, without an object for each cell.

A row is a run of *pieces*: the tag and varint of a field, the eight bytes of a DOUBLE, the letters
of a text. A piece is made for all rows at once, and the pieces of a row are joined in the end. The
bytes are those of `SerializeToString`: fields by their numbers, and none that has its default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import groupby
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from datastem.instants import SECOND
from datastem.schema import Column
from datastem.types import Kind, Type
from psoup.formats.json_rows import decimal_texts
from psoup.server.wire.values import to_rows
from psoup.v1 import psoup_pb2 as pb
from querystem.pace import spending

Int32s: TypeAlias = npt.NDArray[np.int32]
Int64s: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]

# The wire types of protobuf that occur here.
_VARINT, _FIXED64, _LENGTH_DELIMITED = 0, 1, 2
# The fields of google.protobuf.Timestamp.
_SECONDS, _NANOS = 1, 2
# The bits of a number in each byte of a varint. A Head has at most a tag and a varint.
_VARINT_BITS = 7
_VARINT_SHIFTS = np.arange(10, dtype=np.uint64) * np.uint64(_VARINT_BITS)
_NUMBERS = np.arange(1 + len(_VARINT_SHIFTS))
# Below this, messages are made sooner than arrays.
FEW_VALUES = 200
# Units (`querystem.pace`) of a value that is made a message, of one that is not, and of a slice.
_MESSAGE_UNITS = 1500
_VALUE_UNITS = 150
_SLICE_UNITS = 300_000
# Values that are encoded in one go.
_SLICE_VALUES = 16_384


@dataclass(frozen=True, slots=True)
class Head:
    """A piece of few bytes for each row: the first `sizes[n]` bytes of row n of `content`, a matrix
    of bytes with one row for each row of the answer."""

    content: npt.NDArray[np.uint8]
    sizes: Int64s


@dataclass(frozen=True, slots=True)
class Letters:
    """A piece of any number of bytes for each row, none of them NULL."""

    content: pa.BinaryArray
    sizes: Int64s


Piece: TypeAlias = Head | Letters


# ---- pieces


def number_field(number: int, values: npt.NDArray[Any], present: Bools | None = None) -> Head:
    """Return a field of integers as varints, those of negative numbers too; nothing for rows in
    which it is not `present`."""
    return _varints(number << 3 | _VARINT, values, present)


def fixed_field(number: int, values: npt.NDArray[Any], present: Bools | None = None) -> Head:
    """Return a field of eight bytes for each row; nothing for rows in which it is not `present`."""
    rows = len(values)
    content = np.empty((rows, 9), np.uint8)
    content[:, 0] = number << 3 | _FIXED64
    content[:, 1:] = np.ascontiguousarray(values).view(np.uint8).reshape(rows, 8)
    return Head(content, _sizes(np.full(rows, 9), present))


def text_field(number: int, texts: pa.Array, present: Bools | None = None) -> list[Piece]:
    """Return a field of texts or bytes, NULL as an empty one; nothing for rows in which it is not
    `present`."""
    letters = _plain(texts, b"" if pa.types.is_binary(texts.type) else "").view(pa.binary())
    _, ends, _ = letters.buffers()
    places = np.frombuffer(ends, np.int32, len(letters) + 1, 4 * letters.offset)
    sizes = (places[1:] - places[:-1]).astype(np.int64)
    head = _varints(number << 3 | _LENGTH_DELIMITED, sizes, present)
    return [head, Letters(letters, sizes)]


def message_field(
    number: int, inside: Sequence[Piece], present: Bools | None = None
) -> list[Piece]:
    """Return a field that holds a message of these pieces; nothing for rows in which it is not
    `present`, whose pieces must be empty."""
    return [_varints(number << 3 | _LENGTH_DELIMITED, _total_sizes(inside), present), *inside]


def join_pieces(pieces: Sequence[Piece], rows: int) -> tuple[memoryview, Int32s]:
    """Return the bytes of all rows, one after another, and the places where rows begin and end: one
    more than there are rows."""
    parts: list[Any] = []
    for kind, group in groupby(pieces, type):
        run = list(group)
        parts += [_compact(run)] if kind is Head else [piece.content for piece in run]
    # Less than 2 GiB, as any message is.
    joined: Any = parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, b"")
    _, ends, content = joined.buffers()
    places = np.frombuffer(ends, np.int32, rows + 1)
    return memoryview(content)[: places[-1]], places


def _varints(tag: int, values: npt.NDArray[Any], present: Bools | None) -> Head:
    numbers = values.astype(np.int64, copy=False).view(np.uint64)
    width = max(1, -(-int(numbers.max()).bit_length() // _VARINT_BITS))
    content = np.empty((len(numbers), 1 + width), np.uint8)
    content[:, 0] = tag
    if width == 1:
        content[:, 1] = numbers
        return Head(content, _sizes(np.full(len(numbers), 2), present))
    # Column k has what remains of each number after k bytes. A byte is followed by another one, and
    # has its high bit set, if more than seven bits remain.
    remaining = numbers[:, None] >> _VARINT_SHIFTS[:width]
    is_followed = remaining > 0x7F
    # The low byte of each; its high bit is 0 if no more than seven bits remain.
    content[:, 1:] = remaining
    content[:, 1:] |= is_followed.view(np.uint8) << np.uint8(_VARINT_BITS)
    return Head(content, _sizes(np.add.reduce(is_followed, axis=1, initial=2), present))


def _sizes(sizes: Int64s, present: Bools | None) -> Int64s:
    return sizes if present is None else sizes * present


def _compact(heads: Sequence[Piece]) -> pa.BinaryArray:
    """Return the bytes of adjacent pieces, joined row by row."""
    rows = len(heads[0].sizes)
    widths = [head.content.shape[1] for head in heads]
    matrix = np.concatenate([head.content for head in heads], axis=1)
    # For each byte of a row of the matrix: its number in its piece, and how many of that count.
    numbers = np.concatenate([_NUMBERS[:width] for width in widths])
    sizes = np.repeat(np.stack([head.sizes for head in heads], axis=1), widths, axis=1)
    counted = numbers < sizes
    places = np.zeros(rows + 1, np.int32)
    np.cumsum(_total_sizes(heads), out=places[1:])
    buffers = [None, pa.py_buffer(places), pa.py_buffer(matrix[counted])]
    return pa.BinaryArray.from_buffers(pa.binary(), rows, buffers)


def _total_sizes(pieces: Sequence[Piece]) -> Int64s:
    return reduce(np.add, [piece.sizes for piece in pieces])


# ---- values


def value_pieces(number: int, array: pa.Array, type_: Type) -> list[Piece]:
    """Return the pieces of a field that holds a Value for each row; NULL is an empty one."""
    present = None
    if array.null_count:
        present = array.is_valid().to_numpy(zero_copy_only=False)
    return message_field(number, _INSIDE[type_.kind](array, type_, present))


_Inside: TypeAlias = Callable[[pa.Array, Type, Bools | None], list[Piece]]


def _boolean(array: pa.Array, type_: Type, present: Bools | None) -> list[Piece]:
    values = _plain(array, False).to_numpy(zero_copy_only=False)
    return [number_field(pb.Value.BOOLEAN_FIELD_NUMBER, values, present)]


def _bigint(array: pa.Array, type_: Type, present: Bools | None) -> list[Piece]:
    return [number_field(pb.Value.BIGINT_FIELD_NUMBER, _plain(array, 0).to_numpy(), present)]


def _double(array: pa.Array, type_: Type, present: Bools | None) -> list[Piece]:
    return [fixed_field(pb.Value.DOUBLE_FIELD_NUMBER, _plain(array, 0.0).to_numpy(), present)]


def _text(array: pa.Array, type_: Type, present: Bools | None) -> list[Piece]:
    return text_field(pb.Value.TEXT_FIELD_NUMBER, array, present)


def _date(array: pa.Array, type_: Type, present: Bools | None) -> list[Piece]:
    return text_field(pb.Value.DATE_FIELD_NUMBER, array.cast(pa.string()), present)


def _decimal(array: pa.Array, type_: Type, present: Bools | None) -> list[Piece]:
    return text_field(pb.Value.DECIMAL_FIELD_NUMBER, decimal_texts(array), present)


def _timestamp(array: pa.Array, type_: Type, present: Bools | None) -> list[Piece]:
    instants = _plain(array.view(pa.int64()), 0).to_numpy()
    # Rounded down, so that nanos are not negative before 1970.
    seconds, micros_within = np.divmod(instants, SECOND)
    inside = [
        number_field(_SECONDS, seconds, seconds != 0),
        number_field(_NANOS, micros_within * 1000, micros_within != 0),
    ]
    return message_field(pb.Value.TIMESTAMP_FIELD_NUMBER, inside, present)


_INSIDE: dict[Kind, _Inside] = {
    Kind.BOOLEAN: _boolean,
    Kind.BIGINT: _bigint,
    Kind.DOUBLE: _double,
    Kind.DECIMAL: _decimal,
    Kind.TEXT: _text,
    Kind.TIMESTAMP: _timestamp,
    Kind.DATE: _date,
}


def _plain(array: pa.Array, value: Any) -> pa.Array:
    """Return the array with a value in place of NULL."""
    return array.fill_null(value) if array.null_count else array


# ---- rows


def typed_rows(batch: pa.RecordBatch, columns: Sequence[Column], limit: int) -> Iterator[bytes]:
    """Yield messages `Rows`, as bytes, of about `limit` bytes, at least one row each."""
    values = batch.num_rows * len(columns)
    if values <= FEW_VALUES:
        spending()(values * _MESSAGE_UNITS)
        yield from (rows.SerializeToString() for rows in to_rows([batch], columns, limit))
        return
    names = pb.Rows(columns=[column.name for column in columns]).SerializeToString()
    for part in _slices(batch, columns, limit):
        content, places = row_fields(part, columns)
        start = 0
        while start < part.num_rows:
            # A row larger than the limit goes alone: rows are not split.
            fitting = int(np.searchsorted(places, places[start] + limit, side="right")) - 1
            end = max(fitting, start + 1)
            yield names + content[places[start] : places[end]]
            start = end


def row_fields(rows: pa.RecordBatch, columns: Sequence[Column]) -> tuple[memoryview, Int32s]:
    """Return the rows as fields of a `Rows`, and the places where they begin and end."""
    inside = [
        piece
        for place, column in enumerate(columns)
        for piece in value_pieces(pb.Row.VALUES_FIELD_NUMBER, rows.column(place), column.type)
    ]
    return join_pieces(message_field(pb.Rows.ROWS_FIELD_NUMBER, inside), rows.num_rows)


def _slices(
    rows: pa.RecordBatch, columns: Sequence[Column], limit: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a batch, some at a time; each time others may go first."""
    step = max(1, _SLICE_VALUES // max(1, len(columns)))
    if any(column.type.kind is Kind.TEXT for column in columns):
        # Of about `limit` bytes on average.
        step = max(1, min(step, rows.num_rows * limit // max(1, int(rows.nbytes))))
    for start in range(0, rows.num_rows, step):
        part = rows.slice(start, step)
        spending()(_SLICE_UNITS + part.num_rows * len(columns) * _VALUE_UNITS)
        yield part
