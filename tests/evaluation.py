"""The vectorised evaluation of a query over rows in parts: what a server does, without one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from datastem.equality import canonical, codes, key_digests
from datastem.history import History
from datastem.instants import SINCE_EVER
from datastem.keyed_rows import KeyedRows
from querystem.aggregate import finish, merge, partial
from querystem.expressions import TRUE
from querystem.kernel import matches
from querystem.query import Query
from querystem.shape import shape
from results.region import Region, count_region, row_region, time_region
from results.row_order import TimedRows, newest_of_each
from results.window import CountWindow, RowWindow, TimeWindow
from tests.oracle.keyed import Keyed


def evaluate_parts(
    query: Query,
    parts: Sequence[pa.RecordBatch],
    now: int,
    retain: int | None = None,
    keyed: Keyed | None = None,
) -> pa.RecordBatch:
    """`parts` are rows as the kernel sees them, at least one part, ids from 0 upwards.

    Those of a keyed stream have one column more, `_op`.
    """
    return evaluate_chosen(query, choose_rows(query, parts, now, retain, keyed))


def choose_rows(
    query: Query,
    parts: Sequence[pa.RecordBatch],
    now: int,
    retain: int | None = None,
    keyed: Keyed | None = None,
) -> list[pa.RecordBatch]:
    """The rows in the window."""
    high = sum(part.num_rows for part in parts)
    if keyed is not None:
        parts = _current(query, parts, now, retain, keyed)
        high, retain = high if keyed.high is None else keyed.high, None
    oldest = None if retain is None else now - retain + 1
    region = _region(query, parts, now, oldest, high)
    chosen = [part.filter(pa.array(region.holds(*_moments(part)))) for part in parts]
    if isinstance(query.window, CountWindow) and query.window.partition_by:
        chosen = [_partitioned(query.window, pa.concat_batches(chosen))]
    return chosen


def evaluate_chosen(query: Query, chosen: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return shape(query, matching_rows(query, chosen))


def matching_rows(query: Query, chosen: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """What `shape` takes: those of the rows that match, or their groups."""
    if query.where != TRUE:
        chosen = [part.filter(pa.array(matches(query.where, part))) for part in chosen]
    if query.grouping is None:
        return pa.concat_batches(chosen)
    found = merge([partial(query.grouping, part) for part in chosen])
    return finish(query.grouping, found)


def _current(
    query: Query, parts: Sequence[pa.RecordBatch], now: int, retain: int | None, keyed: Keyed
) -> list[pa.RecordBatch]:
    """The rows that are current, part by part."""
    history = History()
    for part in parts:
        ts, ids = _moments(part)
        keys = key_digests([part.column(name) for name in keyed.key])
        ops = pa.compute.equal(part.column("_op"), "delete").cast(pa.int8()).to_numpy()
        history = history.insert(KeyedRows(keys, ts, ids, ops), history.high + part.num_rows)
    high = history.high if keyed.high is None else keyed.high
    instant = query.window.present(now) if isinstance(query.window, TimeWindow) else now
    reached = now if keyed.reached is None else max(now, keyed.reached)
    cut = SINCE_EVER if retain is None else reached - retain
    found = history.current(high, instant, cut)
    return [
        part.filter(pa.array(np.isin(_moments(part)[1], found.ids))).drop_columns(["_op"])
        for part in parts
    ]


def _region(
    query: Query, parts: Sequence[pa.RecordBatch], now: int, oldest: int | None, high: int
) -> Region:
    match query.window:
        case TimeWindow() as window:
            return time_region(window, now, oldest, high)
        case RowWindow() as window:
            return row_region(window, now, oldest, high)
        case CountWindow() as window:
            everything = time_region(TimeWindow(), now, oldest, high)
            runs = [run for part in parts if (run := _run(part, everything)) is not None]
            waiting = sum(int((_moments(part)[0] > now).sum()) for part in parts)
            return count_region(window, everything, runs, high - waiting)


def _run(part: pa.RecordBatch, region: Region) -> TimedRows | None:
    ts, ids = _moments(part)
    kept = region.holds(ts, ids)
    ts, ids = ts[kept], ids[kept]
    return TimedRows(ts, ids, int(ts.min()), int(ts.max())) if len(ts) else None


def _partitioned(window: CountWindow, rows: pa.RecordBatch) -> pa.RecordBatch:
    keys = [canonical(rows.column(name)) for name in window.partition_by]
    code, _ = codes(keys, rows.num_rows)
    return rows.take(pa.array(newest_of_each(code, *_moments(rows), window.rows)))


def _moments(rows: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray]:
    return rows.column("ts").view(pa.int64()).to_numpy(), rows.column("row_id").to_numpy()
