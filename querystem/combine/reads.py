"""The columns that a query reads of each of its legs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from querystem.expressions import Expression, columns_of
from querystem.legs import Leg
from querystem.query import Item, Query
from querystem.sources import From, LeftJoin, SetOperation, item_column

_MOMENT = frozenset({"ts", "row_id"})


def leg_reads(query: Query) -> tuple[frozenset[str], ...]:
    """Return the columns that are read of each leg's rows, in the order of the legs; `ts` and
    `row_id` always are."""
    return tuple(_query_reads(query))


def from_reads(source: From, reads: Collection[str]) -> frozenset[str]:
    """Return the columns of a From's combinations that have to be computed, if the clauses above
    read some of them."""
    names = {*reads, *columns_of(source.where), *lookup_reads(source.items)}
    for subquery in source.subqueries:
        names |= side_reads(0, subquery.on)
        names |= side_reads(0, subquery.operand) if subquery.operand is not None else set()
    return frozenset(names)


def lookup_reads(items: Sequence[Item]) -> frozenset[str]:
    """Return the columns that rows of keyed streams are looked up by."""
    looked_up = [item.as_of for item in items if isinstance(item, Leg) and item.as_of]
    by = [
        expression for as_of in looked_up for expression in (as_of.instant, *as_of.keys, as_of.row)
    ]
    return frozenset(
        name for expression in by if expression is not None for name in columns_of(expression)
    )


def side_reads(number: int, *conditions: Expression, reads: Collection[str] = ()) -> frozenset[str]:
    """Return the columns of an item, by its own names, that conditions or the clauses above read.
    Columns in `reads` are named as those of a From."""
    prefix = item_column(number, "")
    names = {*reads, *(name for condition in conditions for name in columns_of(condition))}
    return frozenset(name[len(prefix) :] for name in names if name.startswith(prefix))


def _query_reads(query: Query) -> Iterator[frozenset[str]]:
    if isinstance(query.source, Leg):
        yield query.reads | _MOMENT
    else:
        yield from _from_legs(query.source, query.reads)


def _from_legs(source: From, reads: Collection[str]) -> Iterator[frozenset[str]]:
    names = from_reads(source, reads).union(columns_of(source.on))
    # Items come before subqueries: `Combining` takes the legs from one iterator in this order.
    for number, item in enumerate(source.items):
        yield from _item_legs(item, side_reads(number, reads=names))
    for subquery in source.subqueries:
        yield from _query_reads(subquery.query)


def _item_legs(item: Item, reads: frozenset[str]) -> Iterator[frozenset[str]]:
    match item:
        case Leg():
            yield reads | _MOMENT
        case Query():
            yield from _query_reads(item)
        case SetOperation(_, queries):
            for query in queries:
                yield from _query_reads(query)
        case LeftJoin(left_side, right_side, on):
            # The left side is read for the join, and for what rows on the right are looked up by.
            names = reads | lookup_reads((right_side,))
            yield from _from_legs(left_side, side_reads(0, on, reads=names))
            yield from _item_legs(right_side, side_reads(1, on, reads=reads))
