"""The bytes that each strategy keeps: section 5.1 with numbers."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.paper.base import Base
from benchmarks.paper.nomat import NoMat
from benchmarks.paper.partial import Partial, query_stem
from benchmarks.paper.response import complete_over
from benchmarks.paper.workload import Query, Workload
from datastem.blocks import BLOCK_BITS, BLOCK_MASK
from results.bitmaps import encode


@dataclass(frozen=True)
class Storage:
    """The bytes for a window of `window` rows: those all share, and what each strategy adds.

    `bit_array` is what the paper's PSoup-P would take: a bit for each query and row.
    """

    window: int
    data: int
    queries: int
    nomat: int
    partial: int
    bit_array: int
    complete: int


def storage(workload: Workload, windows: Sequence[int]) -> list[Storage]:
    base = Base(workload)
    partial = Partial(base, workload.queries)
    stem = query_stem(workload.queries)
    count, index_bytes = len(workload.queries), stem_bytes(workload.queries)
    measured = []
    for size in windows:
        window = base.window(size)
        lo, hi = base.bounds(window)
        bitmap_bytes = sum(_encoded(partial.find(number, window)) for number in range(count))
        measured.append(
            Storage(
                size,
                base.rows.slice(lo, hi - lo).nbytes,
                index_bytes,
                NoMat(base, window).index_bytes,
                bitmap_bytes,
                count * size // 8,
                complete_over(base, stem, count, size).nbytes,
            )
        )
    return measured


def stem_bytes(queries: list[Query]) -> int:
    """The query SteM's memory, by Python's own count of it."""
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    stem = query_stem(queries)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(stem) == len(queries)
    return after - before


def _encoded(ids: np.ndarray) -> int:
    """As roaring bitmaps, block by block."""
    blocks = np.split(ids, np.flatnonzero(np.diff(ids >> BLOCK_BITS)) + 1)
    return sum(len(encode((part & BLOCK_MASK).astype(np.uint16))) for part in blocks if len(part))
