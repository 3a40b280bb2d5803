"""Pieces of the matches table: made from a probe, and merged.

A piece has the rows of one block that a predicate matched, within [lo, hi). Pieces of one predicate
and block are disjoint. A piece without matches is not written.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyroaring

from datastem.arrays import Int64s
from datastem.blocks import BLOCK_BITS, BLOCK_MASK
from datastem.codec import are_rows, query_view
from psoup.engine.matching.coverage import Cohort
from psoup.store.layout import MATCHES, SEGMENT_BITS
from querystem.index import Matches, QueryStem

# The low bits of a row id within a segment; the layout counts segments in blocks.
ROW_SEGMENT_BITS = BLOCK_BITS + SEGMENT_BITS

# A range of predicate ids, [lo, hi).
IdRange = tuple[int, int]
EVERY_ID: IdRange = (0, sys.maxsize)

# Pieces that a task holds before it writes them. Arrow's arrays of bytes end at 2 GB.
TABLE_BYTES = 256 << 20

_ORDER = [("predicate_id", "ascending"), ("block", "ascending"), ("lo", "ascending")]


def probe(
    index: QueryStem, stream_id: int, rows: pa.RecordBatch, group: IdRange = EVERY_ID
) -> Iterator[pa.Table]:
    """Yield the pieces of stem rows, which must ascend by id, matched with the predicates of an
    index whose ids are in the range `group`, as tables of bounded size. Rows that are deletes match
    no predicate."""
    rows = rows.filter(pa.array(are_rows(rows)))
    ids: Int64s = rows.column("_row_id").to_numpy()
    view = query_view(rows)
    return together(
        table
        for first, last in runs(ids >> BLOCK_BITS)
        for table in probe_block(
            index, stream_id, ids[first:last], view.slice(first, last - first), group
        )
    )


def probe_block(
    index: QueryStem,
    stream_id: int,
    ids: Int64s,
    view: pa.RecordBatch,
    group: IdRange = EVERY_ID,
) -> Iterator[pa.Table]:
    """Yield the pieces of rows of one block, given their ascending ids and the columns that queries
    see. Each table has other predicates, in order."""
    # Matches are numbered within the block, as bitmaps are.
    lows = ids & BLOCK_MASK
    first = int(lows[0])
    # If no id is missing, the probe's numbers from `first` on are the low bits already.
    has_gaps = int(lows[-1]) - first + 1 != len(ids)
    for matches in index.probe_slices(view, first, lo=group[0], hi=group[1]):
        if has_gaps:
            matches = matches.renumbered(lows.astype(np.uint32), first)
        yield _pieces(stream_id, ids, matches)


def together(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the pieces of tables in few tables, each in order and of about `TABLE_BYTES`."""
    parts, size = list[pa.Table](), 0
    for table in tables:
        if parts and size + table.nbytes > TABLE_BYTES:
            yield in_order(parts)
            parts, size = [], 0
        parts.append(table)
        size += table.nbytes
    if parts:
        yield in_order(parts)


def in_order(tables: Iterable[pa.Table]) -> pa.Table:
    """Return the pieces of several blocks as one table, by predicate, block and first row."""
    parts = list(tables)
    if len(parts) == 1:
        # The pieces of one probe are in order already.
        return parts[0]
    return pa.concat_tables([MATCHES.empty_table(), *parts]).sort_by(_ORDER)


def runs(values: Int64s) -> Iterator[tuple[int, int]]:
    """Yield [first, last) of each run of equal values."""
    if len(values):
        edges = np.flatnonzero(np.diff(values)) + 1
        yield from zip([0, *edges.tolist()], [*edges.tolist(), len(values)], strict=True)


def covered(pieces: pa.Table, cohorts: Sequence[Cohort]) -> pa.Table:
    """Return the pieces without the rows that the cohort of their predicate does not cover. Pieces
    of predicates without a cohort stay."""
    if not cohorts:
        return pieces
    # One entry per cohort, ascending by predicate id.
    los, his, row_los = np.array(
        [(cohort.lo, cohort.hi, cohort.row_lo) for cohort in cohorts], np.int64
    ).T
    predicates: Int64s = pieces.column("predicate_id").to_numpy()
    # Per piece: the last cohort that begins at or below its predicate, or the first cohort.
    places = np.maximum(np.searchsorted(los, predicates, "right") - 1, 0)
    inside = (predicates >= los[places]) & (predicates < his[places])
    # Per piece: the first row that its cohort covers.
    first = np.where(inside, row_los[places], 0)
    # Pieces that begin before `first` are cut, and dropped if they also end by then.
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
    shortened = pa.Table.from_pylist([piece for piece in cut if piece["count"]], schema=MATCHES)
    return pa.concat_tables([whole, shortened.select(whole.column_names)])


