"""The rows a second that can come in, queries indexed or not: figures 9 and 13.

Shared is the product's query SteM, unshared evaluates each query by itself; P then stores what
matched as the engine does (roaring bitmaps by predicate and block), C keeps every answer current.
Matching by itself is measured too: storing costs the same whether it was shared or not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import cast

import numpy as np
import pyarrow as pa

from benchmarks.paper.base import stem_rows
from benchmarks.paper.complete import Complete
from benchmarks.paper.partial import STREAM_ID, query_stem
from benchmarks.paper.unshared import Unshared
from benchmarks.paper.workload import Array, Workload
from datastem.codec import query_view
from psoup.engine.steps import pieces
from querystem.index import Matches, QueryStem

KINDS = ("PSoup-P", "PSoup-C", "matching alone")
_FEWEST = 3

Take = Callable[[pa.RecordBatch, int], object]


@dataclass(frozen=True)
class Rates:
    """Rows a second of processor time by kind, at `x` (queries, factors or rows a batch)."""

    x: int
    shared: dict[str, float]
    unshared: dict[str, float]

    def gain(self, kind: str) -> float:
        """Shared against unshared."""
        return self.shared[kind] / self.unshared[kind]


def rates(workload: Workload, x: int, batch: int, window: int, seconds: float) -> Rates:
    """Raise AssertionError if shared and unshared differ, or C's answers from both."""
    rows = stem_rows(workload)
    whole = range(0, rows.num_rows - batch + 1, batch)
    parts = [rows.slice(start, batch) for start in whole]
    shared, unshared = query_stem(workload.queries), Unshared(workload.queries)
    _check(shared, unshared, parts, len(workload.queries), window)
    count = len(workload.queries)
    measured = [
        {kind: _rate(_take(kind, index, count, window), parts, seconds) for kind in KINDS}
        for index in (shared, cast(QueryStem, unshared))
    ]
    return Rates(x, *measured)


def _take(kind: str, index: QueryStem, queries: int, window: int) -> Take:
    complete = Complete(queries, window)

    def keep_current(part: pa.RecordBatch, first: int) -> None:
        complete.insert(index.probe(query_view(part)), first, first + part.num_rows)

    takes: dict[str, Take] = {
        "PSoup-P": lambda part, _: list(pieces.probe(index, STREAM_ID, part)),
        "PSoup-C": keep_current,
        "matching alone": lambda part, _: index.probe(query_view(part)),
    }
    return takes[kind]


def _rate(take: Take, parts: Sequence[pa.RecordBatch], seconds: float) -> float:
    """The batches over and over, as if there were more; the first one is not counted."""
    first, count = 0, -1
    start = began = time.process_time()
    for part in cycle(parts):
        take(part, first)
        first += part.num_rows
        count += 1
        if count == 0:
            start = time.process_time()
        elif count >= _FEWEST and time.process_time() - began > seconds:
            return float(count * part.num_rows / (time.process_time() - start))
    raise AssertionError("there are no rows")


def _check(
    shared: QueryStem,
    unshared: Unshared,
    parts: Sequence[pa.RecordBatch],
    queries: int,
    window: int,
) -> None:
    """Asserts that both find the same matches, and that C answers with those in the window."""
    complete = Complete(queries, window)
    expected: list[list[Array]] = [[] for _ in range(queries)]
    first = 0
    for part in parts[: 2 + 2 * window // parts[0].num_rows]:
        view = query_view(part)
        matches = shared.probe(view)
        if first == 0:
            _assert_equal(matches, unshared.probe(view))
        for query, offsets in matches:
            expected[query].append(offsets.astype(np.int64) + first)
        complete.insert(matches, first, first + part.num_rows)
        first += part.num_rows
    for number, ids in enumerate(expected):
        every = np.concatenate([np.empty(0, np.int64), *ids])
        answer = complete.find(number)
        assert np.array_equal(every[every >= first - window], answer), f"query {number}"


def _assert_equal(shared: Matches, unshared: Matches) -> None:
    for (query, shared_rows), (unshared_query, unshared_rows) in zip(shared, unshared, strict=True):
        assert query == unshared_query and np.array_equal(shared_rows, unshared_rows), (
            f"query {query}"
        )
