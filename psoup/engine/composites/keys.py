"""Join keys: all equalities between two legs are one key, an edge, and its hash is what rows of
both legs are found by.

Edge e between legs i < j has two sides: side 2e is leg i seen from j, side 2e + 1 the other one.
Hashes are equal where keys are, whatever their numeric types; where hashes are equal, the
condition of the edge tells whether keys are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s, Mask
from datastem.equality import canonical
from datastem.types import BOOLEAN, Kind, Type
from querystem.composites import Shape
from querystem.expressions import Call, Expression, Op, columns_of
from querystem.join.factors import conjunction
from querystem.join.keys import equal_keys
from querystem.kernel import values_of
from results.checksum import key_ids

# Hashes are 63 bits; the bucket is the highest of them.
BUCKET_BITS = 6
_BUCKET_SHIFT = 63 - BUCKET_BITS

_WIDEST = pa.decimal128(38, 0)


@dataclass(frozen=True)
class KeyEdge:
    """The equalities between two legs as one key. Each has an expression over the first leg and one
    over the second; columns are named as `querystem.query.item_column` writes them."""

    legs: tuple[int, int]
    equalities: tuple[tuple[Expression, Expression], ...]

    @cached_property
    def condition(self) -> Expression:
        return conjunction([Call(Op.EQ, pair, BOOLEAN) for pair in self.equalities])

    def columns(self, end: int) -> frozenset[str]:
        """The columns that the key of the leg at `end`, 0 or 1, is made of."""
        return frozenset(name for pair in self.equalities for name in columns_of(pair[end]))

    def hashes(self, end: int, rows: pa.RecordBatch) -> tuple[Int64s, Mask]:
        """The hash of each row's key, for rows of the leg at `end`, and whether the key can equal
        any: one that holds NULL, or a number that no value of the other type is, can't."""
        columns = [_key(pair, end, rows) for pair in self.equalities]
        known = np.ones(rows.num_rows, np.bool_)
        for column in columns:
            if column.null_count:
                known &= column.is_valid().to_numpy(zero_copy_only=False)
        return key_ids(columns, rows.num_rows), known


def key_edges(shape: Shape) -> tuple[KeyEdge, ...]:
    """The edges of a composite."""
    return tuple(KeyEdge((left, right), tuple(pairs)) for left, right, pairs in shape.edges)


def sides_of(edges: Sequence[KeyEdge], leg: int) -> list[int]:
    """The sides of a leg."""
    return [
        2 * number + end
        for number, edge in enumerate(edges)
        for end in (0, 1)
        if edge.legs[end] == leg
    ]


def leg_columns(edges: Sequence[KeyEdge], leg: int) -> frozenset[str]:
    """The columns that all keys of a leg are made of."""
    columns = [edges[side >> 1].columns(side & 1) for side in sides_of(edges, leg)]
    return frozenset(name for some in columns for name in some)


def buckets(hashes: Int64s) -> Int64s:
    return hashes >> _BUCKET_SHIFT


def _key(pair: tuple[Expression, Expression], end: int, rows: pa.RecordBatch) -> pa.Array:
    """One column of a key, alike for both ends: only the types of the other end are known here."""
    values, types = values_of(pair[end], rows), (pair[0].type, pair[1].type)
    other = pa.array([], types[1 - end].arrow)
    ends = (values, other) if end == 0 else (other, values)
    made = equal_keys(ends[0], types[0], ends[1], types[1])[end]
    # Whether exact numbers of different types are written as BIGINT depends on the values.
    return canonical(made.cast(_WIDEST) if _mixes(types) and pa.types.is_int64(made.type) else made)


def _mixes(types: tuple[Type, Type]) -> bool:
    """Tells whether exact numbers of two types are compared."""
    numeric = types[0].is_numeric and Kind.DOUBLE not in (types[0].kind, types[1].kind)
    return numeric and types[0] != types[1]