def _cut(piece: dict[str, Any], row: int) -> dict[str, Any]:
    """Return a piece without its rows before a row id, which must be within it."""
    rows = pyroaring.BitMap.deserialize(piece["bitmap"])
    rows.remove_range(0, row & BLOCK_MASK)
    return piece | {"lo": row, "count": len(rows), "bitmap": rows.serialize()}


def merge(pieces: pa.Table, live: pa.Array, cohorts: Iterable[Cohort] = ()) -> pa.Table:
    """Return one piece for all pieces of a predicate and block, of the `live` predicates only.

    `cohorts` must hold those with a gap between their rows: pieces before and after a gap stay
    apart. So the range from the least `lo` to the greatest `hi` of merged pieces holds only rows
    that the predicate was matched with, and back-fill may fill the gap.
    """
    live_pieces = pieces.filter(pc.is_in(pieces.column("predicate_id"), value_set=live)).sort_by(
        _ORDER
    )
    predicates: Int64s = live_pieces.column("predicate_id").to_numpy()
    blocks: Int64s = live_pieces.column("block").to_numpy()
    gaps = _gaps_below(live_pieces, cohorts)
    # True between neighbours of one predicate and block without a gap, which are merged.
    same = (np.diff(predicates) == 0) & (np.diff(blocks) == 0) & (np.diff(gaps) == 0)
    # The running number of its group for each piece; a run of equal numbers is one group.
    groups = list(runs(np.concatenate([[0], np.cumsum(~same)]) if len(predicates) else predicates))
    if len(groups) == live_pieces.num_rows:
        return live_pieces
    bitmaps = live_pieces.column("bitmap").to_pylist()
    los: Int64s = live_pieces.column("lo").to_numpy()
    his: Int64s = live_pieces.column("hi").to_numpy()
    # A group is the run of pieces of one predicate and block; `firsts` are the groups' first rows.
    unions = [_union(bitmaps[first:last]) for first, last in groups]
    firsts = np.array([first for first, _ in groups], dtype=np.int64)
    head = live_pieces.take(pa.array(firsts))
    columns = {name: head.column(name) for name in MATCHES.names}
    columns["lo"] = pa.array(np.minimum.reduceat(los, firsts))
    columns["hi"] = pa.array(np.maximum.reduceat(his, firsts))
    columns["count"] = pa.array([len(union) for union in unions], pa.int64())
    columns["bitmap"] = pa.array([union.serialize() for union in unions], pa.binary())
    return pa.table(columns, schema=MATCHES)


def _gaps_below(pieces: pa.Table, cohorts: Iterable[Cohort]) -> Int64s:
    """Return, for each piece, the number of gaps before it in the rows of its cohort."""
    predicates: Int64s = pieces.column("predicate_id").to_numpy()
    los: Int64s = pieces.column("lo").to_numpy()
    gaps = np.zeros(len(predicates), np.int64)
    for cohort in cohorts:
        for row_lo, _ in cohort.rows[1:]:
            gaps += (predicates >= cohort.lo) & (predicates < cohort.hi) & (los >= row_lo)
    return gaps


def _pieces(stream_id: int, ids: Int64s, matches: Matches) -> pa.Table:
    """Return rows of the matches table for one block, in the order of predicates."""
    # All pieces have the range of the probed rows: it says what was matched, not what matches.
    block, lo, hi = int(ids[0]) >> BLOCK_BITS, int(ids[0]), int(ids[-1]) + 1
    predicates, counts, bitmaps = matches.bitmaps()
    same = (stream_id, block >> SEGMENT_BITS, block, lo, hi)
    stream, segment, blocks, los, his = (np.full(len(predicates), value) for value in same)
    columns = [stream, segment, predicates, blocks, los, his, counts, bitmaps]
    return pa.table([pa.array(column) for column in columns], schema=MATCHES)


def _union(bitmaps: list[bytes]) -> pyroaring.BitMap:
    union = pyroaring.BitMap.deserialize(bitmaps[0])
    for bitmap in bitmaps[1:]:
        union |= pyroaring.BitMap.deserialize(bitmap)
    union.run_optimize()
    return union
