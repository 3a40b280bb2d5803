"""Pieces of the matches table: made from a probe, and merged.

A piece says which rows of one block a predicate matched, within [lo, hi). Pieces of one predicate
and block are disjoint, and a piece without matches is not written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyroaring

from datastem.arrays import Int64s
from datastem.blocks import BLOCK_BITS, BLOCK_MASK
from datastem.codec import are_rows, query_view
from psoup.engine.coverage import Cohort
from psoup.store.layout import MATCHES, SEGMENT_BITS
from querystem.index import Matches, QueryStem

# Of a row id, where the layout counts from a block.
ROW_SEGMENT_BITS = BLOCK_BITS + SEGMENT_BITS

_ORDER = [("predicate_id", "ascending"), ("block", "ascending"), ("lo", "ascending")]


def probe(index: QueryStem, stream_id: int, rows: pa.RecordBatch) -> pa.Table:
    """Matches stem rows, which ascend by id, with the predicates of an index. Rows that are deletes
    match none."""
    rows = rows.filter(pa.array(are_rows(rows)))
    ids: Int64s = rows.column("_row_id").to_numpy()
    view = query_view(rows)
    return in_order(
        probe_block(index, stream_id, ids[first:last], view.slice(first, last - first))
        for first, last in runs(ids >> BLOCK_BITS)
    )


def probe_block(index: QueryStem, stream_id: int, ids: Int64s, view: pa.RecordBatch) -> pa.Table:
    """Matches rows of one block, given their ascending ids and what queries see of them."""
    return _pieces(stream_id, ids, _probe(index, ids, view))


def in_order(tables: Iterable[pa.Table]) -> pa.Table:
    """The pieces of several blocks as one table, in the order of predicates."""
    parts = list(tables)
    if len(parts) == 1:
        return parts[0]
    return pa.concat_tables([MATCHES.empty_table(), *parts]).sort_by(_ORDER)


def runs(values: Int64s) -> Iterator[tuple[int, int]]:
    """Yields [first, last) of each run of equal values."""
    if len(values):
        edges = np.flatnonzero(np.diff(values)) + 1
        yield from zip([0, *edges.tolist()], [*edges.tolist(), len(values)], strict=True)


def covered(pieces: pa.Table, cohorts: Sequence[Cohort]) -> pa.Table:
    """The pieces without what they say about rows that the cohort of their predicate does not
    cover; those of predicates without a cohort stay."""
    if not cohorts:
        return pieces
    los, his, row_los = np.array([(one.lo, one.hi, one.row_lo) for one in cohorts], np.int64).T
    predicates: Int64s = pieces.column("predicate_id").to_numpy()
    places = np.maximum(np.searchsorted(los, predicates, "right") - 1, 0)
    inside = (predicates >= los[places]) & (predicates < his[places])
    first = np.where(inside, row_los[places], 0)
    across = first > pieces.column("lo").to_numpy()
    whole = pieces.filter(pa.array(~across))
    across &= first < pieces.column("hi").to_numpy()
    if not across.any():
        return whole
    cut = [
        _cut(piece, row)
        for piece, row in zip(
            pieces.filter(pa.array(across)).to_pylist(), first[across].tolist(), strict=True
        )
    ]
    some = pa.Table.from_pylist([piece for piece in cut if piece["count"]], schema=MATCHES)
    return pa.concat_tables([whole, some.select(whole.column_names)])


def _cut(piece: dict[str, Any], row: int) -> dict[str, Any]:
    """A piece from a row id within it on."""
    rows = pyroaring.BitMap.deserialize(piece["bitmap"])
    rows.remove_range(0, row & BLOCK_MASK)
    return piece | {"lo": row, "count": len(rows), "bitmap": rows.serialize()}


def merge(pieces: pa.Table, live: pa.Array) -> pa.Table:
    """Makes one piece of all pieces of a predicate and block; only those of `live` predicates stay.

    That is sound because a predicate has met one run of ids in a block, so the range from the least
    `lo` to the greatest `hi` holds no row it has not met.
    """
    kept = pieces.filter(pc.is_in(pieces.column("predicate_id"), value_set=live)).sort_by(_ORDER)
    predicates: Int64s = kept.column("predicate_id").to_numpy()
    blocks: Int64s = kept.column("block").to_numpy()
    same = (np.diff(predicates) == 0) & (np.diff(blocks) == 0)
    groups = list(runs(np.concatenate([[0], np.cumsum(~same)]) if len(predicates) else predicates))
    if len(groups) == kept.num_rows:
        return kept
    bitmaps = kept.column("bitmap").to_pylist()
    los: Int64s = kept.column("lo").to_numpy()
    his: Int64s = kept.column("hi").to_numpy()
    unions = [_union(bitmaps[first:last]) for first, last in groups]
    firsts = np.array([first for first, _ in groups], dtype=np.int64)
    head = kept.take(pa.array(firsts))
    columns = {name: head.column(name) for name in MATCHES.names}
    columns["lo"] = pa.array(np.minimum.reduceat(los, firsts))
    columns["hi"] = pa.array(np.maximum.reduceat(his, firsts))
    columns["count"] = pa.array([len(union) for union in unions], pa.int64())
    columns["bitmap"] = pa.array([union.serialize() for union in unions], pa.binary())
    return pa.table(columns, schema=MATCHES)


def _probe(index: QueryStem, ids: Int64s, view: pa.RecordBatch) -> Matches:
    """Probes the rows of one block, numbered by the low bits of their ids."""
    lows = ids & BLOCK_MASK
    first = int(lows[0])
    found = index.probe(view, first)
    if int(lows[-1]) - first + 1 == len(ids):
        return found
    return found.renumbered(lows.astype(np.uint32), first)


def _pieces(stream_id: int, ids: Int64s, found: Matches) -> pa.Table:
    """Rows of the matches table for one block, in the order of predicates."""
    block, lo, hi = int(ids[0]) >> BLOCK_BITS, int(ids[0]), int(ids[-1]) + 1
    predicates, counts, bitmaps = found.bitmaps()
    same = (stream_id, block >> SEGMENT_BITS, block, lo, hi)
    stream, segment, blocks, los, his = (np.full(len(predicates), each) for each in same)
    columns = [stream, segment, predicates, blocks, los, his, counts, bitmaps]
    return pa.table([pa.array(column) for column in columns], schema=MATCHES)


def _union(bitmaps: list[bytes]) -> pyroaring.BitMap:
    union = pyroaring.BitMap.deserialize(bitmaps[0])
    for bitmap in bitmaps[1:]:
        union |= pyroaring.BitMap.deserialize(bitmap)
    union.run_optimize()
    return union
