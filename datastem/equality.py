"""Equality of rows: classes of equal rows, and digests that are equal if the values are.

In groups, DISTINCT, partitions and stream keys, NULL equals NULL, NaN equals NaN, and -0.0 equals
0.0. A stem's column `_key` holds the digest of the stream key. Different stream keys almost always
have different digests: among a hundred million, the chance that any two are confused is 1 in 3,000.
The digest of a batch shows whether a publisher that repeats a sequence number also repeats its
rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datastem.arrays import Int64s

# Class numbers of columns are multiplied into one while the product fits int64.
_MAX_CODE = 1 << 62
_BATCH_BYTES = 16
_KEY_BYTES = 8
_LENGTH_BYTES = 4


def canonical(array: pa.Array) -> pa.Array:
    """Return the values of `array` with one NaN and one zero, so that equal values have equal
    bytes."""
    if array.type != pa.float64():
        return array
    values = array.to_numpy(zero_copy_only=False)
    # to_numpy writes NaN for NULL; the mask keeps those values NULL.
    unified = np.where(np.isnan(values), np.nan, values + 0.0)
    mask = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    return pa.array(unified, pa.float64(), mask=mask, from_pandas=False)


def codes(arrays: Sequence[pa.Array], length: int) -> tuple[Int64s, Int64s]:
    """Return the number of each row's class of equal rows, and the first row of each class.

    `arrays` are columns of `length` rows, each canonical. Classes are numbered as they appear.
    Without columns all rows are one class, which has no first row if there are no rows.
    """
    if not arrays:
        return np.zeros(length, np.int64), np.zeros(min(length, 1), np.int64)
    code, size = _encode(arrays[0])
    for array in arrays[1:]:
        column_code, count = _encode(array)
        if size * max(count, 1) >= _MAX_CODE:
            code, size = _encode(pa.array(code))
        # The columns before are the upper digits of a number, this column is the lowest one.
        code, size = code * count + column_code, size * count
    if len(arrays) > 1:
        code, size = _encode(pa.array(code))
    firsts = np.empty(size, np.int64)
    # Of several assignments to one place the last counts. From the last row to the first, that is
    # the first row of the class.
    firsts[code[::-1]] = np.arange(length - 1, -1, -1)
    return code, firsts


def _encode(array: pa.Array) -> tuple[Int64s, int]:
    encoded = array.dictionary_encode(null_encoding="encode")
    return encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)


# ---- digests


def batch_digest(stream: str, batch: pa.RecordBatch) -> bytes:
    """Return the digest of a batch that `accept` returned: it has zeros under its NULLs, and one
    NaN."""
    digest = hashlib.blake2b(digest_size=_BATCH_BYTES, person=b"psoup rows")
    _update(digest, [stream.encode(), batch.num_rows.to_bytes(8, "little")])
    # By name: where a column stood that was dropped since, nobody knows.
    fields = zip(batch.schema, batch.columns, strict=True)
    for field, column in sorted(fields, key=lambda pair: pair[0].name):
        _update(digest, [field.name.encode(), str(field.type).encode(), *_buffers(column)])
    return digest.digest()


def heartbeat_digest(stream: str, ts: int) -> bytes:
    digest = hashlib.blake2b(digest_size=_BATCH_BYTES, person=b"psoup heartbeat")
    _update(digest, [stream.encode(), ts.to_bytes(8, "little", signed=True)])
    return digest.digest()


def _update(digest: Any, parts: list[Any]) -> None:
    """Digest each part with its length before it, so that no two lists of parts are confused."""
    for part in parts:
        view = memoryview(part).cast("B")
        digest.update(len(view).to_bytes(8, "little"))
        digest.update(view)


def _buffers(column: pa.Array) -> Iterator[Any]:
    yield np.packbits(column.is_null().to_numpy(zero_copy_only=False)) if column.null_count else b""
    if pa.types.is_string(column.type):
        lengths = pc.binary_length(column).fill_null(0)
        yield np.ascontiguousarray(lengths.to_numpy(zero_copy_only=False))
        yield _text_bytes(column)
    elif pa.types.is_boolean(column.type):
        yield np.packbits(column.fill_null(False).to_numpy(zero_copy_only=False))
    else:
        width = column.type.bit_width // 8
        # A slice shares the buffer of the whole column: only its own bytes count.
        begin = column.offset * width
        yield memoryview(column.buffers()[1] or b"")[begin : begin + len(column) * width]


def _text_bytes(column: pa.Array) -> Any:
    _, offsets, data = column.buffers()
    if data is None or offsets is None or not len(column):
        return b""
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    return memoryview(data)[int(ends[0]) : int(ends[-1])]


def key_digests(columns: Sequence[pa.Array]) -> Int64s:
    """Return the digest of each row's stream key; its columns hold no NULL.

    Each distinct key is hashed once.
    """
    length = len(columns[0])
    arrays = [canonical(column) for column in columns]
    code, firsts = codes(arrays, length)
    distinct = [_value_bytes(array.take(pa.array(firsts))) for array in arrays]
    digests = b"".join(map(_key_digest, zip(*distinct, strict=True)))
    return np.frombuffer(digests, "<i8").astype(np.int64)[code]


def _key_digest(values: tuple[bytes, ...]) -> bytes:
    """Return the digest of one stream key. Each value is preceded by its length, so that no two
    keys run together."""
    text = b"".join(len(value).to_bytes(_LENGTH_BYTES, "little") + value for value in values)
    return hashlib.blake2b(text, digest_size=_KEY_BYTES, person=b"psoup key").digest()


def _value_bytes(array: pa.Array) -> list[bytes]:
    """Return the bytes of each value of an array whose offset is 0."""
    if pa.types.is_string(array.type):
        texts: list[bytes] = array.cast(pa.binary()).to_pylist()
        return texts
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.int8())
    width = array.type.bit_width // 8
    content = bytes(memoryview(array.buffers()[1])) if len(array) else b""
    return [content[place * width : (place + 1) * width] for place in range(len(array))]
