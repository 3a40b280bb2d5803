"""Columns of keys that rows and predicates are compared by: int64, or Arrow strings for TEXT."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datastem.arrays import Array, Int64s, Mask, UInt8s, UInt64s
from datastem.types import Kind, Type

Column = Any

# A text with more bytes is not told from others by its code.
LONGEST_TEXT = 256
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)
_WORD_BYTES = 8


def column_of(values: Sequence[Any], type_: Type) -> Column:
    if type_.kind is Kind.TEXT:
        return pa.array(values, pa.string())
    return np.array(values, np.int64)


def take(column: Column, places: Array) -> Column:
    return column.take(pa.array(places)) if isinstance(column, pa.Array) else column.take(places)


def concat(columns: Sequence[Column]) -> Column:
    if isinstance(columns[0], pa.Array):
        return pa.concat_arrays(columns)
    return np.concatenate(columns)


def equal(left: Column, right: Column) -> Mask:
    """NULL equals nothing."""
    if isinstance(left, pa.Array):
        same: Mask = pc.equal(left, right).fill_null(False).to_numpy(zero_copy_only=False)
        return same
    return np.asarray(left == right)


def codes_of(columns: Sequence[Column], seed: int) -> UInt64s:
    """A hash of the values of all columns: equal values, equal codes."""
    codes = np.full(len(columns[0]), seed, np.uint64)
    for column in columns:
        if isinstance(column, pa.Array):
            _mix_texts(codes, column)
        else:
            _mix(codes, column.view(np.uint64))
    return codes


def _mix(codes: UInt64s, words: UInt64s) -> None:
    codes ^= words
    codes *= _FACTOR
    codes ^= codes >> _HALF
    codes *= _FACTOR


def _mix_texts(codes: UInt64s, texts: pa.Array) -> None:
    """Eight bytes at a time, of all texts that are so long."""
    begins, lengths, content = _bytes_of(texts)
    _mix(codes, lengths.view(np.uint64))
    at_each_byte = np.ndarray(len(content) - _WORD_BYTES + 1, "<u8", content, strides=(1,))
    for place in range(0, min(int(lengths.max(initial=0)), LONGEST_TEXT), _WORD_BYTES):
        rows = np.flatnonzero(lengths > place)
        missing = np.maximum(_WORD_BYTES - (lengths[rows] - place), 0)
        words = at_each_byte[begins[rows] + place]
        words &= np.uint64(2**64 - 1) >> (8 * missing).astype(np.uint64)
        mixed = codes[rows]
        _mix(mixed, words)
        codes[rows] = mixed


def _bytes_of(texts: pa.Array) -> tuple[Int64s, Int64s, UInt8s]:
    """Where each text begins in the bytes, its length, and the bytes with room after the last."""
    _, offsets, content = texts.buffers()
    if not len(texts) or offsets is None:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(_WORD_BYTES, np.uint8)
    edges = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    edges = edges.astype(np.int64)
    held = np.zeros(edges[-1] - edges[0] + _WORD_BYTES, np.uint8)
    if content is not None:
        held[:-_WORD_BYTES] = np.frombuffer(content, np.uint8)[edges[0] : edges[-1]]
    return edges[:-1] - edges[0], np.diff(edges), held
