"""Protobuf fields of many rows at once, and the bytes that they are on the wire.

Bytes are those of `SerializeToString`, if fields come by their numbers and have no default. The
native core writes them row by row. Without it, a row is a run of *pieces*: the tag and varint of a
field, the eight bytes of a DOUBLE, the letters of a text. A piece is made for all rows at once, and
the pieces of a row are joined in the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import groupby
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from datastem import native
from psoup.formats.json_rows import decimal_texts

Int32s: TypeAlias = npt.NDArray[np.int32]
Int64s: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]

# The wire types of protobuf that occur here.
_VARINT, _FIXED64, _LENGTH_DELIMITED = 0, 1, 2
# The bits of a number in each byte of a varint. A Head has at most a tag and a varint.
_VARINT_BITS = 7
_VARINT_SHIFTS = np.arange(10, dtype=np.uint64) * np.uint64(_VARINT_BITS)
_NUMBERS = np.arange(1 + len(_VARINT_SHIFTS))


# ---- fields


@dataclass(frozen=True, slots=True)
class NumberField:
    """A field of integers as varints, those of negative numbers too. As in every field, rows in
    which it is not `present` have none."""

    number: int
    values: npt.NDArray[Any]
    present: Bools | None = None

    @property
    def integers(self) -> Int64s:
        return self.values.astype(np.int64, copy=False)


@dataclass(frozen=True, slots=True)
class FixedField:
    """A field of eight bytes for each row."""

    number: int
    values: npt.NDArray[Any]
    present: Bools | None = None


@dataclass(frozen=True, slots=True)
class TextField:
    """A field of texts or bytes; NULL is an empty one."""

    number: int
    texts: pa.Array
    present: Bools | None = None

    def letters(self) -> tuple[pa.BinaryArray, Int32s]:
        """Return the texts as bytes, none of them NULL, and the places where they begin and end."""
        empty = b"" if pa.types.is_binary(self.texts.type) else ""
        letters = without_nulls(self.texts, empty).view(pa.binary())
        return letters, _places(letters)


@dataclass(frozen=True, slots=True)
class DecimalField:
    """A field of decimals as texts, with all digits of their scale."""

    number: int
    decimals: pa.Decimal128Array
    present: Bools | None = None


@dataclass(frozen=True, slots=True)
class MessageField:
    """A field that holds a message. The fields inside must have nothing in rows in which it is not
    `present`."""

    number: int
    inside: Sequence[Field]
    present: Bools | None = None


Field: TypeAlias = NumberField | FixedField | TextField | DecimalField | MessageField


def encode_fields(fields: Sequence[Field], rows: int) -> tuple[memoryview, Int32s]:
    """Return the bytes of all rows, one after another, and the places where rows begin and end: one
    more than there are rows, of which there is at least one."""
    if native.core is not None:
        return native.encode_fields([item for field in fields for item in _native(field)], rows)
    return _join_pieces([piece for field in fields for piece in _pieces(field)], rows)


def without_nulls(array: pa.Array, value: Any) -> pa.Array:
    """Return the array with a value in place of NULL."""
    return array.fill_null(value) if array.null_count else array


def text_bytes(texts: pa.Array) -> int:
    """Return how many bytes the letters of texts have."""
    places = _places(texts)
    return int(places[-1] - places[0])


def _places(texts: pa.Array) -> Int32s:
    """Return where each text begins, and where the last one ends."""
    return np.frombuffer(texts.buffers()[1], np.int32, len(texts) + 1, 4 * texts.offset)


# ---- natively


def _native(field: Field) -> Iterator[tuple[Any, ...]]:
    """Yield the field as `native.encode_fields` takes it."""
    delimited = field.number << 3 | _LENGTH_DELIMITED
    match field:
        case NumberField(number, _, present):
            integers = np.ascontiguousarray(field.integers)
            yield native.VARINT, number << 3 | _VARINT, 0, integers, None, present
        case FixedField(number, values, present):
            fixed = np.ascontiguousarray(values)
            yield native.FIXED64, number << 3 | _FIXED64, 0, fixed, None, present
        case TextField(_, _, present):
            letters, places = field.letters()
            yield native.BYTES, delimited, 0, places, letters.buffers()[2] or b"", present
        case DecimalField(_, decimals, present):
            width = decimals.type.byte_width
            content = memoryview(decimals.buffers()[1])[width * decimals.offset :]
            digits = content[: width * len(decimals)]
            yield native.DECIMAL, delimited, decimals.type.scale, digits, None, present
        case MessageField(_, inside, present):
            items = [item for part in inside for item in _native(part)]
            yield from items
            yield native.MESSAGE, delimited, len(items), None, None, present


# ---- by numpy


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


def _pieces(field: Field) -> list[Piece]:
    delimited = field.number << 3 | _LENGTH_DELIMITED
    match field:
        case NumberField(number, _, present):
            return [_varints(number << 3 | _VARINT, field.integers, present)]
        case FixedField(number, values, present):
            return [_fixed(number << 3 | _FIXED64, values, present)]
        case TextField(_, _, present):
            letters, places = field.letters()
            sizes = (places[1:] - places[:-1]).astype(np.int64)
            return [_varints(delimited, sizes, present), Letters(letters, sizes)]
        case DecimalField(number, decimals, present):
            return _pieces(TextField(number, decimal_texts(decimals), present))
        case MessageField(_, inside, present):
            pieces = [piece for part in inside for piece in _pieces(part)]
            return [_varints(delimited, _total_sizes(pieces), present), *pieces]


def _join_pieces(pieces: Sequence[Piece], rows: int) -> tuple[memoryview, Int32s]:
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


def _fixed(tag: int, values: npt.NDArray[Any], present: Bools | None) -> Head:
    rows = len(values)
    content = np.empty((rows, 9), np.uint8)
    content[:, 0] = tag
    content[:, 1:] = np.ascontiguousarray(values).view(np.uint8).reshape(rows, 8)
    return Head(content, _sizes(np.full(rows, 9), present))


def _varints(tag: int, values: Int64s, present: Bools | None) -> Head:
    numbers = values.view(np.uint64)
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
