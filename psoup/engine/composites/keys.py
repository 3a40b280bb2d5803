"""Join keys: all equalities between two legs are one join key, an *edge*, and rows of both legs are
found by its hash.

Edge e between legs i < j has two sides: side 2e is leg i seen from j, side 2e + 1 is leg j seen
from i. Equal join keys have equal hashes, whatever their numeric types. If hashes are equal, the
condition of the edge decides whether the join keys are.
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
    """The equalities between two legs as one join key. Each has an expression over the first leg
    and one over the second; columns are named as `querystem.query.item_column` writes them."""

    legs: tuple[int, int]
    equalities: tuple[tuple[Expression, Expression], ...]

    @cached_property
    def condition(self) -> Expression:
        return conjunction([Call(Op.EQ, pair, BOOLEAN) for pair in self.equalities])

    def columns(self, end: int) -> frozenset[str]:
        """Return the columns of the join key of the leg at `end`, 0 or 1."""
        return frozenset(name for pair in self.equalities for name in columns_of(pair[end]))

    def hashes(self, end: int, rows: pa.RecordBatch) -> tuple[Int64s, Mask]:
        """Return the hash of the join key of each row of the leg at `end`, and a mask of the keys
        that can equal another: not one with NULL, or with a number outside the other type."""
        columns = [_key(pair, end, rows) for pair in self.equalities]
        # A value that has no equal on the other side is NULL in its column.
        valid = np.ones(rows.num_rows, np.bool_)
        for column in columns:
            if column.null_count:
                valid &= column.is_valid().to_numpy(zero_copy_only=False)
        return key_ids(columns, rows.num_rows), valid


def key_edges(shape: Shape) -> tuple[KeyEdge, ...]:
    """Return the edges of a composite."""
    return tuple(KeyEdge((first, second), tuple(pairs)) for first, second, pairs in shape.edges)


def sides_of(edges: Sequence[KeyEdge], leg: int) -> list[int]:
    """Return the sides of a leg."""
    return [
        2 * number + end
        for number, edge in enumerate(edges)
        for end in (0, 1)
        if edge.legs[end] == leg
    ]


def leg_columns(edges: Sequence[KeyEdge], leg: int) -> frozenset[str]:
    """Return the columns of all join keys of a leg."""
    columns = [edges[side >> 1].columns(side & 1) for side in sides_of(edges, leg)]
    return frozenset(name for names in columns for name in names)


def buckets(hashes: Int64s) -> Int64s:
    """Return the bucket of each hash."""
    return hashes >> _BUCKET_SHIFT


def _key(pair: tuple[Expression, Expression], end: int, rows: pa.RecordBatch) -> pa.Array:
    """Return one column of a join key, in a form that both ends share. The other end's values are
    not known here, only their type."""
    values, types = values_of(pair[end], rows), (pair[0].type, pair[1].type)
    opposite = pa.array([], types[1 - end].arrow)
    ends = (values, opposite) if end == 0 else (opposite, values)
    column = equal_keys(ends[0], types[0], ends[1], types[1])[end]
    # Whether exact numbers of different types are written as BIGINT depends on the values.
    return canonical(
        column.cast(_WIDEST) if _mixes(types) and pa.types.is_int64(column.type) else column
    )


def _mixes(types: tuple[Type, Type]) -> bool:
    """Return True if exact numbers of two types are compared."""
    numeric = types[0].is_numeric and Kind.DOUBLE not in (types[0].kind, types[1].kind)
    return numeric and types[0] != types[1]
