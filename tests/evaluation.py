"""The vectorised evaluation of a query over rows in parts: what a server does, without one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from querystem.aggregate import finish, merge, partial
from querystem.equality import canonical, codes
from querystem.expressions import TRUE
from querystem.kernel import matches
from querystem.query import Query
from querystem.shape import shape
from results.choice import by_count, by_row, by_time
from results.newest import Run, newest_of_each
from results.region import Region
from results.window import CountWindow, RowWindow, TimeWindow


def evaluate_parts(
    query: Query, parts: Sequence[pa.RecordBatch], now: int, retain: int | None = None
) -> pa.RecordBatch:
    """`parts` are rows as the kernel sees them, at least one part, ids from 0 upwards."""
    return shape(query, chosen_rows(query, parts, now, retain))


def chosen_rows(
    query: Query, parts: Sequence[pa.RecordBatch], now: int, retain: int | None = None
) -> pa.RecordBatch:
    """What `shape` takes: the rows of the window that match, or their groups."""
    high = sum(part.num_rows for part in parts)
    oldest = None if retain is None else now - retain + 1
    region = _region(query, parts, now, oldest, high)
    chosen = [part.filter(pa.array(region.holds(*_moments(part)))) for part in parts]
    if isinstance(query.window, CountWindow) and query.window.partition_by:
        chosen = [_partitioned(query.window, pa.concat_batches(chosen))]
    if query.where != TRUE:
        chosen = [part.filter(pa.array(matches(query.where, part))) for part in chosen]
    if query.grouping is None:
        return pa.concat_batches(chosen)
    found = merge([partial(query.grouping, part) for part in chosen])
    return finish(query.grouping, found)


def _region(
    query: Query, parts: Sequence[pa.RecordBatch], now: int, oldest: int | None, high: int
) -> Region:
    match query.window:
        case TimeWindow() as window:
            return by_time(window, now, oldest, high)
        case RowWindow() as window:
            return by_row(window, now, oldest, high)
        case CountWindow() as window:
            everything = by_time(TimeWindow(), now, oldest, high)
            runs = [run for part in parts if (run := _run(part, everything)) is not None]
            waiting = sum(int((_moments(part)[0] > now).sum()) for part in parts)
            return by_count(window, everything, runs, high - waiting)


def _run(part: pa.RecordBatch, region: Region) -> Run | None:
    ts, ids = _moments(part)
    kept = region.holds(ts, ids)
    ts, ids = ts[kept], ids[kept]
    return Run(ts, ids, int(ts.min()), int(ts.max())) if len(ts) else None


def _partitioned(window: CountWindow, rows: pa.RecordBatch) -> pa.RecordBatch:
    keys = [canonical(rows.column(name)) for name in window.partition_by]
    code, _ = codes(keys, rows.num_rows)
    return rows.take(pa.array(newest_of_each(code, *_moments(rows), window.rows)))


def _moments(rows: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray]:
    return rows.column("ts").view(pa.int64()).to_numpy(), rows.column("row_id").to_numpy()
