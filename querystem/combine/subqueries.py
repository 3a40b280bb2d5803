"""Values of queries inside expressions: EXISTS, ANY, and scalar queries.

A query inside an expression is answered once. Its rows are then joined with the combinations they
are asked about: those that find a partner exist, or have a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s, Mask
from datastem.equality import canonical, codes
from datastem.types import BIGINT, BOOLEAN, TIMESTAMP
from querystem.aggregate import finish, partial
from querystem.combine.reads import side_reads
from querystem.combine.rows import ItemRows
from querystem.expressions import TRUE, Call, ColumnRef, Expression, Op, references_of
from querystem.grouping import Grouping
from querystem.kernel import values_of
from querystem.ordering import ascending, descending, leaders
from querystem.query import Query, SubQuery, SubQueryKind, item_column


class TwoSided(Protocol):
    """Whoever joins two batches, an outer and an inner one."""

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
    """True if a comparison is for some row; else NULL if it is for some; else false.

    A comparison is NULL if either side is.
    """
    operand, op, on = subquery.operand, subquery.op, subquery.on
    assert operand is not None and op is not None
    output = subquery.query.outputs[0]
    value = ColumnRef(item_column(1, output.name), output.expression.type)
    known = pairs.inner.columns[output.name].is_valid().to_numpy(zero_copy_only=False)
    deciding = pairs.among(np.flatnonzero(known))
    others = side_reads(1, on)
    if output.name not in others and len(deciding.inner):
        deciding = deciding.among(_deciding(deciding.inner, value, output.name, op, others))
    true = deciding.have(_and(on, Call(op, (operand, value), BOOLEAN)))
    unknown = pairs.values(operand).is_null().to_numpy(zero_copy_only=False) & pairs.have(on)
    unknown |= pairs.among(np.flatnonzero(~known)).have(on)
    return pa.array(true, mask=unknown & ~true)


def _deciding(
    inner: ItemRows, value: ColumnRef, name: str, op: Op, others: frozenset[str]
) -> Int64s:
    """Return the rows that decide whether any satisfies a comparison of its value.

    Of rows that are alike in the `others`, which choose among them, it is the greatest or the
    least; for <> both, which differ where any do.
    """
    column = inner.columns[name]
    every = np.arange(len(column))
    least = ascending(column, value.type)
    greatest = descending(least)
    code, firsts = np.zeros(len(column), np.int64), every[:1]
    if others:
        alike = [canonical(inner.columns[one]) for one in sorted(others)]
        code, firsts = codes(alike, len(column))
    match op:
        case Op.LT | Op.LE:
            return leaders(greatest, every, code, len(firsts))
        case Op.GT | Op.GE:
            return leaders(least, every, code, len(firsts))
        case Op.NE:
            ends = [leaders(one, every, code, len(firsts)) for one in (least, greatest)]
            return np.unique(np.concatenate(ends))
    return every


def _and(left: Expression, right: Expression) -> Expression:
    return right if left == TRUE else Call(Op.AND, (left, right), BOOLEAN)


# ---- scalar queries


def _scalar(subquery: SubQuery, pairs: _Pairs) -> pa.Array:
    """Return the query's value for each outer row: at most one of its rows goes with one."""
    name = subquery.query.outputs[0].name
    values = pa.concat_arrays([pairs.inner.columns[name], _of_nothing(subquery.query)])
    places = np.full(len(pairs.outer), len(pairs.inner))
    if subquery.on != TRUE:
        outer, inner = pairs.places(subquery.on)
        places[outer] = inner
    elif len(pairs.inner):
        places[:] = 0
    return values.take(pa.array(places))


def _of_nothing(query: Query) -> pa.Array:
    """Return the value of a scalar query over no rows: NULL, or what its aggregates then are."""
    output = query.outputs[0].expression
    if query.grouping is None:
        return pa.nulls(1, output.type.arrow)
    aggregates = Grouping((), query.grouping.aggregates)
    return values_of(output, finish(aggregates, partial(aggregates, _no_rows(aggregates))))


def _no_rows(grouping: Grouping) -> pa.RecordBatch:
    """Return an empty batch with the columns that a grouping reads."""
    read = {"ts": TIMESTAMP, "row_id": BIGINT}
    for aggregate in grouping.aggregates:
        if aggregate.argument is not None:
            read |= {one.name: one.type for one in references_of(aggregate.argument)}
    arrays = [pa.array([], type_.arrow) for type_ in read.values()]
    return pa.RecordBatch.from_arrays(arrays, names=list(read))
