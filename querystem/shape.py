"""From the rows a query has chosen, or its groups, to its answer: HAVING, SELECT, DISTINCT,
ORDER BY, OFFSET and LIMIT.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from datastem.equality import canonical, codes
from querystem.expressions import TRUE
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
from results.row_order import time_order

# Units (`querystem.pace`) of a row that is sorted.
_SORT_UNITS = 100


def shape(query: Query, rows: pa.RecordBatch) -> pa.RecordBatch:
    """`rows` are chosen rows in any order, with `ts` and `row_id`, or groups from `finish`.

    Where ORDER BY leaves rows equal, or there is none, they are by (ts, row_id), groups by their
    keys. DISTINCT keeps the first of equal rows in that order. With a LIMIT only the rows it keeps
    are sorted.
    """
    return project(query, chosen(query, rows))


def chosen(query: Query, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Those of the rows, or groups, that make the answer's rows, in its order."""
    if query.plain:
        return _in_order(rows)
    if query.having != TRUE:
        rows = rows.filter(pa.array(matches(query.having, rows)))
    if rows.num_rows < 2 and not query.offset and query.limit != 0:
        return rows
    spending()(rows.num_rows * _SORT_UNITS)
    default = _default(query, rows)
    places = np.arange(rows.num_rows)
    if query.distinct:
        places = _distinct(project(query, rows), default, places)
    rankers = [*(one for key in query.order_by for one in _rankers(key, rows)), *default]
    return _taken(rows, _cut(query, rankers, places))


def _in_order(rows: pa.RecordBatch) -> pa.RecordBatch:
    ts = rows.column("ts").view(pa.int64()).to_numpy()
    places = time_order(ts, rows.column("row_id").to_numpy())
    return rows if places is None else rows.take(pa.array(places))


def project(query: Query, rows: pa.RecordBatch) -> pa.RecordBatch:
    """The query's outputs, row for row."""
    columns = [values_of(output.expression, rows) for output in query.outputs]
    names = [output.name for output in query.outputs]
    return pa.RecordBatch.from_arrays(columns, names=names)


def _default(query: Query, rows: pa.RecordBatch) -> list[Ranker]:
    if query.grouping is not None:
        return [lambda places: places]
    ts = rows.column("ts").view(pa.int64()).to_numpy()
    return [by(ts), by(rows.column("row_id").to_numpy())]


def _distinct(outputs: pa.RecordBatch, default: Sequence[Ranker], places: Int64s) -> Int64s:
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


def _taken(rows: pa.RecordBatch, places: Int64s) -> pa.RecordBatch:
    if len(places) == rows.num_rows and (places == np.arange(len(places))).all():
        return rows
    return rows.take(pa.array(places))
