"""Values of queries inside expressions: EXISTS, ANY, and scalar queries.

A query inside an expression is answered once. Its rows are then joined with the combinations of the
query around it: a combination with a partner has a value, or EXISTS is true for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s, Mask
from datastem.equality import canonical, codes
from datastem.types import BIGINT, BOOLEAN, TIMESTAMP
from querystem.aggregate import finish, merge, partial
from querystem.combine.reads import side_reads
from querystem.combine.rows import ItemRows, place_of
from querystem.expressions import TRUE, Call, ColumnRef, Expression, Op, references_of
from querystem.grouping import Grouping, key_name
from querystem.kernel import values_of
from querystem.ordering import ascending, descending, leaders
from querystem.sources import SubQuery, SubQueryKind, item_column


class TwoSided(Protocol):
    """The join of two batches, an outer and an inner one."""

    def pairs(self, sides: Sequence[pa.RecordBatch], on: Expression) -> Sequence[Int64s]:
        """Return the places of the rows of all pairs for which `on` is true."""

    def partnered(self, sides: Sequence[pa.RecordBatch], on: Expression) -> Mask:
        """Return a mask of the outer rows: true for those that are in such a pair."""


def value_of(subquery: SubQuery, outer: ItemRows, inner: ItemRows, joins: TwoSided) -> pa.Array:
    """Return the value of a query inside an expression for each row of `outer`; `inner` are its
    rows."""
    pairs = _Pairs(outer, inner, joins)
    match subquery.kind:
        case SubQueryKind.EXISTS:
            return pa.array(pairs.have(subquery.on))
        case SubQueryKind.ANY:
            return _any(subquery, pairs)
        case SubQueryKind.SCALAR if subquery.grouping is not None:
            assert subquery.value is not None
            return _aggregated(subquery.grouping, subquery.value, subquery.on, pairs)
        case SubQueryKind.SCALAR:
            return _scalar(subquery, pairs)


class _Pairs:
    """Pairs of an outer and an inner row."""

    def __init__(self, outer: ItemRows, inner: ItemRows, joins: TwoSided) -> None:
        self.outer, self.inner = outer, inner
        self._joins = joins

    def places(self, on: Expression) -> Sequence[Int64s]:
        """Return the places of the rows of all pairs for which `on` is true."""
        return self._joins.pairs(self._sides(on), on)

    def have(self, on: Expression) -> Mask:
        """Return a mask of the outer rows: true for those that are in a pair."""
        # Without a condition, or without inner rows, the answer is the same for all outer rows.
        if on == TRUE or not len(self.inner):
            return np.full(len(self.outer), bool(len(self.inner)))
        return self._joins.partnered(self._sides(on), on)

    def among(self, places: Int64s) -> _Pairs:
        """Return the pairs with some of the inner rows."""
        return _Pairs(self.outer, self.inner.take(places), self._joins)

    def _sides(self, on: Expression) -> list[pa.RecordBatch]:
        """Return the columns of both sides that a condition reads."""
        return [
            rows.batch(number, side_reads(number, on))
            for number, rows in enumerate((self.outer, self.inner))
        ]

    def values(self, expression: Expression) -> pa.Array:
        """Return the values of an expression over the outer rows."""
        return values_of(expression, self.outer.batch(0, side_reads(0, expression)))


# ---- ANY


def _any(subquery: SubQuery, pairs: _Pairs) -> pa.Array:
    """Return true if a comparison is true for some row; else NULL if it is NULL for some; else
    false.

    A comparison is NULL if either side is.
    """
    operand, op, on = subquery.operand, subquery.op, subquery.on
    assert operand is not None and op is not None
    output = subquery.query.outputs[0]
    value = ColumnRef(item_column(1, output.name), output.expression.type)
    # NULL values can't make a comparison true; they only make it unknown, so they are set apart.
    is_valid = pairs.inner.columns[output.name].is_valid().to_numpy(zero_copy_only=False)
    deciding = pairs.among(np.flatnonzero(is_valid))
    choosing = side_reads(1, on)
    # If the condition reads the value itself, rows with equal `choosing` columns are not
    # interchangeable, and none may be dropped.
    if output.name not in choosing and len(deciding.inner):
        deciding = deciding.among(_deciding(deciding.inner, value, output.name, op, choosing))
    true = deciding.have(_and(on, Call(op, (operand, value), BOOLEAN)))
    # A NULL operand is unknown against any row that ON allows, and so is a NULL value.
    unknown = pairs.values(operand).is_null().to_numpy(zero_copy_only=False) & pairs.have(on)
    unknown |= pairs.among(np.flatnonzero(~is_valid)).have(on)
    return pa.array(true, mask=unknown & ~true)


def _deciding(
    inner: ItemRows, value: ColumnRef, name: str, op: Op, choosing: frozenset[str]
) -> Int64s:
    """Return the rows that decide whether any satisfies a comparison of its value.

    Of rows that are equal in the `choosing` columns, which conditions read, the greatest or the
    least decides; for <> both, since they differ if any do.
    """
    column = inner.columns[name]
    every = np.arange(len(column))
    least = ascending(column, value.type)
    greatest = descending(least)
    # Without conditions all rows are one class; the caller ensures that there is a row.
    code, firsts = np.zeros(len(column), np.int64), every[:1]
    if choosing:
        columns = [canonical(inner.columns[column_name]) for column_name in sorted(choosing)]
        code, firsts = codes(columns, len(column))
    match op:
        case Op.LT | Op.LE:
            return leaders(greatest, every, code, len(firsts))
        case Op.GT | Op.GE:
            return leaders(least, every, code, len(firsts))
        case Op.NE:
            ends = [leaders(rankers, every, code, len(firsts)) for rankers in (least, greatest)]
            return np.unique(np.concatenate(ends))
    return every


def _and(first: Expression, second: Expression) -> Expression:
    return second if first == TRUE else Call(Op.AND, (first, second), BOOLEAN)


# ---- scalar queries


def _scalar(subquery: SubQuery, pairs: _Pairs) -> pa.Array:
    """Return the query's value for each outer row: that of the first of its rows that goes with
    it."""
    name = subquery.query.outputs[0].name
    # The value of no row is appended, at place `len(inner)`; outer rows without a partner keep it.
    values = pa.concat_arrays([pairs.inner.columns[name], _of_nothing(subquery)])
    places = np.full(len(pairs.outer), len(pairs.inner))
    if subquery.on != TRUE:
        outer, inner = pairs.places(subquery.on)
        np.minimum.at(places, outer, inner)
    elif len(pairs.inner):
        places[:] = 0
    return values.take(pa.array(places))


def _aggregated(grouping: Grouping, value: Expression, on: Expression, pairs: _Pairs) -> pa.Array:
    """Return an expression over the aggregates of the inner rows that go with each outer row."""
    outer, inner = pairs.places(on)
    by_outer = Grouping((ColumnRef(_OUTER_ROW, BIGINT),), grouping.aggregates)
    arguments = [a.argument for a in grouping.aggregates if a.argument is not None]
    order = place_of(pairs.inner.parts, len(pairs.inner))
    # Slices bound the memory: a pair takes a value of each column only while it is aggregated.
    summaries = [
        partial(
            by_outer,
            _paired(
                pairs.inner,
                outer[first : first + _SLICE_PAIRS],
                inner[first : first + _SLICE_PAIRS],
                order,
                side_reads(1, *arguments),
            ),
        )
        for first in range(0, max(len(outer), 1), _SLICE_PAIRS)
    ]
    groups = finish(by_outer, merge(summaries))
    # Outer rows without a partner have the value of no rows, which is appended.
    values = pa.concat_arrays([values_of(value, groups), _of_no_rows(grouping, value)])
    places = np.full(len(pairs.outer), groups.num_rows)
    places[groups.column(key_name(0)).to_numpy()] = np.arange(groups.num_rows)
    return values.take(pa.array(places))


_OUTER_ROW = "$outer_row"
_SLICE_PAIRS = 1 << 18


def _paired(
    rows: ItemRows, outer: Int64s, inner: Int64s, order: Int64s, names: frozenset[str]
) -> pa.RecordBatch:
    """Return the inner rows of some pairs, with the place of the outer row of each. `order` numbers
    inner rows of one ts."""
    taken = rows.take(inner, names)
    columns = {
        _OUTER_ROW: pa.array(outer),
        **{item_column(1, name): taken.columns[name] for name in names},
        "ts": pa.array(taken.ts).view(TIMESTAMP.arrow),
        "row_id": pa.array(order[inner]),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _of_nothing(subquery: SubQuery) -> pa.Array:
    """Return the value of a scalar query for an outer row without a row of it: NULL. If aggregates
    are grouped by what conditions equate with the outer row, it is what they are over no rows."""
    query = subquery.query
    output = query.outputs[0].expression
    if subquery.on == TRUE or query.grouping is None or query.limit is not None:
        return pa.nulls(1, output.type.arrow)
    return _of_no_rows(query.grouping, output)


def _of_no_rows(grouping: Grouping, value: Expression) -> pa.Array:
    # Without keys there is one group even of no rows, so COUNT gives 0 here and not NULL.
    aggregates = Grouping((), grouping.aggregates)
    return values_of(value, finish(aggregates, partial(aggregates, _no_rows(aggregates))))


def _no_rows(grouping: Grouping) -> pa.RecordBatch:
    """Return an empty batch with the columns that a grouping reads."""
    read = {"ts": TIMESTAMP, "row_id": BIGINT}
    for aggregate in grouping.aggregates:
        if aggregate.argument is not None:
            read |= {
                reference.name: reference.type for reference in references_of(aggregate.argument)
            }
    arrays = [pa.array([], type_.arrow) for type_ in read.values()]
    return pa.RecordBatch.from_arrays(arrays, names=list(read))
