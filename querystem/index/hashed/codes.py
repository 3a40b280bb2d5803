"""Distinct combinations of values, found by hash.

Exact: when it is built no two combinations share a code (else another seed is tried), and what
is looked up is compared with what was found.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Sequence

import numpy as np

from datastem.arrays import Int64s, UInt64s
from querystem.index.hashed.columns import Column, codes_of, equal, take

# Nobody outside can tell which values would collide.
_SEED = secrets.randbits(63)


class Combinations:
    """Immutable. Combination i has the values `columns[...][i]`."""

    def __init__(self, columns: Sequence[Column], codes: UInt64s, seed: int) -> None:
        """Of columns without repeats in the order of their codes by `seed`, which are distinct."""
        self.columns = columns
        self.seed = seed
        self._codes = codes
        bits = min(len(codes).bit_length() + 1, 32)
        self._shift = np.uint64(64 - bits)
        buckets = np.arange(2**bits + 1, dtype=np.uint64)
        self._buckets = np.searchsorted(codes >> self._shift, buckets).astype(np.int32)

    @classmethod
    def of(cls, columns: Sequence[Column]) -> tuple[Combinations, Int64s]:
        """Of columns with repeats, and which combination each of their rows is."""
        for seed in itertools.count(_SEED):
            codes, first, places = np.unique(
                codes_of(columns, seed), return_index=True, return_inverse=True
            )
            distinct = [take(column, first) for column in columns]
            if all(map(_same, distinct, columns, itertools.repeat(places))):
                return cls(distinct, codes, seed), places
        raise AssertionError

    def __len__(self) -> int:
        return len(self._codes)

    def find(self, columns: Sequence[Column], codes: UInt64s) -> tuple[Int64s, Int64s]:
        """The rows of columns, whose codes these are by `seed`, that are here; and what they are.

        A row with a NULL text is not.
        """
        rows, places = self._candidates(codes)
        for mine, column in zip(self.columns, columns, strict=True):
            same = equal(take(mine, places), take(column, rows))
            if not same.all():
                rows, places = rows[same], places[same]
        return rows, places

    def _candidates(self, codes: UInt64s) -> tuple[Int64s, Int64s]:
        """Most are the first of their bucket. What follows an empty one has another code."""
        bucket = (codes >> self._shift).view(np.int64)
        found = self._buckets.take(bucket)
        hit = self._codes.take(found, mode="clip") == codes
        left = np.flatnonzero(~hit)
        ends = self._buckets.take(bucket[left] + 1)
        places = found[left] + 1
        while len(left):
            more = places < ends
            left, places, ends = left[more], places[more], ends[more]
            same = self._codes[places] == codes[left]
            found[left[same]] = places[same]
            hit[left[same]] = True
            left, places, ends = left[~same], places[~same] + 1, ends[~same]
        rows = np.flatnonzero(hit)
        return rows, found[rows].astype(np.int64)

    def _check(self) -> None:
        assert (np.diff(self._codes.astype(object)) > 0).all()
        assert (codes_of(self.columns, self.seed) == self._codes).all()


def _same(distinct: Column, column: Column, places: Int64s) -> bool:
    return bool(equal(take(distinct, places), column).all())
