"""TEXT: counted in code points, cased one code point to one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datastem.types import BIGINT
from querystem.kernel.integers import INT64_MAX
from querystem.kernel.vector import Vector, both, of_text


def lower(operand: Vector) -> Vector:
    return of_text(pc.utf8_lower(operand.values))


def upper(operand: Vector) -> Vector:
    return of_text(pc.utf8_upper(operand.values))


def trim(operand: Vector) -> Vector:
    return of_text(pc.ascii_trim(operand.values, " "))


def length(operand: Vector) -> Vector:
    counts = pc.utf8_length(operand.values).fill_null(0).to_numpy(zero_copy_only=False)
    return Vector(BIGINT, counts.astype(np.int64), operand.valid)


def substring(text: Vector, start: Vector, count: Vector | None = None) -> Vector:
    """The code points at positions start <= p < start + count; NULL where count is negative."""
    valid = start.valid
    begin = np.maximum(start.values, 1) - 1
    if count is None:
        end = np.full(1, INT64_MAX)
    else:
        valid = both(both(valid, count.valid), count.values >= 0)
        end = _end(start, count)
    return _slices(text, begin, np.maximum(begin, end)).also_valid(valid)


def _end(start: Vector, count: Vector) -> Any:
    """start + count - 1, at most the greatest BIGINT."""
    counts = np.maximum(count.values, 0)
    room = INT64_MAX - np.maximum(start.values, 1) + 1
    return start.values + np.minimum(counts, room) - 1


def _slices(text: Vector, begin: Any, end: Any) -> Vector:
    """One Arrow call for each distinct slice."""
    if len(begin) == len(end) == 1:
        return of_text(_slice(text.values, int(begin[0]), int(end[0])))
    rows = np.broadcast_shapes(begin.shape, end.shape, (len(text),))[0]
    pairs = np.stack([np.broadcast_to(begin, rows), np.broadcast_to(end, rows)])
    order = np.lexsort(pairs)
    pairs = pairs[:, order]
    edges = np.flatnonzero((np.diff(pairs) != 0).any(axis=0)) + 1
    places = np.zeros(rows, np.int64) if len(text) == 1 else order
    pieces = [
        _slice(text.values.take(pa.array(group)), *map(int, pairs[:, first]))
        for first, group in zip([0, *edges], np.split(places, edges), strict=True)
        if len(group)
    ]
    sliced = pa.chunked_array(pieces, pa.string()).combine_chunks()
    return of_text(sliced.take(pa.array(np.argsort(order, kind="stable"))))


def _slice(array: pa.Array, begin: int, end: int) -> pa.Array:
    return pc.utf8_slice_codeunits(array, begin, end)
