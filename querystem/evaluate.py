"""Evaluation: the rows of a stream become the answer of a query. Server and client share it.

    rows of the stream
        │  rows_in_window    the window chooses, before WHERE does
        ▼
    chosen rows
        │  matching_rows     WHERE
        ▼
    matching rows
        │  rows_or_groups    GROUP BY and aggregates
        ▼
    rows, or groups
        │  arrange           HAVING, SELECT, DISTINCT, ORDER BY, OFFSET, LIMIT
        ▼
    answer

`answer_at` takes all steps. A server finds chosen and matching rows without looking at all of them,
and caches partial aggregates; a client that keeps base rows has matching rows already. Both take
the remaining steps from there.

Rows are batches with the columns that the query reads, `ts` and `row_id`. A function that takes
several batches takes them as one, whatever their number and their order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from datastem.equality import canonical, codes
from datastem.types import Kind
from querystem.aggregate import finish, merge, partial
from querystem.expressions import TRUE, Expression, at_instant, columns_of
from querystem.kernel import matches, values_of
from querystem.ordering import (
    Ranker,
    ascending,
    by,
    descending,
    first,
    leaders,
    sort,
    with_nulls,
)
from querystem.pace import spending
from querystem.query import Query, SortKey
from results.region import Region, count_region, row_region, time_region
from results.row_order import TimedRows, newest_of_each, time_order
from results.window import UNBOUNDED, CountWindow, RowWindow, TimeWindow, Window

# Units (`querystem.pace`) of a row that is sorted.
_SORT_UNITS = 100


def answer_at(
    query: Query, rows: Sequence[pa.RecordBatch], now: int, retain: int | None = None
) -> pa.RecordBatch:
    """Return the answer of a query at `now`, over all `rows` that a stream without a key ever had.

    There is at least one batch; row ids begin with 0, and none is missing. `retain` is how long the
    stream keeps its rows.
    """
    # The ts of the oldest row that is still retained, in microseconds.
    oldest = None if retain is None else now - retain + 1
    high = sum(part.num_rows for part in rows)
    chosen = rows_in_window(query.leg.window, rows, now, oldest, high)
    matching = matching_rows(query.leg.where, chosen)
    present = matching_rows(at_instant(query.leg.when, now), matching)
    return answer_of(query.at_instant(now), present)


def answer_of(query: Query, matching: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the answer of a query, given the rows that its window and its predicate have
    chosen."""
    return arrange(query, rows_or_groups(query, matching))


