"""Base rows: the rows that an answer is computed from, for clients that compute it themselves.

Of a query over one stream they are the rows that its window and WHERE choose. Of any other query
they are the rows of all its legs, as one UNION ALL: each row says of which leg it is. Legs share a
column of one label and type; it is NULL in rows of legs that have or read no such column.

What remains is what the store does with chosen rows: joins, groups, HAVING, SELECT, DISTINCT, ORDER
BY, LIMIT. So there are no base rows of what depends on more than the rows that are there now.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from datastem.instants import SINCE_EVER
from datastem.schema import Column, StreamSchema
from datastem.types import BIGINT, TIMESTAMP, Type
from querystem.combine import Combining, leg_reads
from querystem.evaluate import answer_of
from querystem.expressions import TRUE, Call, ColumnRef, Expression, Literal, Op
from querystem.identity import slides
from querystem.join import JoinRoom
from querystem.join.factors import items_of, join_factors
from querystem.legs import Leg
from querystem.query import Item, Output, Query, Source
from querystem.sources import (
    From,
    LeftJoin,
    SetOperation,
    SetOperator,
    SubQuery,
    SubQueryKind,
    item_column,
)
from results.window import depends_on_now

# The column that says of which leg of the query a base row is; no stream can declare such a name.
LEG = "$leg"
_SYSTEM = {LEG: BIGINT, "row_id": BIGINT, "ts": TIMESTAMP}


def combines(query: Query) -> bool:
    """Return whether base rows of a query are those of its legs, and not rows of its answer or of
    one stream."""
    return not isinstance(query.source, Leg) and (query.stays or not slides(query))


def base_query(query: Query, schemas: Sequence[StreamSchema]) -> Query:
    """Return the query of the base rows; `schemas` are those of the streams of the query's legs.
    Its outputs have the labels of the columns."""
    if not isinstance(query.source, Leg):
        return LegBaseRows.of(query, schemas).query
    (schema,) = schemas
    columns = [column for column in schema.columns if column.name in query.reads - {"ts"}]
    outputs = [Output(column.label, ColumnRef(column.name, column.type)) for column in columns]
    ts = Output("ts", ColumnRef("ts", TIMESTAMP))
    return Query(replace(query.leg, refresh=None), (ts, *outputs))


# ---- the rows of several legs


@dataclass(frozen=True)
class LegBaseRows:
    """The base rows of all legs of `whole`: `query` returns them. `columns` has, for each leg, the
    name of the output for each column of its stream that `whole` reads."""

    whole: Query
    query: Query
    columns: tuple[Mapping[str, str], ...]

    @classmethod
    def of(cls, whole: Query, schemas: Sequence[StreamSchema]) -> LegBaseRows:
        """Return the base rows of a query; `schemas` are those of the streams of its legs."""
        legs = [
            [column for column in schema.columns if column.name in reads]
            for schema, reads in zip(schemas, leg_reads(whole), strict=True)
        ]
        names = _output_names(column for leg in legs for column in leg)
        columns = tuple({c.name: names[c.label, c.type] for c in leg} for leg in legs)
        types = _SYSTEM | {name: type_ for (_, type_), name in names.items()}
        branches = tuple(
            _branch(leg, {LEG: Literal(number, BIGINT)}, columns[number], types)
            for number, leg in enumerate(whole.legs)
        )
        item = branches[0] if len(branches) == 1 else SetOperation(SetOperator.UNION_ALL, branches)
        outputs = (
            Output(name, ColumnRef(item_column(0, name), type_)) for name, type_ in types.items()
        )
        return cls(whole, Query(From((item,)), tuple(outputs)), columns)

    def answer(
        self, rows: pa.RecordBatch, now: int | None, most_pairs: int, room: JoinRoom
    ) -> pa.RecordBatch:
        """Return the answer at `now` from the base rows that are visible then, in any order.

        Its joins look at `most_pairs` pairs of rows, and take the memory of `room`, at most. Raise
        TooManyPairs, TooManyBytes.
        """
        combining = Combining(SINCE_EVER if now is None else now, most_pairs, [], room)
        return answer_of(self.whole, [combining.source_rows(self.whole, self._legs(rows))])

    def _legs(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows of each leg, by ascending id."""
        numbers = rows.column(LEG).to_numpy()
        order = np.lexsort((rows.column("row_id").to_numpy(), numbers))
        # Leg n has the rows order[bounds[n]:bounds[n + 1]].
        bounds = np.searchsorted(numbers[order], np.arange(len(self.columns) + 1))
        for number, columns in enumerate(self.columns):
            places = pa.array(order[bounds[number] : bounds[number + 1]])
            outputs = {"ts": "ts", "row_id": "row_id", **columns}
            arrays = [rows.column(name).take(places) for name in outputs.values()]
            yield pa.RecordBatch.from_arrays(arrays, names=list(outputs))


