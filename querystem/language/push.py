"""Conditions are pushed down to the streams: a condition on the rows of one leg alone becomes part
of the leg's predicate, which is matched, kept and shared like that of a query over the stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from querystem.expressions import Expression, columns_of
from querystem.language.rewrite import (
    all_of,
    conjuncts,
    mapped,
    renamed,
    substituted,
    time_of,
    with_condition,
)
from querystem.query import From, Item, Leg, Query, SetOperation, item_column
from results.window import TimeWindow


def pushed_down(query: Query) -> Query:
    """The query with each condition as far down as its meaning allows.

    A FROM of one stream becomes the stream itself, with its own names of columns.
    """
    source = query.source
    if isinstance(source, Leg):
        return query
    items, rest = list(source.items), []
    for condition in conjuncts(source.on):
        number = _only_item(condition)
        taken = None if number is None else _taken(items[number], number, condition)
        if number is None or taken is None:
            rest.append(condition)
        else:
            items[number] = taken
    whole = replace(query, source=From(tuple(map(_within, items)), all_of(rest)))
    return _alone(whole) if len(items) == 1 and isinstance(items[0], Leg) else whole


def _only_item(condition: Expression) -> int | None:
    """The number of the item that all columns of a condition are of; None for several, or none."""
    numbers = {name.partition(".")[0] for name in columns_of(condition)}
    return int(numbers.pop()) if len(numbers) == 1 else None


def _taken(item: Item, number: int, condition: Expression) -> Item | None:
    """The item with a condition on its rows alone; None where it can't take one."""
    match item:
        case Leg():
            return replace(item, where=all_of((item.where, renamed(condition, number))))
        case SetOperation(operator, queries):
            names = [output.name for output in queries[0].outputs]
            narrowed = [_narrowed(query, number, condition, names) for query in queries]
            taken = tuple(query for query in narrowed if query is not None)
            return SetOperation(operator, taken) if len(taken) == len(queries) else None
        case Query():
            names = [output.name for output in item.outputs]
            return _narrowed(item, number, condition, names)
    return None


def _narrowed(
    query: Query, number: int, condition: Expression, names: Sequence[str]
) -> Query | None:
    """An item of FROM with a condition on its outputs, which have these names there, as one on the
    rows of its source. None for groups, and where the condition would choose before a limit does.
    """
    counted = query.over is not None and not isinstance(query.over, TimeWindow)
    if query.grouping is not None or query.limit is not None or query.offset or counted:
        return None
    columns = {item_column(number, "ts"): time_of(query.source)} if query.timed else {}
    for name, output in zip(names, query.outputs, strict=True):
        columns[item_column(number, name)] = output.expression
    return replace(query, source=with_condition(query.source, substituted(condition, columns)))


def _within(item: Item) -> Item:
    match item:
        case Query():
            return pushed_down(item)
        case SetOperation(_, queries):
            return replace(item, queries=tuple(pushed_down(query) for query in queries))
    return item


def _alone(query: Query) -> Query:
    """A query over FROM with one stream as a query over the stream."""
    source = query.source
    assert isinstance(source, From)
    (leg,) = source.items
    assert isinstance(leg, Leg)
    query = mapped(query, lambda expression: renamed(expression, 0))
    return replace(query, source=with_condition(leg, renamed(source.on, 0)))
