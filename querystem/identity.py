"""Copies of answers: the id of each row, and its place as bytes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from datastem.equality import canonical
from querystem.evaluate import kept_rows, project
from querystem.expressions import TRUE, uses_now
from querystem.grouping import key_name
from querystem.legs import Leg
from querystem.ordering import sort_keys
from querystem.query import Item, Query, Source
from querystem.sources import From, LeftJoin, SetOperation, SetOperator, part_names
from querystem.visibility import visibility_of
from results.checksum import key_ids
from results.window import TimeWindow


@dataclass(frozen=True, slots=True)
class Identified:
    """The rows of an answer by ascending id, each with the sort key of its place. Rows that are
    neither groups nor DISTINCT also have the `parts` that name them."""

    ids: Int64s
    sort_keys: pa.Array
    outputs: pa.RecordBatch
    parts: tuple[Int64s, ...] = ()

    @property
    def unique(self) -> bool:
        """Whether no two rows have the same id; the hashes of two keys may collide."""
        return bool((self.ids[1:] != self.ids[:-1]).all())


def slides(query: Query) -> bool:
    """Return whether the answer consists of rows of legs or their combinations, so that windows and
    intervals of visibility alone decide what is in it."""
    return _is_plain(query) and (_is_visible(query.source) or _combines(query.source))


def _is_plain(query: Query) -> bool:
    limited = query.limit is not None or query.offset
    return query.grouping is None and not query.distinct and not limited and not query.computes_now


def _is_visible(source: Source) -> bool:
    """Return whether conditions on NOW give each row, or combination of rows, of windows of time an
    interval."""
    if isinstance(source, From):
        return visibility_of(source.where) is not None and _combines(replace(source, where=TRUE))
    by_time = source.as_of is None and isinstance(source.window, TimeWindow)
    return by_time and visibility_of(source.when) is not None


def _combines(source: Source | Item) -> bool:
    match source:
        case Leg():
            return source.as_of is None and source.when == TRUE
        case Query():
            return _is_plain(source) and _combines(source.source)
        case From(items, on, subqueries, where):
            timeless = not subqueries and not uses_now(on, where)
            return bool(items) and timeless and all(map(_combines, items))
        case SetOperation(operator, queries):
            return operator is SetOperator.UNION_ALL and all(map(_combines, queries))
        case LeftJoin():
            return False


def parts_of(query: Query, rows: pa.RecordBatch) -> tuple[Int64s, ...]:
    """Return the numbers that name each row of a query's source: the row ids of the legs in it."""
    if isinstance(query.source, Leg):
        return (rows.column("row_id").to_numpy(),)
    return tuple(rows.column(name).to_numpy() for name in part_names(rows.schema.names))


def identified(query: Query, rows: pa.RecordBatch) -> Identified:
    """Return the rows of the answer with their ids; `rows` are what `evaluate.arrange` takes."""
    answer_rows = kept_rows(query, rows)
    outputs = project(query, answer_rows)
    ids = row_ids(query, answer_rows, outputs)
    order = np.argsort(ids, kind="stable")
    places = pa.array(order)
    keys = sort_keys(query, answer_rows, moments=True)
    named = query.grouping is not None or query.distinct
    parts = () if named else tuple(part[order] for part in parts_of(query, answer_rows))
    return Identified(ids[order], keys.take(places), outputs.take(places), parts)


def row_ids(query: Query, rows: pa.RecordBatch, outputs: pa.RecordBatch) -> Int64s:
    """Return an id for each row of an answer: a row's own, or a hash of what names a group, a
    distinct row or a combination."""
    if query.distinct:
        return key_ids([canonical(column) for column in outputs.columns], rows.num_rows)
    if query.grouping is not None:
        keys = [rows.column(key_name(number)) for number in range(len(query.grouping.keys))]
        return key_ids([canonical(key) for key in keys], rows.num_rows)
    parts = parts_of(query, rows)
    if isinstance(query.source, Leg):
        return parts[0]
    return key_ids([pa.array(part) for part in parts], rows.num_rows)
