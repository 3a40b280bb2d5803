"""Which rows are equal: in groups, in DISTINCT, in partitions.

NULL equals NULL, NaN equals NaN, and -0.0 equals 0.0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s

_ROOM = 1 << 62


def canonical(array: pa.Array) -> pa.Array:
    """The same values with one NaN and one zero, so that equal values have equal bytes."""
    if array.type != pa.float64():
        return array
    values = array.to_numpy(zero_copy_only=False)
    # Where it is NULL to_numpy says NaN; the mask keeps it NULL.
    made = np.where(np.isnan(values), np.nan, values + 0.0)
    mask = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    return pa.array(made, pa.float64(), mask=mask, from_pandas=False)


def codes(arrays: Sequence[pa.Array], length: int) -> tuple[Int64s, Int64s]:
    """For each row the number of its class, and for each class its first row.

    Classes are numbered as they appear. Arrays are canonical. Without arrays all rows are equal,
    and there is a class also where there are no rows; it then has no first row.
    """
    if not arrays:
        return np.zeros(length, np.int64), np.zeros(min(length, 1), np.int64)
    code, size = _encode(arrays[0])
    for array in arrays[1:]:
        other, count = _encode(array)
        if size * max(count, 1) >= _ROOM:
            code, size = _encode(pa.array(code))
        code, size = code * count + other, size * count
    if len(arrays) > 1:
        code, size = _encode(pa.array(code))
    firsts = np.empty(size, np.int64)
    firsts[code[::-1]] = np.arange(length - 1, -1, -1)
    return code, firsts


def _encode(array: pa.Array) -> tuple[Int64s, int]:
    encoded = array.dictionary_encode(null_encoding="encode")
    return encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)
