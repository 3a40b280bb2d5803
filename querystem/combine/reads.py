"""The columns that a query reads of each of its legs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from querystem.expressions import Expression, columns_of
from querystem.query import From, Item, LeftJoin, Leg, Query, SetOperation, item_column

_MOMENT = frozenset({"ts", "row_id"})


def leg_reads(query: Query) -> tuple[frozenset[str], ...]:
    """Return the columns that are read of each leg's rows, in the order of the legs; `ts` and
    `row_id` always are."""
    return tuple(_query_reads(query))


def from_reads(source: From, wanted: Collection[str]) -> frozenset[str]:
    """Return the columns that are read of the combinations of a From, where somebody wants some of
    them."""
    names = {*wanted, *columns_of(source.where), *lookup_reads(source.items)}
    for subquery in source.subqueries:
        names |= side_reads(0, subquery.on)
        names |= side_reads(0, subquery.operand) if subquery.operand is not None else set()
    return frozenset(names)


def lookup_reads(items: Sequence[Item]) -> frozenset[str]:
    """Return the columns that rows of keyed streams are looked up by."""
    looked_up = [item.as_of for item in items if isinstance(item, Leg) and item.as_of]
    by = [one for as_of in looked_up for one in (as_of.instant, *as_of.keys, as_of.row)]
    return frozenset(name for one in by if one is not None for name in columns_of(one))


def side_reads(
    number: int, *conditions: Expression, wanted: Collection[str] = ()
) -> frozenset[str]:
    """Return the columns of an item, by its own names, that conditions read or somebody wants."""
    prefix = item_column(number, "")
    names = {*wanted, *(name for one in conditions for name in columns_of(one))}
    return frozenset(name[len(prefix) :] for name in names if name.startswith(prefix))


def _query_reads(query: Query) -> Iterator[frozenset[str]]:
    if isinstance(query.source, Leg):
        yield query.reads | _MOMENT
    else:
        yield from _from_legs(query.source, query.reads)


def _from_legs(source: From, wanted: Collection[str]) -> Iterator[frozenset[str]]:
    names = from_reads(source, wanted)
    for number, item in enumerate(source.items):
        yield from _item_legs(item, side_reads(number, source.on, wanted=names))
    for subquery in source.subqueries:
        yield from _query_reads(subquery.query)


def _item_legs(item: Item, wanted: frozenset[str]) -> Iterator[frozenset[str]]:
    match item:
        case Leg():
            yield wanted | _MOMENT
        case Query():
            yield from _query_reads(item)
        case SetOperation(_, queries):
            for query in queries:
                yield from _query_reads(query)
        case LeftJoin(left, right, on):
            names = wanted | lookup_reads((right,))
            yield from _from_legs(left, side_reads(0, on, wanted=names))
            yield from _item_legs(right, side_reads(1, on, wanted=wanted))
