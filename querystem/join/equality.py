"""Equality: pairs of rows with equal keys, by Arrow's hash join.

A key is several columns, and NULL in any of them matches nothing. The smaller side is made a hash
table; the larger one goes through it in chunks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow._acero as acero  # pyarrow.acero loads datasets, and with them pandas
import pyarrow.compute as pc

from datastem.arrays import Int64s, Mask
from datastem.equality import codes
from querystem.join.factors import Comparison
from querystem.join.keys import equal_keys
from querystem.join.sides import Pairs, Side
from querystem.pace import spending

# The hash table is built again for each chunk, so a chunk has many times its rows.
_LEAST_CHUNK_ROWS, _CHUNK_TABLES = 1 << 18, 8
# Units (`querystem.pace`) of a row that is looked up, and of a pair that is found.
_ROW_UNITS, _PAIR_UNITS = 40, 20

# A table is small if at least this many times its rows are looked up in it.
_SMALL_TABLE_PROBES = 16
_LOW_HALF = 2**32 - 1
_HALF, _ODD = np.uint64(32), np.uint64(0x9E3779B97F4A7C15)
_BUCKET_SHIFT = np.uint64(48)

Columns = list[pa.Array]


@dataclass(frozen=True)
class HashJoin:
    """The pairs of rows of two sides for which all equalities are true."""

    left: Side
    right: Side
    equalities: Sequence[Comparison]

    @cached_property
    def keys(self) -> tuple[Columns, Columns]:
        """The join key's columns of both sides, made so that equal values are equal in Arrow."""
        spending()(_ROW_UNITS * (self.left.length + self.right.length))
        columns = [self._keys(equality) for equality in self.equalities]
        return [left_column for left_column, _ in columns], [column for _, column in columns]

    def _keys(self, equality: Comparison) -> tuple[pa.Array, pa.Array]:
        left_keys, left_places = self.left.few_values(equality.left)
        right_keys, right_places = self.right.few_values(equality.right)
        left_keys, right_keys = equal_keys(
            left_keys, equality.left.type, right_keys, equality.right.type
        )
        # Without places each combination has its own value already, and nothing is repeated.
        if left_places is None and right_places is None:
            return left_keys, right_keys
        if pa.types.is_string(left_keys.type):
            # Texts that are repeated for many combinations would not fit one array.
            left_keys, right_keys = _numbered(left_keys, right_keys)
        return _at(left_keys, left_places), _at(right_keys, right_places)

    @cached_property
    def at_most(self) -> int:
        """An upper bound of the number of pairs, which is faster to find than the pairs.

        For sides of about one size: equal keys are in the same bucket, so there are no more pairs
        than within buckets. If one side is far smaller, only that one is counted: no row of the
        large side has more partners than the most frequent key has rows.
        """
        small, large = sorted([self.left.length, self.right.length])
        if not small:
            return 0
        keys = self.keys
        # Equal keys are equal in their first column, so counting buckets of that one gives a bound.
        if small * _SMALL_TABLE_PROBES > large and _is_int64(keys[0][0]):
            left_counts, right_counts = (_buckets(columns[0]) for columns in self._mixed_keys)
            return int(left_counts @ right_counts)
        return int(_multiplicities(keys[self._build_side], small).max(initial=0)) * large

    @cached_property
    def count(self) -> int:
        """The number of pairs."""
        if not self.at_most:
            return 0
        # Both sides number their keys alike: the pairs of key c are left_counts[c] *
        # right_counts[c]. Keys with NULL, coded −1, are in no pair.
        left_counts, right_counts = (np.bincount(code[code >= 0]) for code in self.codes)
        common = min(len(left_counts), len(right_counts))
        # Python's integers: the sum of products may be past int64.
        return sum(map(int.__mul__, left_counts[:common].tolist(), right_counts[:common].tolist()))

    @cached_property
    def codes(self) -> tuple[Int64s, Int64s]:
        """A number for each key of both sides, equal for equal keys; -1 for one that holds NULL."""
        # Both sides are coded in one array, the left rows first, so that equal keys share a code.
        columns = [pa.concat_arrays(pair) for pair in zip(*self.keys, strict=True)]
        spending()(_ROW_UNITS * len(columns[0]))
        code, _ = codes(columns, len(columns[0]))
        for column in columns:
            if column.null_count:
                code[_null(column)] = -1
        return code[: self.left.length], code[self.left.length :]

    def pairs(self) -> Iterator[Pairs]:
        """Yield all pairs, some at a time."""
        if not self.at_most:
            return
        for table in self._joined("inner"):
            # Arrow's left output comes first. It is the probing side, whichever of our sides that
            # is.
            probed, built = (table.column(number).to_numpy() for number in (0, 1))
            spending()(_PAIR_UNITS * len(probed))
            yield (built, probed) if self._build_side == 0 else (probed, built)

    def partnered(self) -> Mask:
        """Return whether each row of the left side is in a pair."""
        partnered = np.zeros(self.left.length, np.bool_)
        if self.left.length and self.right.length:
            # The semi-join has to report rows of our left side, which is the table or the probe.
            way = "right semi" if self._build_side == 0 else "left semi"
            for table in self._joined(way):
                partnered[table.column(0).to_numpy()] = True
        return partnered

    def _joined(self, way: str) -> Iterator[pa.Table]:
        """Yield the rows that Arrow's join finds, in one of its ways: the larger side is on its
        left, in chunks."""
        build = self._build_side
        sides = self.keys
        # Mixing costs a pass over both sides, so it is done only if the table's keys may collide.
        if any(_is_crowded(column, len(sides[1 - build][0])) for column in sides[build]):
            sides = self._mixed_keys
        table = _keyed(sides[build], 0, len(sides[build][0]))
        for probe in _chunks(sides[1 - build], table.num_rows):
            spending()(_ROW_UNITS * (probe.num_rows + table.num_rows))
            yield _hash_join(way, probe, table)

    @cached_property
    def _mixed_keys(self) -> tuple[Columns, Columns]:
        left_columns, right_columns = self.keys
        return list(map(_mixed, left_columns)), list(map(_mixed, right_columns))

    @property
    def _build_side(self) -> int:
        return 0 if self.left.length < self.right.length else 1


