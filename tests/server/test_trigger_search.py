"""The last row that refreshes is found from bitmaps: blocks without one are never read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from datastem.blocks import BLOCK_ROWS
from datastem.codec import decode, encode
from datastem.memory import Memory
from datastem.schema import Column, StreamSchema
from datastem.segments import RowSegment
from datastem.stem import DataStem
from datastem.types import BIGINT
from psoup.answers.matching.match_files import MatchFileCache
from psoup.answers.matching.matcher import Matcher, Work
from psoup.answers.planning.plan import Triggers
from psoup.answers.refresh.triggers import newest_row
from psoup.answers.replicas.epoch_files import EMPTY
from querystem.language import bind_query
from results.match_cache import MatchCache

SCHEMA = StreamSchema("s", (Column("a", BIGINT),))
BLOCKS = 5


def rows(lo: int, hi: int) -> pa.RecordBatch:
    """A row's stamp is its id in its block's thousands; its position is its block."""
    block = lo // BLOCK_ROWS
    payload = encode(pa.record_batch({"a": pa.array(range(lo, hi), pa.int64())}))
    return decode(SCHEMA, payload, lo, 1000 * block, block)


class Files:
    def __init__(self) -> None:
        self.read_blocks: list[int] = []

    def read(
        self, segments: Sequence[RowSegment], lo: int, hi: int, names: Sequence[str] | None = None
    ) -> pa.RecordBatch:
        self.read_blocks.append(lo // BLOCK_ROWS)
        return rows(lo, hi)


def test_blocks_without_a_match_are_not_read() -> None:
    files = Files()
    stem = DataStem(Memory(1), files.read)
    segments = [
        RowSegment(n * BLOCK_ROWS, (n + 1) * BLOCK_ROWS, 1000 * n, 1000 * n, n)
        for n in range(BLOCKS)
    ]
    stem.cover(stem.indexed(BLOCKS * BLOCK_ROWS, segments))
    cache, view = MatchCache(1 << 20), stem.view()
    last = BLOCK_ROWS + 7
    for block in range(1, BLOCKS):
        matches = [7] if block == 1 else []
        span = (block * BLOCK_ROWS, (block + 1) * BLOCK_ROWS)
        cache.insert(1, block, [span], np.array(matches, np.uint16))
    query = bind_query(f"SELECT a FROM s WHERE a = {last}", {"s": SCHEMA}.get)
    matcher = Matcher(1, 1, query.leg.where, EMPTY, cache, MatchFileCache(Path(), 1), Work(0))
    triggers = Triggers(query.leg.where, 1, 1, view, None)
    row = newest_row(triggers, (), None, matcher)
    assert row is not None
    assert (row.id, row.stamp, row.position) == (last, 1000, 1)
    assert files.read_blocks == [1], "nothing was computed, and only the match's block was read"
