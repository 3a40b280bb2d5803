"""The order of rows by any keys: as integers to sort by, and as bytes for clients that keep rows.

NaN is the greatest number, and TEXT goes by code point.

A `Ranker` takes places (row numbers) and gives each an int64, the less the earlier. Several rankers
are one order, the first the most significant. Each ranks only the rows that the rankers before it
left equal.

Sort keys are bytes whose plain order is that of ORDER BY: a program in any language sorts rows
right without knowing their types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datastem.arrays import Int64s
from datastem.equality import canonical
from datastem.types import BIGINT, TIMESTAMP, Kind, Type
from querystem.grouping import key_name
from querystem.kernel import values_of
from querystem.query import Query, SortKey
from querystem.sources import part_names
from results.row_order import number_order

Ranker = Callable[[Int64s], Int64s]

_SIGN = np.uint64(1 << 63)
_PREFIX_BYTES = 8
_EMPTY = b""
# After the last byte of a text; a zero byte within it becomes two, the second greater than this.
_STOP = b"\x00\x00"
_ZERO, _ESCAPED = b"\x00", b"\x00\xff"


def by(numbers: Int64s) -> Ranker:
    """Return the order of the numbers, of which row n has `numbers[n]`."""
    return lambda places: numbers[places]


def ascending(array: pa.Array, type_: Type) -> list[Ranker]:
    """Return the order of an array's values; NULLs are all equal and stand anywhere among the
    values."""
    match type_.kind:
        case Kind.TEXT:
            return [_prefixes(array), _texts(array)]
        case Kind.DECIMAL:
            # One row per value: the low and the high 64 bits. Low bits are unsigned.
            limbs = _numbers(array, np.int64, 2).reshape(-1, 2)
            low = (limbs[:, 0].view(np.uint64) ^ _SIGN).view(np.int64)
            columns = [np.ascontiguousarray(limbs[:, 1]), low]
        case Kind.DOUBLE:
            bits = _numbers(canonical(array), np.int64, 1)
            # The bits of doubles rise with their magnitude, so those of negatives are inverted.
            columns = [bits ^ ((bits >> 63) & np.int64(2**63 - 1))]
        case Kind.BOOLEAN:
            columns = [array.fill_null(False).to_numpy(zero_copy_only=False).astype(np.int64)]
        case Kind.DATE:
            columns = [_numbers(array, np.int32, 1).astype(np.int64)]
        case _:
            columns = [_numbers(array, np.int64, 1)]
    if array.null_count:
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        columns = [np.where(valid, numbers, 0) for numbers in columns]
    return [by(numbers) for numbers in columns]


def descending(rankers: Sequence[Ranker]) -> list[Ranker]:
    return [_reverse(ranker) for ranker in rankers]


def _reverse(ranker: Ranker) -> Ranker:
    # Inverting the bits turns the order round, and unlike the negative it never overflows.
    return lambda places: ~ranker(places)


def with_nulls(array: pa.Array, rankers: list[Ranker], first: bool) -> list[Ranker]:
    """Return the order of `rankers`, with the NULLs of the array before or after everything
    else."""
    if not array.null_count:
        return rankers
    is_valid = array.is_valid().to_numpy(zero_copy_only=False)
    return [by((is_valid if first else ~is_valid).astype(np.int64)), *rankers]


def sort(rankers: Sequence[Ranker], places: Int64s) -> Int64s:
    """Return the places in order; places whose rows are equal stay as they were."""
    if not rankers or len(places) < 2:
        return places
    return places[number_order([ranker(places) for ranker in rankers])]


def first(rankers: Sequence[Ranker], places: Int64s, count: int) -> Int64s:
    """Return the first `count` of the places, in order; no others are sorted."""
    decided: list[Int64s] = []
    # Each ranker settles places: those below the rank at position `need` are in, those above are
    # out. Equal ones are left to the next ranker.
    open_, need = places, count
    for ranker in rankers:
        if need <= 0 or need >= len(open_):
            break
        ranks = ranker(open_)
        least = np.partition(ranks, need - 1)[need - 1]
        decided.append(open_[ranks < least])
        need -= len(decided[-1])
        open_ = open_[ranks == least]
    chosen = np.concatenate([*decided, open_[: max(need, 0)]])
    # Places ascend again before the stable sort, so that equal rows keep their order.
    return sort(rankers, np.sort(chosen))


def leaders(rankers: Sequence[Ranker], places: Int64s, codes: Int64s, groups: int) -> Int64s:
    """Return the first place of each group, -1 for a group without places; `codes` are the
    groups."""
    for ranker in rankers:
        ranks = ranker(places)
        # least[g] is the least rank in group g. Only places that have it go on to the next ranker.
        least = np.full(groups, np.iinfo(np.int64).max)
        np.minimum.at(least, codes, ranks)
        is_least = ranks == least[codes]
        if not is_least.all():
            places, codes = places[is_least], codes[is_least]
    first_places = np.full(groups, -1, np.int64)
    # Written from the last to the first, so that the first place of each group stays.
    first_places[codes[::-1]] = places[::-1]
    return first_places


def _numbers(array: pa.Array, dtype: Any, width: int) -> Any:
    buffer = array.buffers()[1]
    if not len(array) or buffer is None:
        return np.zeros(len(array) * width, dtype)
    begin = array.offset * width
    return np.frombuffer(buffer, dtype)[begin : begin + len(array) * width]


def _prefixes(array: pa.Array) -> Ranker:
    """Return the order of the first bytes of each text: UTF-8 is in the order of code points."""

    def ranks(places: Int64s) -> Int64s:
        _, offsets, content = array.buffers()
        if not len(places) or content is None or not content.size:
            return np.zeros(len(places), np.int64)
        ends = np.frombuffer(offsets, np.int32)[array.offset :].astype(np.int64)
        letters = np.frombuffer(content, np.uint8)
        # starts and stops are the byte ranges of the texts; a NULL counts as an empty text.
        starts, stops = ends[places], ends[places + 1]
        if array.null_count:
            stops = np.where(array.is_valid().to_numpy(zero_copy_only=False)[places], stops, starts)
        prefix = np.zeros(len(places), np.uint64)
        for step in range(_PREFIX_BYTES):
            at = starts + step
            # Past the end of the content any byte may be read, because it is masked by `at <
            # stops`.
            letter = letters[np.minimum(at, len(letters) - 1)]
            prefix = prefix << np.uint64(8) | np.where(at < stops, letter, 0).astype(np.uint64)
        return (prefix ^ _SIGN).view(np.int64)

    return ranks


def _texts(array: pa.Array) -> Ranker:
    def ranks(places: Int64s) -> Int64s:
        encoded = array.take(pa.array(places)).dictionary_encode()
        # rank[code] is the place of a text among the distinct ones; the last entry is for NULL.
        rank = np.empty(len(encoded.dictionary) + 1, np.int64)
        rank[pa.compute.sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(rank) - 1)
        rank[-1] = 0
        text_ranks: Int64s = rank[encoded.indices.fill_null(len(rank) - 1).to_numpy()]
        return text_ranks

    return ranks


# ---- as bytes


def sort_keys(query: Query, rows: pa.RecordBatch, *, moments: bool) -> pa.Array:
    """Return the sort key of each row, which is a row of the stream, or a group from `finish`.

    If ORDER BY leaves groups equal, their keys decide. With `moments`, (ts, row_id) decides between
    rows, and ts with the row ids of the legs between combinations.
    """
    parts = [part for key in query.order_by for part in _ordered(key, rows)]
    if query.grouping is not None:
        for number, key in enumerate(query.grouping.keys):
            parts += _encoded(rows.column(key_name(number)), key.type, False, False)
    elif moments:
        parts += _encoded(rows.column("ts"), TIMESTAMP, False, False)
        for name in part_names(rows.schema.names) or ["row_id"]:
            parts += _encoded(rows.column(name), BIGINT, False, False)
    if not parts:
        return pa.array([_EMPTY] * rows.num_rows, pa.binary())
    return pc.binary_join_element_wise(*parts, _EMPTY)


def _ordered(key: SortKey, rows: pa.RecordBatch) -> list[pa.Array]:
    values = values_of(key.expression, rows)
    return _encoded(values, key.expression.type, key.descending, key.nulls_first)


def _encoded(values: pa.Array, type_: Type, descending: bool, nulls_first: bool) -> list[pa.Array]:
    """Return the bytes of one key: a byte that says where NULLs stand, and those of the values."""
    is_valid = values.is_valid().to_numpy(zero_copy_only=False)
    places = np.where(is_valid, 1, 0 if nulls_first else 2).astype(np.uint8)
    content = _text_content(values) if type_.kind is Kind.TEXT else _fixed(_ranks(values, type_))
    if descending:
        content = _inverted(content)
    if values.null_count:
        # A NULL has its first byte only, so that all NULLs are equal.
        content = pc.if_else(pa.array(is_valid), content, pa.scalar(_EMPTY, pa.binary()))
    return [_fixed(places.reshape(-1, 1)), content]


def _ranks(values: pa.Array, type_: Type) -> Any:
    """Return the values as a matrix of bytes, a row for each value, the most significant byte
    first."""
    match type_.kind:
        case Kind.BOOLEAN:
            flags = values.fill_null(False).to_numpy(zero_copy_only=False)
            return flags.astype(np.uint8).reshape(-1, 1)
        case Kind.DECIMAL:
            limbs = _numbers(values, np.int64, 2).reshape(-1, 2)
            high = _bytes(_flipped(limbs[:, 1]))
            return np.hstack([high, _bytes(limbs[:, 0].view(np.uint64))])
        case Kind.DOUBLE:
            bits = _numbers(canonical(values), np.int64, 1)
            return _bytes(_flipped(bits ^ ((bits >> 63) & np.int64(2**63 - 1))))
        case Kind.DATE:
            return _bytes(_flipped(_numbers(values, np.int32, 1).astype(np.int64)))
    return _bytes(_flipped(_numbers(values, np.int64, 1)))


def _flipped(numbers: Any) -> Any:
    """Return signed numbers as unsigned numbers in the same order."""
    return np.ascontiguousarray(numbers).view(np.uint64) ^ np.uint64(1 << 63)


def _bytes(numbers: Any) -> Any:
    # Big-endian, so that the order of the bytes is the order of the numbers.
    return np.ascontiguousarray(numbers.astype(">u8")).view(np.uint8).reshape(-1, 8)


def _fixed(matrix: Any) -> pa.Array:
    """Return an array that has each row of a matrix of bytes as one value."""
    count, width = matrix.shape
    content = pa.py_buffer(np.ascontiguousarray(matrix, np.uint8))
    offsets = pa.py_buffer(np.arange(count + 1, dtype=np.int32) * np.int32(width))
    return pa.Array.from_buffers(pa.binary(), count, [None, offsets, content])


def _text_content(values: pa.Array) -> pa.Array:
    content = values.fill_null("").cast(pa.binary())
    escaped = pc.replace_substring(content, _ZERO, _ESCAPED)
    return pc.binary_join_element_wise(escaped, pa.scalar(_STOP, pa.binary()), _EMPTY)


def _inverted(content: pa.Array) -> pa.Array:
    """Return the bytes with every bit inverted, which turns their order round."""
    _, offsets, letters = content.buffers()
    turned = ~np.frombuffer(letters if letters is not None else b"", np.uint8)
    return pa.Array.from_buffers(
        pa.binary(), len(content), [None, offsets, pa.py_buffer(turned)], offset=content.offset
    )
