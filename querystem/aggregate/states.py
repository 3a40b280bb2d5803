"""The states of groups while aggregates are computed: counts, sums, extremes, distinct values.

A state is made `of` the values of some rows, without NULLs, and of the `codes` that say which group
each row is in. States of several lots of rows `merge` into one; `codes` then has the new group of
each group of each state, one state after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s, UInt8s
from datastem.equality import canonical
from datastem.equality import codes as classes
from datastem.types import Kind, Type
from querystem.aggregate.limbs import Limbs, small_total, squares, terms
from querystem.ordering import Ranker, ascending, by, descending, leaders

# The flags of a sum: a NaN, a positive and a negative infinity are among its numbers.
NAN, PLUS, MINUS = 1, 2, 4

# Up to this many numbers, Python adds them one by one faster than numpy adds columns of digits.
_FEW_NUMBERS = 1000


@dataclass(frozen=True, slots=True)
class Counts:
    """How many rows, or values, each group has."""

    numbers: Int64s

    @classmethod
    def of(cls, codes: Int64s, groups: int) -> Counts:
        return cls(np.array([len(codes)]) if groups == 1 else np.bincount(codes, minlength=groups))

    @classmethod
    def merge(cls, parts: Sequence[Counts], codes: Int64s, groups: int) -> Counts:
        # Doubles are exact here: no stream has 2^53 rows.
        numbers = np.concatenate([part.numbers for part in parts])
        return cls(np.bincount(codes, weights=numbers, minlength=groups).astype(np.int64))

    @property
    def nbytes(self) -> int:
        return int(self.numbers.nbytes)


@dataclass(frozen=True, slots=True)
class Sums:
    """The exact sum of each group's numbers, or of their squares.

    `limbs` sum the finite numbers. `flags` has the bits NAN, PLUS and MINUS of each group, and is
    None if all numbers are finite.
    """

    limbs: Limbs
    flags: UInt8s | None = None

    @classmethod
    def of(cls, values: pa.Array, type_: Type, squared: bool, codes: Int64s, groups: int) -> Sums:
        """Return the sums of at most MOST_TERMS values; of their squares if `squared`."""
        if groups == 1 and not squared and len(values) <= _FEW_NUMBERS:
            total = small_total(values, type_)
            if total is not None:
                return cls(Limbs.of_integer(total))
        flags = None
        if type_.kind is Kind.DOUBLE:
            numbers = values.to_numpy()
            finite = np.isfinite(numbers)
            if not finite.all():
                flags = _flags(numbers[~finite], codes[~finite], groups)
                # Infinities and NaN have no digits; the flags keep them apart from the sum.
                values, codes = pa.array(numbers[finite]), codes[finite]
        numbers_as_terms = (squares if squared else terms)(values, type_)
        return cls(Limbs.of(numbers_as_terms, codes, groups), flags)

    @classmethod
    def merge(cls, parts: Sequence[Sums], codes: Int64s, groups: int) -> Sums:
        limbs = Limbs.merge([part.limbs for part in parts], codes, groups)
        if all(part.flags is None for part in parts):
            return cls(limbs)
        flags = np.zeros(groups, np.uint8)
        every = [
            np.zeros(len(part.limbs.digits), np.uint8) if part.flags is None else part.flags
            for part in parts
        ]
        np.bitwise_or.at(flags, codes, np.concatenate(every))
        return cls(limbs, flags)

    @property
    def nbytes(self) -> int:
        return self.limbs.nbytes + (0 if self.flags is None else int(self.flags.nbytes))


def _flags(numbers: Any, codes: Int64s, groups: int) -> UInt8s:
    flags = np.zeros(groups, np.uint8)
    bits = np.where(np.isnan(numbers), NAN, np.where(numbers > 0, PLUS, MINUS))
    np.bitwise_or.at(flags, codes, bits.astype(np.uint8))
    return flags


@dataclass(frozen=True, slots=True)
class Extremes:
    """The least or the greatest value of each group, NULL without one; -0.0 is shown as 0.0."""

    values: pa.Array
    type: Type
    greatest: bool

    @classmethod
    def of(
        cls, values: pa.Array, type_: Type, greatest: bool, codes: Int64s, groups: int
    ) -> Extremes:
        values = canonical(values)
        rankers = ascending(values, type_)
        # chosen[g] is the place of group g's value, or −1 if the group has none.
        chosen = leaders(
            descending(rankers) if greatest else rankers, np.arange(len(values)), codes, groups
        )
        return cls(_take(values, chosen), type_, greatest)

    @classmethod
    def merge(cls, parts: Sequence[Extremes], codes: Int64s, groups: int) -> Extremes:
        values = pa.concat_arrays([part.values for part in parts])
        values, codes = _present(values, codes)
        return cls.of(values, parts[0].type, parts[0].greatest, codes, groups)

    @property
    def nbytes(self) -> int:
        return int(self.values.nbytes)


@dataclass(frozen=True, slots=True)
class Ends:
    """The first or the last value of each group by (ts, row_id), NULL for a group without one.

    `ts` and `ids` are those of the row each value is from.
    """

    values: pa.Array
    ts: Int64s
    ids: Int64s
    latest: bool

    @classmethod
    def of(
        cls, values: pa.Array, ts: Int64s, ids: Int64s, latest: bool, codes: Int64s, groups: int
    ) -> Ends:
        rankers: list[Ranker] = [by(ts), by(ids)]
        chosen = leaders(
            descending(rankers) if latest else rankers, np.arange(len(values)), codes, groups
        )
        # Without values every place is −1, which can't index an empty array.
        if not len(values):
            return cls(_take(values, chosen), chosen, chosen, latest)
        # A place of −1 reads the last ts and id. They mean nothing: the value beside them is NULL.
        return cls(_take(values, chosen), ts[chosen], ids[chosen], latest)

    @classmethod
    def merge(cls, parts: Sequence[Ends], codes: Int64s, groups: int) -> Ends:
        values = pa.concat_arrays([part.values for part in parts])
        is_valid = values.is_valid().to_numpy(zero_copy_only=False)
        ts = np.concatenate([part.ts for part in parts])[is_valid]
        ids = np.concatenate([part.ids for part in parts])[is_valid]
        values, codes = _present(values, codes)
        return cls.of(values, ts, ids, parts[0].latest, codes, groups)

    @property
    def nbytes(self) -> int:
        return int(self.values.nbytes + self.ts.nbytes + self.ids.nbytes)


def _take(values: pa.Array, chosen: Int64s) -> pa.Array:
    return values.take(pa.array(chosen, mask=chosen < 0))


def _present(values: pa.Array, codes: Int64s) -> tuple[pa.Array, Int64s]:
    if not values.null_count:
        return values, codes
    return values.drop_null(), codes[values.is_valid().to_numpy(zero_copy_only=False)]


@dataclass(frozen=True, slots=True)
class Distinct:
    """The distinct values of each group: `values[i]` is one of group `codes[i]`, each pair once."""

    codes: Int64s
    values: pa.Array
    groups: int

    @classmethod
    def of(cls, values: pa.Array, codes: Int64s, groups: int) -> Distinct:
        values = canonical(values)
        _, firsts = classes([pa.array(codes), values], len(codes))
        return cls(codes[firsts], values.take(pa.array(firsts)), groups)

    @classmethod
    def merge(cls, parts: Sequence[Distinct], codes: Int64s, groups: int) -> Distinct:
        # Group c of part p is number starts[p] + c among the groups of all parts, as `codes`
        # counts.
        starts = np.cumsum([0, *[part.groups for part in parts]])
        old = np.concatenate(
            [part.codes + start for part, start in zip(parts, starts[:-1], strict=True)]
        )
        return cls.of(pa.concat_arrays([part.values for part in parts]), codes[old], groups)

    @property
    def nbytes(self) -> int:
        return int(self.codes.nbytes + self.values.nbytes)