def _output_names(columns: Iterable[Column]) -> dict[tuple[str, Type], str]:
    """Return the name of the output for each label and type of some columns."""
    names: dict[tuple[str, Type], str] = {}
    for column in columns:
        is_shared = column.label in names.values()
        name = f"${column.type} {column.label}" if is_shared else column.label
        names.setdefault((column.label, column.type), name)
    return names


def _branch(
    leg: Leg,
    constants: Mapping[str, Expression],
    columns: Mapping[str, str],
    types: Mapping[str, Type],
) -> Query:
    """Return the query of the base rows of one leg, with NULL for the columns of the others."""
    outputs = {"row_id": "row_id", "ts": "ts", **columns}
    values = {output: ColumnRef(name, types[output]) for name, output in outputs.items()}
    nulls = {name: Literal(None, type_) for name, type_ in types.items()}
    return Query(leg, tuple(map(Output, types, ({**nulls, **values, **constants}).values())))


# ---- what can't be computed


def obstacle(query: Query) -> str:
    """Return why the answer of a query can't be computed from the rows of its legs; empty if it
    can."""
    if query.stays:
        return "it has REFRESH, and rows of its last refresh point may have left since"
    if any(leg.as_of is not None for leg in query.legs):
        return "AS OF looks up rows that are no longer current"
    if any(leg.valid is not None for leg in query.legs):
        return "a stream with VALID shows rows by their validity"
    if query.uses_now:
        return "it computes with NOW"
    if any(map(operator.ne, query.moving, (depends_on_now(leg.window) for leg in query.legs))):
        return "NOW moves a window over a query in FROM, and none of the streams in that query"
    if not _joins_by_equality(query):
        return "it joins by other conditions than equality"
    return ""


def _joins_by_equality(source: Source | Item) -> bool:
    """Return whether every join in a source compares columns of its items for equality."""
    match source:
        case Leg():
            return True
        case Query():
            return _joins_by_equality(source.source)
        case SetOperation(_, queries):
            return all(map(_joins_by_equality, queries))
        case LeftJoin(left, right, on):
            return _is_connected((left, right), on) and all(map(_joins_by_equality, (left, right)))
        case From(items, on, subqueries):
            inner = (*items, *(subquery.query for subquery in subqueries))
            joined = _is_connected(items, on) and all(map(_compares_by_equality, subqueries))
            return joined and all(map(_joins_by_equality, inner))


def _is_connected(items: Sequence[Source | Item], on: Expression) -> bool:
    """Return whether equalities lead from any item to all others; an item of at most one row needs
    none."""
    reached = {number for number, item in enumerate(items) if _has_one_row(item)}
    reached |= {next((number for number in range(len(items)) if number not in reached), 0)}
    sides = [side for pair in _equalities(on) for side in (pair, pair[::-1])]
    grows = True
    while grows:
        neighbours = {number for side, other in sides if side <= reached for number in other}
        grows, reached = not neighbours <= reached, reached | neighbours
    return len(reached) == len(items)


def _equalities(on: Expression) -> Iterator[tuple[frozenset[int], frozenset[int]]]:
    """Yield the items on both sides of each equality that a condition demands."""
    for factor in join_factors(on):
        condition = factor.condition
        if isinstance(condition, Call) and condition.op is Op.EQ:
            left, right = map(items_of, condition.args)
            if left and right and left.isdisjoint(right):
                yield left, right


def _has_one_row(item: Source | Item) -> bool:
    if not isinstance(item, Query):
        return False
    grouped = item.grouping is not None and not item.grouping.keys
    return grouped or (item.limit is not None and item.limit < 2)


def _compares_by_equality(subquery: SubQuery) -> bool:
    if subquery.kind is SubQueryKind.ANY and subquery.op is Op.EQ:
        return True
    return subquery.on == TRUE or any(True for _ in _equalities(subquery.on))
