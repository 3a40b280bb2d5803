"""Sorted runs of numbers, from which percentiles are selected.

A number is kept as an integer key of the same order: BIGINT and DECIMAL are their own unscaled
values, a DOUBLE counts the doubles from 0.0 on, with NaN as the greatest. Without GROUP BY the runs
of merged states stay apart, because a percentile of several sorted runs is found by bisection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from datastem.arrays import Doubles, Int64s, Integers, Mask
from datastem.types import Kind, Type
from querystem.kernel.arithmetic import to_double
from querystem.kernel.integers import INT64_MAX, narrow
from querystem.kernel.vector import from_arrow

# More runs than this are sorted into one. Up to so many numbers sorting is faster than bisection.
_MAX_RUNS, _FEW_NUMBERS = 128, 1 << 12
# Codes below this limit are sorted by their digits, in time linear in their number.
_SHORT_CODES = 1 << 16


@dataclass(frozen=True, slots=True)
class NumberRuns:
    """The numbers of each group, as ascending keys.

    With one group run n is `keys[ends[n - 1] : ends[n]]`, and `codes` is empty. With several there
    is one run: `keys[i]` is of group `codes[i]`, by ascending (code, key).
    """

    codes: Int64s
    keys: Integers
    ends: Int64s
    groups: int

    @classmethod
    def of(cls, values: pa.Array, type_: Type, codes: Int64s, groups: int) -> NumberRuns:
        return cls._sorted(_keys(values, type_), codes, groups)

    @classmethod
    def merge(cls, parts: Sequence[NumberRuns], codes: Int64s, groups: int) -> NumberRuns:
        keys = np.concatenate([part.keys for part in parts])
        if groups == 1:
            starts = np.cumsum([0, *[len(part.keys) for part in parts]])[:-1]
            pairs = zip(parts, starts, strict=True)
            ends = np.concatenate([part.run_ends + start for part, start in pairs])
            if len(ends) <= _MAX_RUNS:
                return cls(_NO_CODES, keys, ends, groups)
        # Group c of part p is number firsts[p] + c among the groups of all parts, as `codes`
        # counts.
        firsts = np.cumsum([0, *[part.groups for part in parts]])[:-1]
        pairs = zip(parts, firsts, strict=True)
        old = np.concatenate([part.group_codes + first for part, first in pairs])
        return cls._sorted(keys, codes[old], groups)

    @classmethod
    def _sorted(cls, keys: Integers, codes: Int64s, groups: int) -> NumberRuns:
        if groups == 1:
            return cls(_NO_CODES, np.sort(keys), np.array([len(keys)]), 1)
        order = np.argsort(keys)
        small = codes[order].astype(np.uint16 if groups <= _SHORT_CODES else np.int64)
        order = order[np.argsort(small, kind="stable")]
        return cls(codes[order], keys[order], np.array([len(keys)]), groups)

    @property
    def nbytes(self) -> int:
        return int(self.codes.nbytes + self.keys.nbytes + self.ends.nbytes)

    @property
    def group_codes(self) -> Int64s:
        return np.zeros(len(self.keys), np.int64) if self.groups == 1 else self.codes

    @property
    def run_ends(self) -> Int64s:
        """The ends of sorted runs, of one group."""
        if self.groups == 1:
            return self.ends
        # Several groups that become one: each of them is a run.
        return np.cumsum(np.bincount(self.codes, minlength=self.groups))

    def percentiles(self, fraction: float, type_: Type) -> tuple[Doubles, Mask]:
        """Return the percentile of each group, interpolated between the two numbers next to
        `fraction * (n - 1)`, and a mask of the groups that have one."""
        counts = np.diff([0, *self._group_ends()])
        places = np.maximum(counts - 1, 0) * fraction
        below = np.floor(places).astype(np.int64)
        above = np.ceil(places).astype(np.int64)
        has_value = counts > 0
        lows, highs = self._selected(below, above, has_value)
        weights = places - below
        low, high = _doubles(lows, type_), _doubles(highs, type_)
        with np.errstate(all="ignore"):
            between = low * (1.0 - weights) + high * weights
        # Equal neighbours, and a place on a number, need no arithmetic, which would lose infinity.
        return np.where((weights == 0) | (lows == highs), low, between), has_value

    def _group_ends(self) -> Int64s:
        if self.groups == 1:
            return np.array([len(self.keys)])
        return np.cumsum(np.bincount(self.codes, minlength=self.groups))

    def _selected(self, below: Int64s, above: Int64s, has_value: Mask) -> tuple[Integers, Integers]:
        """Return the keys at two places, counted from 0, of each group; 0 for groups without any
        number."""
        if not len(self.keys):
            return np.zeros(self.groups, np.int64), np.zeros(self.groups, np.int64)
        if self.groups == 1:
            low, high = self._neighbours(int(below[0]), int(above[0]))
            return _array(low), _array(high)
        starts = np.concatenate([[0], self._group_ends()[:-1]])
        first = np.where(has_value, starts, 0)
        return self.keys[first + below], self.keys[first + above]

    def _neighbours(self, below: int, above: int) -> tuple[int, int]:
        """Return the keys at two neighbouring places of one group."""
        if len(self.ends) == 1 or len(self.keys) <= _FEW_NUMBERS:
            keys = self.keys if len(self.ends) == 1 else np.sort(self.keys)
            return int(keys[below]), int(keys[above])
        runs = [run for run in np.split(self.keys, self.ends[:-1]) if len(run)]
        low, most = min(int(run[0]) for run in runs), max(int(run[-1]) for run in runs)
        while low < most:
            # The least key that more than `below` keys do not exceed.
            middle = (low + most) // 2
            if sum(int(np.searchsorted(run, middle, "right")) for run in runs) > below:
                most = middle
            else:
                low = middle + 1
        ends = [int(np.searchsorted(run, low, "right")) for run in runs]
        if sum(ends) > above:
            return low, low
        after = [int(run[end]) for run, end in zip(runs, ends, strict=True) if end < len(run)]
        return low, min(after)


_NO_CODES = np.zeros(0, np.int64)


def _array(key: int) -> Integers:
    return narrow(np.array([key], object))


def _keys(values: pa.Array, type_: Type) -> Integers:
    vector = from_arrow(values, type_)
    keys: Integers = vector.values
    if type_.kind is not Kind.DOUBLE:
        return keys
    # −0.0 becomes 0.0, and every NaN the same one. The bits of negative doubles descend.
    doubles = vector.values + 0.0
    doubles[np.isnan(doubles)] = np.nan
    bits = doubles.view(np.int64)
    keys = np.where(bits < 0, (bits ^ INT64_MAX) + 1, bits)
    return keys


def _doubles(keys: Integers, type_: Type) -> Doubles:
    """Return the numbers of some keys, rounded to doubles."""
    if type_.kind is not Kind.DOUBLE:
        return to_double(keys, type_.scale)
    bits = np.where(keys < 0, (keys - 1) ^ INT64_MAX, keys)
    doubles: Any = bits.astype(np.int64).view(np.float64)
    return np.asarray(doubles, np.float64)
