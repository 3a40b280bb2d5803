"""Every query by itself: no index over queries, nothing shared but the columns of the batch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from benchmarks.paper.base import columns_of
from benchmarks.paper.workload import Array, Query
from querystem.index.matches import Matches, RowLists


class Unshared:
    """Has the query SteM's `probe` and `probe_slices`. numpy over the whole batch, query by
    query."""

    def __init__(self, queries: list[Query]) -> None:
        self._queries = queries

    def probe(self, batch: pa.RecordBatch, first: int = 0) -> Matches:
        columns = columns_of(batch)
        places = [_places(query, columns) for query in self._queries]
        counts = np.array([len(rows_of_query) for rows_of_query in places], np.int64)
        nonempty = counts > 0
        rows = (np.concatenate(places) + first).astype(np.uint32)
        return Matches((RowLists(np.flatnonzero(nonempty), counts[nonempty], rows),))

    def probe_slices(
        self, batch: pa.RecordBatch, first: int = 0, *, lo: int, hi: int
    ) -> Iterator[Matches]:
        """Yield all matches at once. The range must hold every query."""
        assert lo == 0 and hi >= len(self._queries)
        yield self.probe(batch, first)


def _places(query: Query, columns: dict[str, Array]) -> Array:
    first, *remaining = query.factors
    mask = first.holds(columns[first.column])
    for factor in remaining:
        mask &= factor.holds(columns[factor.column])
    return np.flatnonzero(mask)
