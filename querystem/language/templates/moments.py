"""Conditions that depend on NOW, set apart from predicates, which are matched once for all NOW.

What a query over one stream says of NOW is left to its leg (`Leg.moment`). What a FROM of several
items says of NOW is decided after they are joined (`From.where`): so a join stays the same at every
NOW, and the engine can find its combinations ahead.
"""

from __future__ import annotations

from dataclasses import replace

from datastem.types import BOOLEAN
from querystem.expressions import Expression, Op, uses_now
from querystem.language.errors import NotYet
from querystem.language.normal_form.normal import call, negate
from querystem.language.normal_form.rewrite import all_of, conjuncts
from querystem.legs import Leg
from querystem.query import Item, Output, Query
from querystem.sources import From, LeftJoin, SetOperation
from querystem.visibility import Visibility, instants_of, visibility_of


def set_apart(query: Query) -> Query:
    """Return a query whose conditions are pushed down with those that depend on NOW apart."""
    source = query.source
    return replace(query, source=_leg(source) if isinstance(source, Leg) else _from(source))


def _leg(leg: Leg) -> Leg:
    if not uses_now(leg.where):
        return leg
    if leg.refresh is not None:
        raise NotYet(
            "a condition on NOW beside REFRESH in WINDOW(…)",
            None,
            hint="write the REFRESH at the end of the query",
        )
    where, moment = apart(leg.where)
    return replace(leg, where=where, moment=moment)


def apart(condition: Expression) -> tuple[Expression, Expression]:
    """Return the predicate that a condition over the rows of one stream leaves, and what it says of
    NOW."""
    factors = conjuncts(condition)
    when = all_of([factor for factor in factors if uses_now(factor)])
    remaining = [factor for factor in factors if not uses_now(factor)]
    # The predicate keeps out rows that no NOW shows, so that an interval always has its ends.
    for instant in instants_of(when):
        remaining.append(negate(call(Op.IS_NULL, (instant,), BOOLEAN)))
    return all_of(remaining), when


def timeless(query: Query) -> tuple[Query, Visibility | None]:
    """Return a query over several streams without its condition on NOW, and the intervals in which
    that shows its combinations; None if there is none. The instants that it compares with NOW
    become outputs beside the query's own, so that combinations have their columns."""
    source = query.source
    assert isinstance(source, From)
    if not uses_now(source.where):
        return query, None
    where, when = apart(source.where)
    instants = [Output(f"#{n}", each) for n, each in enumerate(instants_of(when))]
    bare = replace(query, source=replace(source, where=where), outputs=(*query.outputs, *instants))
    return bare, visibility_of(when)


def _from(source: From) -> From:
    items = tuple(map(_item, source.items))
    subqueries = tuple(
        replace(subquery, query=set_apart(subquery.query)) for subquery in source.subqueries
    )
    source = replace(source, items=items, subqueries=subqueries)
    if not uses_now(source.on):
        return source
    factors = conjuncts(source.on)
    late = [factor for factor in factors if uses_now(factor)]
    on = all_of([factor for factor in factors if not uses_now(factor)])
    return replace(source, on=on, where=all_of([source.where, *late]))


def _item(item: Item) -> Item:
    match item:
        case Leg():
            return _leg(item)
        case Query():
            return set_apart(item)
        case SetOperation(_, queries):
            return replace(item, queries=tuple(map(set_apart, queries)))
        case LeftJoin(left_side, right_side):
            return replace(item, left=_from(left_side), right=_item(right_side))
