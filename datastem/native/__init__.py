"""Loops in C that numpy has no single call for, if they were built.

`core` is None if no compiler was there, if it was built from older sources, or if PSOUP_NATIVE is
0. A caller has a numpy path beside
each of these functions, which gives the same bytes. Buffers must not be changed during a call.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa

from datastem.arrays import Array, Int64s, UInt16s, UInt64s

# The kinds of fields that `core.encode_fields` writes; fields.c has the same numbers.
MESSAGE, VARINT, FIXED64, BYTES, DECIMAL = range(5)
# What a core lacks that was built before the sources changed the last time.
_NEWEST_FUNCTION = "find_codes"


def _load() -> ModuleType | None:
    if os.environ.get("PSOUP_NATIVE") == "0":
        return None
    try:
        module = import_module("datastem.native._core")
    except ImportError:
        return None
    return module if hasattr(module, _NEWEST_FUNCTION) else None


core = _load()


def _functions() -> ModuleType:
    assert core is not None
    return core


def group(numbers: Array, rows: Array) -> tuple[Int64s, Int64s, Array]:
    """Return the distinct numbers, how many rows each has, and the rows of each in their order.

    Both arrays hold 32-bit integers, not negative.
    """
    groups = _functions().group(_contiguous(numbers, np.int32), _contiguous(rows, np.int32))
    distinct, counts, ordered = groups
    return (
        np.frombuffer(distinct, np.int64),
        np.frombuffer(counts, np.int64),
        np.frombuffer(ordered, np.int32),
    )


def search_runs(bounds: Int64s, begins: Array, ends: Array, keys: Int64s) -> Array:
    """Return, for each key, where the bounds that are not above it end: among those from
    `begins[n]` to `ends[n]`, which ascend."""
    runs = _contiguous(begins, np.int32), _contiguous(ends, np.int32)
    run_ends = _functions().search_runs(
        _contiguous(bounds, np.int64), *runs, _contiguous(keys, np.int64)
    )
    return np.frombuffer(run_ends, np.int32)


def find_codes(codes: UInt64s, buckets: Array, shift: int, wanted: UInt64s) -> Array:
    """Return the place of each wanted code among ascending codes, or -1. Those whose high bits are
    b are at the places from `buckets[b]` to `buckets[b + 1]`."""
    places = _functions().find_codes(
        _contiguous(codes, np.uint64),
        _contiguous(buckets, np.int32),
        shift,
        _contiguous(wanted, np.uint64),
    )
    return np.frombuffer(places, np.int32)


def encode_lists(counts: Int64s, lows: UInt16s) -> pa.Array:
    """Return the roaring bytes of sets (`results.bitmaps.encode_lists`)."""
    return _binary(
        *_functions().encode_lists(_contiguous(counts, np.int64), _contiguous(lows, np.uint16))
    )


def encode_lines(words: UInt64s, lines: Int64s, first: int) -> pa.Array:
    """Return the roaring bytes of lines of bits (`results.bitmaps.encode_lines`)."""
    matrix, width = _contiguous(words, np.uint64), words.shape[1]
    return _binary(*_functions().encode_lines(matrix, width, _contiguous(lines, np.int64), first))


def encode_fields(fields: Sequence[tuple[Any, ...]], rows: int) -> tuple[memoryview, Array]:
    """Return the bytes of rows, one after another, and the places where they begin and end.

    A field is (kind, tag, inside, values, content, present). A message follows the fields inside
    it, and `inside` counts them. A decimal has its scale there.
    """
    content, start, offsets = _functions().encode_fields(tuple(fields), rows)
    return memoryview(content)[start:], np.frombuffer(offsets, np.int32)


def _contiguous(array: Array, type_: Any) -> Array:
    """Return the array as the core reads it; raise TypeError if values might change."""
    if array.dtype != type_:
        array = array.astype(type_, casting="safe")
    return np.ascontiguousarray(array)


def _binary(offsets: bytearray, content: bytearray) -> pa.Array:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) // 4 - 1, buffers)
