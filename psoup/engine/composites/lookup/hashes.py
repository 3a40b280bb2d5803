"""The key of equalities: a hash of all their values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s, Mask
from datastem.equality import canonical
from datastem.types import Kind, Type
from psoup.engine.composites.lookup.probes import HashProbes
from querystem.expressions import Expression
from querystem.join.keys import equal_keys
from querystem.kernel import values_of
from results.checksum import key_ids

# Hashes are 63 bits; the bucket is the highest of them.
BUCKET_BITS = 6
BUCKETS = 1 << BUCKET_BITS
_BUCKET_SHIFT = 63 - BUCKET_BITS

_WIDEST = pa.decimal128(38, 0)


@dataclass(frozen=True)
class HashKey:
    """The hash of the values of equalities. Each has an expression over the first leg and one over
    the second; columns are named as `querystem.sources.item_column` writes them."""

    equalities: tuple[tuple[Expression, Expression], ...]
    span: int | None

    def keys(self, end: int, rows: pa.RecordBatch) -> tuple[Int64s, Mask]:
        """Return the hash of the join key of each row of the leg at `end`, 0 or 1, and a mask of
        the keys that can equal another: not one with NULL, or with a number outside the other
        type."""
        columns = [_key(pair, end, rows) for pair in self.equalities]
        # A value that has no equal on the other side is NULL in its column.
        valid = np.ones(rows.num_rows, np.bool_)
        for column in columns:
            if column.null_count:
                valid &= column.is_valid().to_numpy(zero_copy_only=False)
        return key_ids(columns, rows.num_rows), valid

    def buckets(self, keys: Int64s, ts: Int64s) -> Int64s:
        """Return the bucket of each hash."""
        return buckets(keys)

    def probes(
        self, end: int, rows: pa.RecordBatch, firsts: Int64s, lasts: Int64s
    ) -> tuple[HashProbes, Int64s]:
        """Return the probes of combinations with these rows of the leg at `end`, whose parts have
        ts from `firsts` to `lasts`, and the place of each probe's combination; some combinations
        can have no partner, and no probe."""
        hashes, valid = self.keys(end, rows)
        places = np.flatnonzero(valid)
        places = places[np.argsort(hashes[places])]
        hashes = hashes[places]
        numbers = np.unique(buckets(hashes))
        return HashProbes(hashes, numbers, firsts[places], lasts[places], self.span), places


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