def matching_rows(where: Expression, rows: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return the rows for which a condition is true."""
    if where == TRUE:
        return list(rows)
    return [part.filter(pa.array(matches(where, part))) for part in rows]


def rows_or_groups(query: Query, matching: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the rows that HAVING, SELECT and ORDER BY are about: the matching rows, or their
    groups."""
    if query.grouping is None:
        return matching[0] if len(matching) == 1 else pa.concat_batches(matching)
    return finish(query.grouping, merge([partial(query.grouping, part) for part in matching]))


# ---- the window


def rows_in_window(
    window: Window, rows: Sequence[pa.RecordBatch], now: int, oldest: int | None, high: int
) -> list[pa.RecordBatch]:
    """Return the rows that a window holds at `now`, of a stream's rows with ids below `high`.

    Rows with a ts below `oldest` are not retained. If the window counts rows, `rows` must be all
    rows of the stream.
    """
    region = _region(window, rows, now, oldest, high)
    chosen = [part.filter(pa.array(region.holds(*_moments(part)))) for part in rows]
    # With partitions the region also holds rows that are too old for their partition.
    if isinstance(window, CountWindow) and window.partition_by:
        return [_newest_of_partitions(window, pa.concat_batches(chosen))]
    return chosen


def _region(
    window: Window, rows: Sequence[pa.RecordBatch], now: int, oldest: int | None, high: int
) -> Region:
    match window:
        case TimeWindow():
            return time_region(window, now, oldest, high)
        case RowWindow():
            return row_region(window, now, oldest, high)
        case CountWindow():
            past = time_region(UNBOUNDED, now, oldest, high)
            # Rows with a ts after NOW have an id, but do not count yet among the stream's rows.
            moments = [_moments(part) for part in rows]
            waiting = sum(int((ts > now).sum()) for ts, _ in moments)
            newest = [timed for ts, ids in moments if (timed := _timed(ts, ids, past)) is not None]
            return count_region(window, past, newest, high - waiting)


def _timed(ts: Int64s, ids: Int64s, past: Region) -> TimedRows | None:
    is_past = past.holds(ts, ids)
    ts, ids = ts[is_past], ids[is_past]
    return TimedRows(ts, ids, int(ts.min()), int(ts.max())) if len(ts) else None


def _newest_of_partitions(window: CountWindow, rows: pa.RecordBatch) -> pa.RecordBatch:
    code, _ = codes([canonical(rows.column(name)) for name in window.partition_by], rows.num_rows)
    return rows.take(pa.array(newest_of_each(code, *_moments(rows), window.rows)))


def _moments(rows: pa.RecordBatch) -> tuple[Int64s, Int64s]:
    return rows.column("ts").view(pa.int64()).to_numpy(), rows.column("row_id").to_numpy()


# ---- from rows or groups to the answer


def arrange(query: Query, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the answer, from matching rows in any order or from groups as `finish` gives them.

    If ORDER BY leaves rows equal, or is missing, rows are ordered by (ts, row_id) and groups by
    their keys. DISTINCT keeps the first of equal rows in that order. With a LIMIT only the rows it
    keeps are sorted.
    """
    chosen, places = _choose(query, rows, ties=not _is_decided(query))
    # Only the columns that outputs read are put in order; sort keys are not copied.
    return project(query, chosen if places is None else _take(_with_inputs(query, chosen), places))


def kept_rows(query: Query, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows, or groups, that make the rows of the answer, in its order but not
    projected."""
    return _take(*_choose(query, rows, ties=True))


def _choose(query: Query, rows: pa.RecordBatch, ties: bool) -> tuple[pa.RecordBatch, Int64s | None]:
    """Return rows, and the places of those that make the answer, in its order; None for all as they
    are.

    Without `ties` rows that ORDER BY leaves equal are in any order.
    """
    if query.plain:
        return rows, time_order(*_moments(rows))
    if query.having != TRUE:
        rows = rows.filter(pa.array(matches(query.having, rows)))
    # At most one row needs no order, and DISTINCT changes nothing.
    if rows.num_rows < 2 and not query.offset and query.limit != 0:
        return rows, None
    spending()(rows.num_rows * _SORT_UNITS)
    default = _default_order(query, rows)
    places = np.arange(rows.num_rows)
    if query.distinct:
        places = _distinct(project(query, rows), default, places)
    rankers = [ranker for key in query.order_by for ranker in _rankers(key, rows)]
    return rows, _cut(query, [*rankers, *default] if ties else rankers, places)


def _is_decided(query: Query) -> bool:
    """Return whether rows that ORDER BY leaves equal look the same, and all of them are kept. Zeros
    are equal and may look different."""
    if query.limit is not None or query.offset:
        return False
    ordered = {key.expression for key in query.order_by}
    expressions = [output.expression for output in query.outputs]
    return all(
        expression in ordered and expression.type.kind is not Kind.DOUBLE
        for expression in expressions
    )


def _with_inputs(query: Query, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows with the columns that the outputs are computed from; with any column if they
    are constants, because a batch without columns has no length."""
    read = {name for output in query.outputs for name in columns_of(output.expression)}
    names = [name for name in rows.schema.names if name in read]
    return rows.select(names or rows.schema.names[:1])


def project(query: Query, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the query's outputs, row for row."""
    columns = [values_of(output.expression, rows) for output in query.outputs]
    names = [output.name for output in query.outputs]
    return pa.RecordBatch.from_arrays(columns, names=names)


def _default_order(query: Query, rows: pa.RecordBatch) -> list[Ranker]:
    if query.grouping is not None:
        # `finish` returns groups by ascending keys, so a group's place is its rank.
        return [lambda places: places]
    ts, ids = _moments(rows)
    return [by(ts), by(ids)]


def _distinct(outputs: pa.RecordBatch, default: Sequence[Ranker], places: Int64s) -> Int64s:
    # Of each class of equal outputs the row that comes first in the default order stays.
    code, firsts = codes([canonical(column) for column in outputs.columns], len(places))
    return leaders(default, places, code, len(firsts))


def _rankers(key: SortKey, rows: pa.RecordBatch) -> list[Ranker]:
    values = values_of(key.expression, rows)
    rankers = ascending(values, key.expression.type)
    if key.descending:
        rankers = descending(rankers)
    return with_nulls(values, rankers, key.nulls_first)


def _cut(query: Query, rankers: Sequence[Ranker], places: Int64s) -> Int64s:
    if query.limit is None:
        return sort(rankers, places)[query.offset :]
    return first(rankers, places, query.offset + query.limit)[query.offset :]


def _take(rows: pa.RecordBatch, places: Int64s | None) -> pa.RecordBatch:
    if places is None:
        return rows
    # Rows that are in order already are not copied.
    if len(places) == rows.num_rows and (places == np.arange(len(places))).all():
        return rows
    return rows.take(pa.array(places))
