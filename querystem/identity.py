"""Copies of answers: the id of each row, its place as bytes, and the base rows of an answer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from datastem.equality import canonical
from datastem.schema import StreamSchema
from datastem.types import TIMESTAMP
from querystem.evaluate import kept_rows, project
from querystem.expressions import ColumnRef
from querystem.grouping import key_name
from querystem.ordering import sort_keys
from querystem.query import Output, Query
from results.checksum import key_ids


@dataclass(frozen=True, slots=True)
class Identified:
    """The rows of an answer by ascending id, with the sort key that is each one's place."""

    ids: Int64s
    sort_keys: pa.Array
    outputs: pa.RecordBatch

    @property
    def unique(self) -> bool:
        """Whether no two rows have one id; two keys have by chance."""
        return bool((self.ids[1:] != self.ids[:-1]).all())


def slides(query: Query) -> bool:
    """Whether the answer consists of the window's rows, so that time alone tells what is in it."""
    limited = query.limit is not None or query.offset
    return query.grouping is None and not query.distinct and not limited


def identified(query: Query, rows: pa.RecordBatch) -> Identified:
    """The rows of the answer with their ids; `rows` are what `evaluate.arrange` takes."""
    kept = kept_rows(query, rows)
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
    """The query of the base rows: the matching rows with `ts` and the declared columns that the
    query reads, from which `evaluate.answer_of` makes its answer."""
    columns = [column for column in schema.columns if column.name in query.reads - {"ts"}]
    outputs = [Output(column.name, ColumnRef(column.name, column.type)) for column in columns]
    ts = Output("ts", ColumnRef("ts", TIMESTAMP))
    return Query(query.leg, (ts, *outputs))
