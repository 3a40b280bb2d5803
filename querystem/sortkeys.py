"""The order of rows by any keys, as bytes: compared one by one they are in the order of ORDER BY.

Whoever keeps rows, in whatever language, sorts them right without knowing types.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datastem.equality import canonical
from datastem.types import BIGINT, TIMESTAMP, Kind, Type
from querystem.aggregate.partial import values_of
from querystem.query import Query, SortKey, key_name

_EMPTY = b""
# After the last byte of a text; a zero byte within it becomes two, the second greater than this.
_STOP = b"\x00\x00"
_ZERO, _ESCAPED = b"\x00", b"\x00\xff"


def sort_keys(query: Query, rows: pa.RecordBatch, *, moments: bool) -> pa.Array:
    """Of rows before they are projected: the stream's, or groups from `finish`.

    Groups go by their keys where ORDER BY leaves them equal; rows, with `moments`, by
    (ts, row_id).
    """
    parts = [part for key in query.order_by for part in _ordered(key, rows)]
    if query.grouping is not None:
        for number, key in enumerate(query.grouping.keys):
            parts += _encoded(rows.column(key_name(number)), key.type, False, False)
    elif moments:
        parts += _encoded(rows.column("ts"), TIMESTAMP, False, False)
        parts += _encoded(rows.column("row_id"), BIGINT, False, False)
    if not parts:
        return pa.array([_EMPTY] * rows.num_rows, pa.binary())
    return pc.binary_join_element_wise(*parts, _EMPTY)


def _ordered(key: SortKey, rows: pa.RecordBatch) -> list[pa.Array]:
    values = values_of(key.expression, rows)
    return _encoded(values, key.expression.type, key.descending, key.nulls_first)


def _encoded(values: pa.Array, type_: Type, descending: bool, nulls_first: bool) -> list[pa.Array]:
    """Where NULLs stand, and the values; NULLs are all equal."""
    known = values.is_valid().to_numpy(zero_copy_only=False)
    places = np.where(known, 1, 0 if nulls_first else 2).astype(np.uint8)
    content = _texts(values) if type_.kind is Kind.TEXT else _fixed(_ranks(values, type_))
    if descending:
        content = _inverted(content)
    if values.null_count:
        content = pc.if_else(pa.array(known), content, pa.scalar(_EMPTY, pa.binary()))
    return [_fixed(places.reshape(-1, 1)), content]


def _ranks(values: pa.Array, type_: Type) -> Any:
    """A matrix of bytes, a row for each value, most significant first."""
    match type_.kind:
        case Kind.BOOLEAN:
            flags = values.fill_null(False).to_numpy(zero_copy_only=False)
            return flags.astype(np.uint8).reshape(-1, 1)
        case Kind.DECIMAL:
            limbs = _numbers(values, "<i8", 2).reshape(-1, 2)
            high = _bytes(_flipped(limbs[:, 1]))
            return np.hstack([high, _bytes(limbs[:, 0].view(np.uint64))])
        case Kind.DOUBLE:
            bits = _numbers(canonical(values), "<i8", 1)
            return _bytes(_flipped(bits ^ ((bits >> 63) & np.int64(2**63 - 1))))
        case Kind.DATE:
            return _bytes(_flipped(_numbers(values, "<i4", 1).astype(np.int64)))
    return _bytes(_flipped(_numbers(values, "<i8", 1)))


def _flipped(numbers: Any) -> Any:
    """Signed numbers as unsigned ones in the same order."""
    return np.ascontiguousarray(numbers).view(np.uint64) ^ np.uint64(1 << 63)


def _bytes(numbers: Any) -> Any:
    return np.ascontiguousarray(numbers.astype(">u8")).view(np.uint8).reshape(-1, 8)


def _numbers(values: pa.Array, dtype: str, width: int) -> Any:
    content = values.buffers()[1]
    if content is None:
        return np.zeros(len(values) * width, dtype)
    begin = values.offset * width
    return np.frombuffer(content, dtype)[begin : begin + len(values) * width]


def _fixed(matrix: Any) -> pa.Array:
    """Each row of a matrix of bytes as one value."""
    count, width = matrix.shape
    content = pa.py_buffer(np.ascontiguousarray(matrix, np.uint8))
    offsets = pa.py_buffer(np.arange(count + 1, dtype=np.int32) * np.int32(width))
    return pa.Array.from_buffers(pa.binary(), count, [None, offsets, content])


def _texts(values: pa.Array) -> pa.Array:
    content = values.fill_null("").cast(pa.binary())
    escaped = pc.replace_substring(content, _ZERO, _ESCAPED)
    return pc.binary_join_element_wise(escaped, pa.scalar(_STOP, pa.binary()), _EMPTY)


def _inverted(content: pa.Array) -> pa.Array:
    """Every bit the other way round, which turns the order of bytes around."""
    _, offsets, letters = content.buffers()
    turned = ~np.frombuffer(letters if letters is not None else b"", np.uint8)
    return pa.Array.from_buffers(
        pa.binary(), len(content), [None, offsets, pa.py_buffer(turned)], offset=content.offset
    )