def _numbered(left_texts: pa.Array, right_texts: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return a number for each text, equal for equal texts."""
    numbers = (
        pa.concat_arrays([left_texts, right_texts]).dictionary_encode().indices.cast(pa.int64())
    )
    return numbers[: len(left_texts)], numbers[len(left_texts) :]


def _at(keys: pa.Array, places: Int64s | None) -> pa.Array:
    return keys if places is None else keys.take(pa.array(places))


def _multiplicities(columns: Columns, length: int) -> Int64s:
    """Return how many rows have each key; keys that hold NULL may be among them."""
    if len(columns) == 1:
        counts = pc.value_counts(columns[0].drop_null()).field("counts")
        multiplicities: Int64s = counts.to_numpy()
        return multiplicities
    # `codes` counts NULL as a value; the bound may be too great then, never too small.
    code, _ = codes(columns, length)
    return np.bincount(code)


def _buckets(mixed: pa.Array) -> Int64s:
    """Return how many of the integers, which are mixed, fall into each of 65,536 buckets."""
    numbers = mixed.drop_null().to_numpy()
    return np.bincount((numbers >> _BUCKET_SHIFT).astype(np.int64), minlength=1 << 16)


def _chunks(columns: Columns, table_rows: int) -> Iterator[pa.Table]:
    """Yield the rows of the key's columns, cut into chunks of about equal size."""
    length = len(columns[0])
    count = max(1, length // max(_LEAST_CHUNK_ROWS, _CHUNK_TABLES * table_rows))
    cuts = [length * number // count for number in range(count + 1)]
    for begin, end in pairwise(cuts):
        yield _keyed(columns, begin, end)


def _keyed(columns: Columns, begin: int, end: int) -> pa.Table:
    """Return the rows `[begin, end)` of the key's columns, and their numbers."""
    parts = [column.slice(begin, end - begin) for column in columns]
    names = [f"key{number}" for number in range(len(parts))]
    # The numbers count in the whole side, not in the chunk.
    return pa.table([*parts, pa.array(np.arange(begin, end))], names=[*names, "row"])


def _hash_join(way: str, probe: pa.Table, table: pa.Table) -> pa.Table:
    """Return the numbers of the rows that go together: of both tables, or for a semi-join of the
    side whose rows need a partner."""
    keys = probe.schema.names[:-1]
    options = acero.HashJoinNodeOptions(
        way,
        left_keys=keys,
        right_keys=keys,
        left_output=[] if way == "right semi" else ["row"],
        right_output=[] if way == "left semi" else ["row"],
        output_suffix_for_left=".probe",
        output_suffix_for_right=".table",
    )
    sources = [
        acero.Declaration("table_source", acero.TableSourceNodeOptions(table_side))
        for table_side in (probe, table)
    ]
    return acero.Declaration("hashjoin", options, sources).to_table(use_threads=False)


# ---- mixing. Arrow's hash table has its buckets by the low half of an integer. Keys that differ in
# the high half alone, as whole doubles and multiples of 2^40 do, would all share a few buckets.


def _is_crowded(table: pa.Array, probes: int) -> bool:
    """Return whether keys have to be mixed: the table has integers with equal low halves, or is too
    large to check that quickly."""
    if not _is_int64(table):
        return False
    if len(table) * _SMALL_TABLE_PROBES > probes:
        return True
    numbers: Int64s = table.drop_null().view(pa.int64()).to_numpy()
    return len(np.unique(numbers & _LOW_HALF)) < len(np.unique(numbers))


def _mixed(array: pa.Array) -> pa.Array:
    """Return integers of 64 bits with their bits mixed, such that different integers stay
    different; any other array as it is."""
    if not _is_int64(array):
        return array
    numbers = array.view(pa.int64())
    # An Arrow array with NULLs would become doubles in numpy. The mask restores the NULLs below.
    if array.null_count:
        numbers = numbers.fill_null(0)
    plain = numbers.to_numpy().view(np.uint64)
    # Each line can be undone: shifted bits come from above, and the factor is odd.
    mixed = plain >> _HALF
    mixed ^= plain
    mixed *= _ODD
    mixed ^= mixed >> _HALF
    return pa.array(mixed, mask=_null(array) if array.null_count else None)


def _is_int64(array: pa.Array) -> bool:
    return bool(pa.types.is_primitive(array.type) and array.type.bit_width == 64)


def _null(array: pa.Array) -> Mask:
    null: Mask = array.is_null().to_numpy(zero_copy_only=False)
    return null
