"""Functions that join, cut and search texts. Positions count code points from 1.

A function whose pattern differs from row to row is one Arrow call for each distinct pattern. A
text that would be longer than MAX_TEXT_BYTES is NULL. A batch whose texts together would be longer
than MAX_BATCH_BYTES raises TooMuchText before they are made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datastem.arrays import Array, Int64s
from datastem.errors import TooMuchText
from datastem.types import BIGINT
from querystem.kernel.text import spend_on, substring
from querystem.kernel.vector import Vector, boolean, both, of_text, to_arrow

MAX_TEXT_BYTES = 1 << 20
MAX_BATCH_BYTES = 1 << 26


def concatenate(*operands: Vector) -> Vector:
    """Return the texts one after the other; NULL if one of them is."""
    rows = _rows(operands)
    arrays = [to_arrow(operand, rows) for operand in operands]
    sizes = np.sum([_sizes(array) for array in arrays], axis=0)
    fits = _fitting(sizes)
    if not fits.all():
        # Texts that are too long are not made: NULL in one operand makes the result NULL.
        arrays[0] = pc.if_else(pa.array(fits), arrays[0], pa.scalar(None, pa.string()))
    return of_text(pc.binary_join_element_wise(*arrays, ""))


def replace(text: Vector, old: Vector, new: Vector) -> Vector:
    """Return the text with every `old`, found from the left, replaced by `new`; an empty `old` is
    found nowhere."""
    return of_text(_by_pattern(_replaced, pa.string(), text, old, new))


def split_part(text: Vector, separator: Vector, number: Vector) -> Vector:
    """Return the part with this number, counted from 1, or from the end if it is negative; an empty
    text if there is none. An empty separator does not split."""
    rows = _rows((text, separator, number))
    numbers = np.broadcast_to(number.values, rows)
    parts = _by_pattern(_part, pa.string(), text, separator, rows=rows, numbers=numbers)
    return of_text(parts).also_valid(number.valid)


def position(text: Vector, part: Vector) -> Vector:
    """Return the first position of `part` in the text; 0 without one."""
    places = _by_pattern(_place, pa.int64(), text, part)
    values = places.fill_null(0).to_numpy(zero_copy_only=False)
    return Vector(BIGINT, values, both(text.valid, part.valid))


def starts_with(text: Vector, prefix: Vector) -> Vector:
    starts = _by_pattern(_starts, pa.bool_(), text, prefix)
    values = starts.fill_null(False).to_numpy(zero_copy_only=False)
    return boolean(values, both(text.valid, prefix.valid))


def left(text: Vector, count: Vector) -> Vector:
    """Return the first `count` code points; if it is negative, all but the last −`count`."""
    counts = _counted(text, count)
    return substring(text, _whole(np.ones(1, np.int64)), _whole(counts)).also_valid(count.valid)


def right(text: Vector, count: Vector) -> Vector:
    """Return the last `count` code points; if it is negative, all but the first −`count`."""
    start = _lengths(text) - _counted(text, count) + 1
    return substring(text, _whole(start)).also_valid(count.valid)


def _counted(text: Vector, count: Vector) -> Int64s:
    """Return how many code points of each text stay."""
    lengths = _lengths(text)
    # A count is at most a length in magnitude before they are added, so int64 does not overflow.
    counts = np.maximum(count.values, -lengths)
    kept: Int64s = np.where(counts < 0, lengths + counts, np.minimum(counts, lengths))
    return kept


def _lengths(text: Vector) -> Int64s:
    lengths = pc.utf8_length(text.values).fill_null(0).to_numpy(zero_copy_only=False)
    return np.asarray(lengths, np.int64)


def _whole(values: Array) -> Vector:
    return Vector(BIGINT, values)


# ---- patterns


def _by_pattern(
    function: Callable[..., pa.Array],
    type_: pa.DataType,
    text: Vector,
    *patterns: Vector,
    rows: int | None = None,
    numbers: Int64s | None = None,
) -> pa.Array:
    """Return `function(texts, *patterns)` for the rows of each distinct combination of patterns, in
    the order of the rows; NULL if a pattern is. `numbers`, one of each row, are passed too."""
    rows = _rows((text, *patterns)) if rows is None else rows
    texts = to_arrow(text, rows)
    spend_on(texts)
    if all(len(pattern) == 1 for pattern in patterns):
        values = [pattern.values[0].as_py() for pattern in patterns]
        if None in values:
            return pa.nulls(rows, type_)
        return function(texts, *values, *(() if numbers is None else (numbers,)))
    columns = [to_arrow(pattern, rows) for pattern in patterns]
    # codes[r] numbers the combination of row r; rows in `order` stand by their combination.
    codes = np.zeros(rows, np.int64)
    for column in columns:
        encoded = column.dictionary_encode(null_encoding="encode")
        codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy()
        codes = np.unique(codes, return_inverse=True)[1]
    order = np.argsort(codes, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(codes[order])) + 1) if rows else []
    pieces = []
    for group in groups:
        values = [column[int(group[0])].as_py() for column in columns]
        chosen = texts.take(pa.array(group))
        extra = () if numbers is None else (numbers[group],)
        absent = None in values
        pieces.append(pa.nulls(len(group), type_) if absent else function(chosen, *values, *extra))
        spend_on(chosen)
    joined = pa.chunked_array(pieces, type_).combine_chunks()
    # argsort of a permutation is its inverse: it puts the values back into the order of rows.
    return joined.take(pa.array(np.argsort(order, kind="stable")))


def _replaced(texts: pa.Array, old: str, new: str) -> pa.Array:
    if not old:
        return texts
    counts = pc.count_substring(texts, old).fill_null(0).to_numpy(zero_copy_only=False)
    gain = len(new.encode()) - len(old.encode())
    fits = _fitting(_sizes(texts) + counts.astype(np.int64) * gain)
    if not fits.all():
        texts = pc.if_else(pa.array(fits), texts, pa.scalar(None, pa.string()))
    return pc.replace_substring(texts, old, new)


def _part(texts: pa.Array, separator: str, numbers: Int64s) -> pa.Array:
    if not separator:
        whole = pa.array((numbers == 1) | (numbers == -1))
        empty = pc.if_else(texts.is_valid(), "", pa.scalar(None, pa.string()))
        return pc.if_else(whole, texts, empty)
    lists = pc.split_pattern(texts, separator)
    # The parts of row r are flat[begins[r] : ends[r]].
    offsets = lists.offsets.to_numpy()
    begins, ends = offsets[:-1].astype(np.int64), offsets[1:].astype(np.int64)
    counts = ends - begins
    has_part = (numbers != 0) & (numbers <= counts) & (numbers >= -counts)
    bounded = np.where(has_part, numbers, 0)
    places = np.where(bounded > 0, begins + bounded - 1, ends + bounded)
    parts = lists.values.take(pa.array(places, mask=~has_part)).fill_null("")
    return pc.if_else(texts.is_valid(), parts, pa.scalar(None, pa.string()))


def _place(texts: pa.Array, part: str) -> pa.Array:
    byte_places = pc.find_substring(texts, part).fill_null(-1).to_numpy(zero_copy_only=False)
    places = np.where(byte_places < 0, 0, byte_places.astype(np.int64) + 1)
    after_first = np.flatnonzero(places > 1)
    if len(after_first):
        # Bytes before the place that continue a code point are not counted.
        heads = _heads(texts.take(pa.array(after_first)), places[after_first] - 1)
        places[after_first] = heads + 1
    return pa.array(places)


def _heads(texts: pa.Array, sizes: Int64s) -> Int64s:
    """Return how many code points the first `sizes` bytes of each text have; no text is NULL."""
    _, offsets, data = texts.buffers()
    starts = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts)]
    first = starts.astype(np.int64)
    content = np.frombuffer(data, np.uint8)
    # before[b] counts the code points that begin before byte b.
    before = np.concatenate([[0], np.cumsum((content & 0xC0) != 0x80)])
    heads: Int64s = before[first + sizes] - before[first]
    return heads


def _starts(texts: pa.Array, prefix: str) -> pa.Array:
    return pc.starts_with(texts, prefix)


# ---- sizes


def _rows(operands: Sequence[Vector]) -> int:
    return int(np.broadcast_shapes(*[(len(operand),) for operand in operands])[0])


def _sizes(array: pa.Array) -> Int64s:
    sizes = pc.binary_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    return np.asarray(sizes, np.int64)


def _fitting(sizes: Int64s) -> Any:
    """Return which texts of these sizes in bytes may be made; raise TooMuchText if those are too
    many for one batch."""
    fits = sizes <= MAX_TEXT_BYTES
    total = int(sizes[fits].sum())
    if total > MAX_BATCH_BYTES and len(sizes) > 1:
        raise TooMuchText(total, MAX_BATCH_BYTES)
    return fits
