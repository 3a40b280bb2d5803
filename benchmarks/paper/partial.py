"""PSoup-P, which is what the product does: matches are kept, the window is applied at invoke.

The parts are the product's own: the query SteM, the engine's pieces of roaring bitmaps, and what a
server keeps of them decoded.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from benchmarks.paper.base import INSERT_ROWS, Base, batches
from benchmarks.paper.workload import Query
from datastem.arrays import Int64s
from datastem.blocks import BLOCK_BITS
from psoup.engine.steps import pieces
from querystem.index import QueryStem
from results.match_cache import MatchCache
from results.stored_matches import MatchPieces
from results.window import RowWindow

STREAM_ID = 1


def query_stem(queries: list[Query]) -> QueryStem:
    """Predicate ids are the places in the list."""
    stem = QueryStem()
    for number, query in enumerate(queries):
        stem.insert(number, query.where)
    return stem


class Partial:
    def __init__(self, base: Base, queries: list[Query]) -> None:
        stem = query_stem(queries)
        parts = batches(base.rows, INSERT_ROWS)
        tables = [table for part in parts for table in pieces.probe(stem, STREAM_ID, part)]
        live = pa.array(range(len(queries)), pa.int64())
        self.matches = pieces.merge(pa.concat_tables(tables), live)
        self._base = base
        self._known = remembered(self.matches, len(queries), base.high)

    def find(self, number: int, window: RowWindow) -> Int64s:
        """The ids of the rows of query `number` in the window, ascending."""
        lo, hi = self._base.bounds(window)
        first, last = lo >> BLOCK_BITS, (hi - 1) >> BLOCK_BITS
        if first == last:
            return self._known.probe(number, first).between(lo, hi)
        blocks = range(first, last + 1)
        return np.concatenate([self._known.probe(number, b).between(lo, hi) for b in blocks])


def remembered(matches: pa.Table, queries: int, high: int) -> MatchCache:
    """The matches of rows with ids below `high`, as a server has them after the first invoke."""
    cache = MatchCache(1 << 40)
    run = MatchPieces(matches.combine_chunks().to_batches()[0])
    for predicate in range(queries):
        for block in range(((high - 1) >> BLOCK_BITS) + 1):
            rows = [(block << BLOCK_BITS, (block + 1) << BLOCK_BITS)]
            for lows in run.find(predicate, block):
                cache.insert(predicate, block, rows, lows)
    return cache
