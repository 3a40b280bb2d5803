"""The order of rows by any keys, as integers: NaN is the greatest number, TEXT goes by code point.

A `Ranker` takes places (row numbers) and gives each an int64, the less the earlier. Several
rankers are one order, the first the most significant. They are asked only about the rows that the
ones before have left undecided.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from datastem.equality import canonical
from datastem.types import Kind, Type

Ranker = Callable[[Int64s], Int64s]

_SIGN = np.uint64(1 << 63)
_PREFIX = 8


def by(numbers: Int64s) -> Ranker:
    return lambda places: numbers[places]


def ascending(array: pa.Array, type_: Type) -> list[Ranker]:
    """Of the values of the array; NULLs are all equal and stand anywhere among them."""
    match type_.kind:
        case Kind.TEXT:
            return [_prefixes(array), _texts(array)]
        case Kind.DECIMAL:
            limbs = _numbers(array, np.int64, 2).reshape(-1, 2)
            low = (limbs[:, 0].view(np.uint64) ^ _SIGN).view(np.int64)
            found = [np.ascontiguousarray(limbs[:, 1]), low]
        case Kind.DOUBLE:
            bits = _numbers(canonical(array), np.int64, 1)
            found = [bits ^ ((bits >> 63) & np.int64(2**63 - 1))]
        case Kind.BOOLEAN:
            found = [array.fill_null(False).to_numpy(zero_copy_only=False).astype(np.int64)]
        case Kind.DATE:
            found = [_numbers(array, np.int32, 1).astype(np.int64)]
        case _:
            found = [_numbers(array, np.int64, 1)]
    if array.null_count:
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        found = [np.where(valid, numbers, 0) for numbers in found]
    return [by(numbers) for numbers in found]


def descending(rankers: Sequence[Ranker]) -> list[Ranker]:
    return [_reverse(ranker) for ranker in rankers]


def _reverse(ranker: Ranker) -> Ranker:
    return lambda places: ~ranker(places)


def with_nulls(array: pa.Array, rankers: list[Ranker], first: bool) -> list[Ranker]:
    """The same order with the NULLs of the array before or after everything else."""
    if not array.null_count:
        return rankers
    known = array.is_valid().to_numpy(zero_copy_only=False)
    return [by((known if first else ~known).astype(np.int64)), *rankers]


def sort(rankers: Sequence[Ranker], places: Int64s) -> Int64s:
    """The places in order. Places whose rows are equal keep theirs."""
    if not rankers or len(places) < 2:
        return places
    return places[np.lexsort([ranker(places) for ranker in reversed(rankers)])]


def first(rankers: Sequence[Ranker], places: Int64s, count: int) -> Int64s:
    """The first `count` of the places in order; sorts no others."""
    decided: list[Int64s] = []
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
    return sort(rankers, np.sort(chosen))


def leaders(rankers: Sequence[Ranker], places: Int64s, codes: Int64s, groups: int) -> Int64s:
    """The first place of each group in order, -1 for a group without places.

    `codes` are the groups of the places.
    """
    for ranker in rankers:
        ranks = ranker(places)
        least = np.full(groups, np.iinfo(np.int64).max)
        np.minimum.at(least, codes, ranks)
        kept = ranks == least[codes]
        if not kept.all():
            places, codes = places[kept], codes[kept]
    found = np.full(groups, -1, np.int64)
    found[codes[::-1]] = places[::-1]
    return found


def _numbers(array: pa.Array, dtype: Any, width: int) -> Any:
    buffer = array.buffers()[1]
    if not len(array) or buffer is None:
        return np.zeros(len(array) * width, dtype)
    begin = array.offset * width
    return np.frombuffer(buffer, dtype)[begin : begin + len(array) * width]


def _prefixes(array: pa.Array) -> Ranker:
    """The first bytes of each text as one number: UTF-8 is in the order of code points."""

    def ranks(places: Int64s) -> Int64s:
        _, offsets, content = array.buffers()
        if not len(places) or content is None or not content.size:
            return np.zeros(len(places), np.int64)
        ends = np.frombuffer(offsets, np.int32)[array.offset :].astype(np.int64)
        letters = np.frombuffer(content, np.uint8)
        starts, stops = ends[places], ends[places + 1]
        if array.null_count:
            stops = np.where(array.is_valid().to_numpy(zero_copy_only=False)[places], stops, starts)
        prefix = np.zeros(len(places), np.uint64)
        for step in range(_PREFIX):
            at = starts + step
            letter = letters[np.minimum(at, len(letters) - 1)]
            prefix = prefix << np.uint64(8) | np.where(at < stops, letter, 0).astype(np.uint64)
        return (prefix ^ _SIGN).view(np.int64)

    return ranks


def _texts(array: pa.Array) -> Ranker:
    def ranks(places: Int64s) -> Int64s:
        encoded = array.take(pa.array(places)).dictionary_encode()
        rank = np.empty(len(encoded.dictionary) + 1, np.int64)
        rank[pa.compute.sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(rank) - 1)
        rank[-1] = 0
        found: Int64s = rank[encoded.indices.fill_null(len(rank) - 1).to_numpy()]
        return found

    return ranks
