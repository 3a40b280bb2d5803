"""Equality: pairs of rows with equal keys, by Arrow's hash join.

A key is several columns, and NULL in any of them matches nothing. The smaller side is made a hash
table; the larger one goes through it in chunks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow._acero as acero  # pyarrow.acero loads datasets, and with them pandas
import pyarrow.compute as pc

from datastem.arrays import Int64s
from datastem.equality import codes
from querystem.join.factors import Comparison
from querystem.join.keys import equal_keys
from querystem.join.sides import Pairs, Side
from querystem.pace import spending

# The hash table is made anew for each chunk, so that a chunk is many times its size.
_LEAST_CHUNK, _CHUNK_TABLES = 1 << 16, 8
# Units (`querystem.pace`) of a row that is looked up, and of a pair that is found.
_ROW_UNITS, _PAIR_UNITS = 40, 20

Columns = list[pa.Array]


@dataclass(frozen=True)
class HashJoin:
    """The pairs of rows of two sides for which all equalities are true."""

    left: Side
    right: Side
    equalities: Sequence[Comparison]

    @cached_property
    def keys(self) -> tuple[Columns, Columns]:
        """The key's columns of both sides, made so that equal values are equal in Arrow."""
        spending()(_ROW_UNITS * (self.left.length + self.right.length))
        made = [self._keys(one) for one in self.equalities]
        return [one for one, _ in made], [other for _, other in made]

    def _keys(self, one: Comparison) -> tuple[pa.Array, pa.Array]:
        left, right = self.left.values(one.left), self.right.values(one.right)
        return equal_keys(left, one.left.type, right, one.right.type)

    @cached_property
    def at_most(self) -> int:
        """A bound of the number of pairs that takes a look at the smaller side alone."""
        sides = sorted([self.left.length, self.right.length])
        if not sides[0]:
            return 0
        small = self.keys[self._build_side]
        return int(_multiplicities(small, sides[0]).max(initial=0)) * sides[1]

    @cached_property
    def count(self) -> int:
        """The number of pairs."""
        if not self.at_most:
            return 0
        left, right = (np.bincount(code[code >= 0]) for code in self.codes)
        common = min(len(left), len(right))
        # Python's integers: the sum of products may be past int64.
        return sum(map(int.__mul__, left[:common].tolist(), right[:common].tolist()))

    @cached_property
    def codes(self) -> tuple[Int64s, Int64s]:
        """A number for each key of both sides, equal for equal keys; -1 for one that holds NULL."""
        columns = [pa.concat_arrays(pair) for pair in zip(*self.keys, strict=True)]
        spending()(_ROW_UNITS * len(columns[0]))
        code, _ = codes(columns, len(columns[0]))
        for column in columns:
            if column.null_count:
                code[column.is_null().to_numpy(zero_copy_only=False)] = -1
        return code[: self.left.length], code[self.left.length :]

    def pairs(self) -> Iterator[Pairs]:
        """All pairs, some at a time."""
        if not self.at_most:
            return
        build = self._build_side
        table = _keyed(self.keys[build], 0, len(self.keys[build][0]))
        for probe in _chunks(self.keys[1 - build], table.num_rows):
            found = _hash_join(probe, table)
            spending()(_ROW_UNITS * (probe.num_rows + table.num_rows) + _PAIR_UNITS * len(found[0]))
            yield (found[1], found[0]) if build == 0 else found

    @property
    def _build_side(self) -> int:
        return 0 if self.left.length < self.right.length else 1


def _multiplicities(columns: Columns, length: int) -> Int64s:
    """How many rows have each key; keys that hold NULL may be there."""
    if len(columns) == 1:
        counts = pc.value_counts(columns[0].drop_null()).field("counts")
        found: Int64s = counts.to_numpy()
        return found
    code, _ = codes(columns, length)
    return np.bincount(code)


def _chunks(columns: Columns, table_rows: int) -> Iterator[pa.Table]:
    step = max(_LEAST_CHUNK, _CHUNK_TABLES * table_rows)
    length = len(columns[0])
    for begin in range(0, length, step):
        yield _keyed(columns, begin, min(begin + step, length))


def _keyed(columns: Columns, begin: int, end: int) -> pa.Table:
    """The rows `[begin, end)` of the key's columns, and their numbers."""
    parts = [column.slice(begin, end - begin) for column in columns]
    names = [f"key{number}" for number in range(len(parts))]
    return pa.table([*parts, pa.array(np.arange(begin, end))], names=[*names, "row"])


def _hash_join(probe: pa.Table, table: pa.Table) -> Pairs:
    keys = probe.schema.names[:-1]
    options = acero.HashJoinNodeOptions(
        "inner",
        left_keys=keys,
        right_keys=keys,
        left_output=["row"],
        right_output=["row"],
        output_suffix_for_left=".probe",
        output_suffix_for_right=".table",
    )
    sources = [
        acero.Declaration("table_source", acero.TableSourceNodeOptions(one))
        for one in (probe, table)
    ]
    found = acero.Declaration("hashjoin", options, sources).to_table(use_threads=False)
    return found.column(0).to_numpy(), found.column(1).to_numpy()
