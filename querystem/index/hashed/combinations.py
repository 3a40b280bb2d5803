"""Distinct combinations of key values, looked up by hash.

Key values are columns of int64; TEXT is Arrow strings, or their bytes while they are looked up. The
search is exact: when combinations are built no two of them share a code (else another seed is
tried), and each row is compared with the combination that has its code.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datastem import native
from datastem.arrays import Array, Int64s, Mask, UInt64s
from datastem.types import Kind, Type
from querystem.index.byte_slices import MASKS, WORD_BYTES, ByteSlices, equal_slices

KeyColumn = Any

# Only so many bytes of a text are part of its code.
LONGEST_TEXT = 256
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)


def column_of(values: Sequence[Any], type_: Type) -> KeyColumn:
    """Return key values of one type as a column."""
    if type_.kind is Kind.TEXT:
        return pa.array(values, pa.string())
    return np.array(values, np.int64)


def take(column: KeyColumn, places: Array) -> KeyColumn:
    """Return the values at these places."""
    return column.take(pa.array(places)) if isinstance(column, pa.Array) else column.take(places)


def concat(columns: Sequence[KeyColumn]) -> KeyColumn:
    """Return the values of all columns, one after the other."""
    if isinstance(columns[0], pa.Array):
        return pa.concat_arrays(columns)
    return np.concatenate(columns)


def equal(first: KeyColumn, second: KeyColumn) -> Mask:
    """Return a mask of the rows whose values are equal; NULL equals nothing."""
    if isinstance(first, pa.Array):
        same: Mask = pc.equal(first, second).fill_null(False).to_numpy(zero_copy_only=False)
        return same
    return np.asarray(first == second)


def codes_of(columns: Sequence[KeyColumn], seed: int) -> UInt64s:
    """Return the code of each row: a hash of its values in all columns."""
    codes = np.full(len(columns[0]), seed, np.uint64)
    for column in columns:
        if isinstance(column, np.ndarray):
            _mix(codes, column.view(np.uint64))
        else:
            _mix_texts(codes, slices_of(column))
    return codes


def slices_of(column: KeyColumn) -> KeyColumn:
    """Return texts as their bytes; other columns as they are."""
    return ByteSlices.of(column) if isinstance(column, pa.Array) else column


def _mix(codes: UInt64s, words: UInt64s) -> None:
    codes ^= words
    codes *= _FACTOR
    codes ^= codes >> _HALF
    codes *= _FACTOR


def _mix_texts(codes: UInt64s, texts: ByteSlices) -> None:
    """Mix texts into the codes, eight bytes at a time of all texts that are that long."""
    lengths, at_each_byte = texts.lengths, texts.words
    _mix(codes, lengths.view(np.uint64))
    # An empty text has a word of which no byte counts.
    _mix(codes, at_each_byte[texts.begins] & MASKS.take(np.minimum(lengths, WORD_BYTES)))
    for place in range(WORD_BYTES, min(int(lengths.max(initial=0)), LONGEST_TEXT), WORD_BYTES):
        rows = np.flatnonzero(lengths > place)
        masks = MASKS.take(np.minimum(lengths[rows] - place, WORD_BYTES))
        mixed = codes[rows]
        _mix(mixed, at_each_byte[texts.begins[rows] + place] & masks)
        codes[rows] = mixed


# A random seed, so that nobody outside can choose values that collide.
_SEED = secrets.randbits(63)


@dataclass(frozen=True, slots=True)
class DistinctRows:
    """The distinct rows of columns, in the order of their `codes` by `seed`.

    `first` has a row of the columns for each of them, `places` the place of every row of the
    columns among them. Texts of more than `LONGEST_TEXT` bytes are not for this.
    """

    codes: UInt64s
    first: Int64s
    places: Int64s
    seed: int

    @classmethod
    def of(cls, columns: Sequence[KeyColumn]) -> DistinctRows:
        """Return the distinct rows of columns, of which there must be one."""
        for seed in itertools.count(_SEED):
            codes, first, places = np.unique(
                codes_of(columns, seed), return_index=True, return_inverse=True
            )
            if all(_same(take(column, first), column, places) for column in columns):
                return cls(codes, first, places, seed)
        raise AssertionError


class Combinations:
    """Distinct combinations of values: number i has the values `columns[...][i]`. Immutable."""

    def __init__(
        self,
        columns: Sequence[KeyColumn],
        codes: UInt64s,
        seed: int,
        buckets: Array | None = None,
    ) -> None:
        """Take columns without repeats, in the order of their codes by `seed`, all distinct. The
        buckets are those of combinations with these codes, if they were made before."""
        self.columns = columns
        self.seed = seed
        self.codes = codes
        bits = min(len(codes).bit_length() + 1, 32)
        self._shift = np.uint64(64 - bits)
        if buckets is None:
            edges = np.arange(2**bits + 1, dtype=np.uint64)
            buckets = np.searchsorted(codes >> self._shift, edges).astype(np.int32)
        # The codes with leading bits b are `codes[buckets[b]:buckets[b + 1]]`.
        self.buckets = buckets
        self._distinct: list[KeyColumn] | None = None

    @classmethod
    def of(cls, columns: Sequence[KeyColumn]) -> tuple[Combinations, Int64s]:
        """Return the combinations of columns with repeats, and the place of each row's
        combination."""
        rows = DistinctRows.of(columns)
        return cls([take(column, rows.first) for column in columns], rows.codes, rows.seed), (
            rows.places
        )

    def __len__(self) -> int:
        return len(self.codes)

    def find(self, columns: Sequence[KeyColumn], codes: UInt64s) -> tuple[Int64s, Int64s]:
        """Return the rows of `columns` that have a combination, and the place of each row's
        combination.

        Texts come as their bytes. `codes` are those of the columns by `seed`.
        """
        rows, places = self._candidates(codes)
        if self._distinct is None:
            self._distinct = [slices_of(column) for column in self.columns]
        for distinct, column in zip(self._distinct, columns, strict=True):
            same = _equal_at(distinct, places, column, rows)
            if not same.all():
                rows, places = rows[same], places[same]
        return rows, places

    def _candidates(self, codes: UInt64s) -> tuple[Int64s, Int64s]:
        """Return the rows whose code is here, and its place.

        Most codes are the first of their bucket; the others are looked for behind it, all at once.
        The code behind an empty bucket is of another bucket, and so another code.
        """
        if native.core is not None:
            native_places = native.find_codes(self.codes, self.buckets, int(self._shift), codes)
            rows = (native_places >= 0).nonzero()[0]
            return rows, native_places.take(rows).astype(np.int64)
        bucket = (codes >> self._shift).view(np.int64)
        code_places = self.buckets.take(bucket)
        hit = self.codes.take(code_places, mode="clip") == codes
        # The rows that are still looked for, the place to look at next, and the bucket's end.
        remaining = (~hit).nonzero()[0]
        if len(remaining):
            ends = self.buckets.take(bucket[remaining] + 1)
            places = code_places[remaining] + 1
        while len(remaining):
            more = places < ends
            remaining, places, ends = remaining[more], places[more], ends[more]
            same = self.codes[places] == codes[remaining]
            code_places[remaining[same]] = places[same]
            hit[remaining[same]] = True
            remaining, places, ends = remaining[~same], places[~same] + 1, ends[~same]
        rows = hit.nonzero()[0]
        return rows, code_places.take(rows).astype(np.int64)

    def _check(self) -> None:
        assert (np.diff(self.codes.astype(object)) > 0).all()
        assert (codes_of(self.columns, self.seed) == self.codes).all()


def _equal_at(distinct: KeyColumn, places: Int64s, column: KeyColumn, rows: Int64s) -> Mask:
    """Return a mask of the pairs of a place of `distinct` and a row of `column` with equal
    values."""
    first, second = distinct.take(places), column.take(rows)
    if isinstance(first, np.ndarray):
        return np.asarray(first == second)
    # A text that was found by its code has at most LONGEST_TEXT bytes, if the lengths are equal.
    same: Mask = first.lengths == second.lengths
    lengths = np.where(same, first.lengths, 0)
    same &= equal_slices(first.words, first.begins, second.words, second.begins, lengths)
    return same


def _same(distinct: KeyColumn, column: KeyColumn, places: Int64s) -> bool:
    return bool(equal(take(distinct, places), column).all())
