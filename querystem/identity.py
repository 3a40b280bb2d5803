"""The rows of an answer as a copy keeps them: each with an id, and with its place as bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from datastem.equality import canonical
from datastem.schema import StreamSchema
from datastem.types import TIMESTAMP
from querystem.expressions import ColumnRef, Expression, columns_of
from querystem.ordering import sort_keys
from querystem.query import Output, Query, key_name
from querystem.shape import chosen, project
from results.checksum import key_ids


@dataclass(frozen=True, slots=True)
class Identified:
    """`outputs` are the answer's rows, by ascending id."""

    ids: Int64s
    sort_keys: pa.Array
    outputs: pa.RecordBatch

    @property
    def unique(self) -> bool:
        """False only where two keys have one number by chance."""
        return bool((self.ids[1:] != self.ids[:-1]).all())


def slides(query: Query) -> bool:
    """Whether the answer consists of the window's rows, so that time alone can tell it."""
    limited = query.limit is not None or query.offset
    return query.grouping is None and not query.distinct and not limited


def identified(query: Query, rows: pa.RecordBatch) -> Identified:
    """`rows` as `shape` takes them."""
    kept = chosen(query, rows)
    outputs = project(query, kept)
    ids = _ids(query, kept, outputs)
    order = np.argsort(ids, kind="stable")
    places = pa.array(order)
    keys = sort_keys(query, kept, moments=True)
    return Identified(ids[order], keys.take(places), outputs.take(places))


def _ids(query: Query, kept: pa.RecordBatch, outputs: pa.RecordBatch) -> Int64s:
    if query.distinct:
        return key_ids([canonical(column) for column in outputs.columns], kept.num_rows)
    if query.grouping is not None:
        keys = [kept.column(key_name(number)) for number in range(len(query.grouping.keys))]
        return key_ids([canonical(key) for key in keys], kept.num_rows)
    ids: Int64s = kept.column("row_id").to_numpy()
    return ids


def base_query(query: Query, schema: StreamSchema) -> Query:
    """The rows the query is computed from: `ts`, and the declared columns it reads."""
    used = {name for one in _read(query) for name in columns_of(one)}
    names = [c for c in schema.columns if c.name in used and c.name != "ts"]
    columns = [Output(column.name, ColumnRef(column.name, column.type)) for column in names]
    ts = Output("ts", ColumnRef("ts", TIMESTAMP))
    return Query(query.stream, (ts, *columns), query.where, query.window)


def _read(query: Query) -> list[Expression]:
    if query.grouping is not None:
        arguments = [one.argument for one in query.grouping.aggregates if one.argument is not None]
        return [*query.grouping.keys, *arguments]
    outputs = [output.expression for output in query.outputs]
    return [*outputs, *[key.expression for key in query.order_by]]
