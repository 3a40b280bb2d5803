"""Checksums of rows and digests of answers, as docs/reference/protocol.md defines them.

Both are sums, so that numpy computes them column by column and in any order. They find damage, not
forgery.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datastem.arrays import Int64s, UInt64s

DIGEST_BYTES = 16

# The step of SplitMix64, whose last stage `mix` is. The two lanes make a digest of 128 bits.
_STEP = np.uint64(0x9E3779B97F4A7C15)
_LANES = (_STEP, np.uint64(0xC2B2AE3D27D4EB4F))
# The bits that stand for every NaN.
_NAN = np.uint64(0x7FF8000000000000)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def mix(numbers: UInt64s) -> UInt64s:
    """Permute the 64-bit numbers so that every bit depends on every bit."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def factors(count: int) -> UInt64s:
    """Return the first `count` multipliers of a sum's words: odd numbers, each as good as
    random."""
    return mix(np.arange(1, count + 1, dtype=np.uint64) * _STEP) | np.uint64(1)


class Digest:
    """The digest of row ids or checksums, which may be added in any order and number of calls."""

    def __init__(self) -> None:
        self._lanes = np.zeros(len(_LANES), np.uint64)

    def add(self, numbers: UInt64s) -> Digest:
        # Sums wrap at 2^64. So the order does not matter, and a subtraction undoes an addition.
        sums = [np.add.reduce(mix(numbers ^ lane), dtype=np.uint64) for lane in _LANES]
        self._lanes += np.array(sums)
        return self

    def plus(self, digest: Digest) -> Digest:
        """Return the digest of the numbers of both."""
        return self._of(self._lanes + digest._lanes)

    def minus(self, digest: Digest) -> Digest:
        """Return the digest without the numbers of `digest`, all of which must have been added to
        this one."""
        return self._of(self._lanes - digest._lanes)

    @classmethod
    def read(cls, content: bytes) -> Digest:
        """Return the digest whose `content` this is."""
        return cls._of(np.frombuffer(content, "<u8").astype(np.uint64))

    @classmethod
    def _of(cls, lanes: UInt64s) -> Digest:
        digest = cls()
        digest._lanes = lanes
        return digest

    @property
    def content(self) -> bytes:
        return self._lanes.astype("<u8").tobytes()


def row_checksums(
    ids: Int64s,
    visible_from: Int64s,
    visible_until: Int64s,
    sort_keys: pa.Array,
    rows: Any,
    keys: Int64s | None = None,
) -> UInt64s:
    """Return the checksum of each row of a copy.

    `rows` holds the columns of the answer, `sort_keys` is a binary array without NULLs. `keys`, if
    given, count as one more column.
    """
    head = [ids.view(np.uint64), visible_from.view(np.uint64), visible_until.view(np.uint64)]
    cells = [*head, *_text_cells(sort_keys), *value_cells(rows)]
    return _sum([*cells, *([] if keys is None else _cells(pa.array(keys)))], len(ids))


def key_ids(columns: Sequence[pa.Array], length: int) -> Int64s:
    """Return a number from 0 upwards for each row, a hash of its values: rows with equal values
    have equal numbers, and rows with different values almost always have different ones.
    """
    cells = [cell for column in columns for cell in _cells(column)]
    # 63 bits, so that the number is not negative as int64.
    return (mix(_sum(cells, length)) >> np.uint64(1)).view(np.int64)


def value_cells(rows: Any) -> list[UInt64s]:
    return [cell for column in rows.columns for cell in _cells(column)]


def _sum(cells: Sequence[UInt64s], length: int) -> UInt64s:
    total = np.zeros(length, np.uint64)
    # Two factors for each word, one for each half of 32 bits; sums wrap at 2^64.
    multipliers = factors(2 * len(cells))
    for place, cell in enumerate(cells):
        total += multipliers[2 * place] * (cell & _LOW)
        total += multipliers[2 * place + 1] * (cell >> _HALF)
    return total


def _cells(column: pa.Array) -> list[UInt64s]:
    """Return the words of a column: 1 or 0 for a value or NULL, then the value, zeros under a
    NULL."""
    is_valid = column.is_valid().to_numpy(zero_copy_only=False)
    values = _text_cells(column) if _is_text(column.type) else _value_cells(column)
    if column.null_count:
        values = [np.where(is_valid, cell, np.uint64(0)) for cell in values]
    return [is_valid.astype(np.uint64), *values]


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_binary(type_))


def _value_cells(column: pa.Array) -> list[UInt64s]:
    if pa.types.is_boolean(column.type):
        return [column.fill_null(False).to_numpy(zero_copy_only=False).astype(np.uint64)]
    if pa.types.is_date32(column.type):
        return [_buffer(column, np.int32, 1).astype(np.int64).view(np.uint64)]
    if pa.types.is_decimal(column.type):
        # A decimal has 128 bits: the lower word, then the upper one.
        limbs = _buffer(column, np.uint64, 2).reshape(-1, 2)
        return [limbs[:, 0], limbs[:, 1]]
    bits = _buffer(column, np.uint64, 1)
    if pa.types.is_float64(column.type):
        return [np.where(np.isnan(bits.view(np.float64)), _NAN, bits)]
    return [bits]


def _buffer(column: pa.Array, dtype: Any, width: int) -> Any:
    content = column.buffers()[1]
    if content is None:
        return np.zeros(len(column) * width, dtype)
    # A slice shares the buffer of the whole column.
    begin = column.offset * width
    return np.frombuffer(content, dtype)[begin : begin + len(column) * width]


def _text_cells(column: pa.Array) -> list[UInt64s]:
    """Return the words of texts: their length in bytes, and the weighted sum of their bytes.

    The bytes are taken as words of 32 bits, the last one filled with zeros.
    """
    if not len(column):
        return [np.empty(0, np.uint64)] * 2
    column = column.fill_null("" if pa.types.is_string(column.type) else b"")
    lengths = pc.binary_length(column).to_numpy(zero_copy_only=False).astype(np.int64)
    # Per text: `words` is its number of 32-bit words, `starts` its first word in `padded`.
    words = (lengths + 3) // 4
    padded = np.zeros(int(words.sum()) * 4, np.uint8)
    starts = np.cumsum(words) - words
    padded[_spread(starts * 4, lengths)] = _content(column)
    # The place of each word within its own text, which chooses its factor.
    places = _spread(np.zeros_like(words), words)
    products = padded.view("<u4") * factors(int(words.max()))[places]
    sums = np.zeros(len(column), np.uint64)
    # For an empty range `reduceat` returns an element, not 0, so empty texts are left out.
    nonempty = words > 0
    if nonempty.any():
        sums[nonempty] = np.add.reduceat(products, starts[nonempty])
    return [lengths.view(np.uint64), sums]


def _spread(starts: Int64s, lengths: Int64s) -> Int64s:
    """Return the numbers `starts[i], starts[i] + 1, …`, `lengths[i]` of them, for each i."""
    ends = np.cumsum(lengths)
    places: Int64s = np.arange(int(ends[-1])) + np.repeat(starts - (ends - lengths), lengths)
    return places


def _content(column: pa.Array) -> Any:
    _, offsets, content = column.buffers()
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    letters = np.frombuffer(content or b"", np.uint8)
    return letters[int(ends[0]) : int(ends[-1])]
