"""Conditions, pushed down to the streams: a condition on the rows of one leg alone becomes part of
the leg's predicate, which is matched and shared like that of a query over the stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from querystem.expressions import ColumnRef, Expression, columns_of, uses_now
from querystem.language.normal_form.rewrite import (
    all_of,
    as_item,
    conjuncts,
    extent_of,
    renamed,
    substituted,
    time_of,
    with_condition,
)
from querystem.language.queries.lookups import with_keys
from querystem.language.templates.moments import set_apart
from querystem.legs import Leg
from querystem.query import Item, Query
from querystem.sources import From, LeftJoin, SetOperation, SubQuery, item_column, subquery_column
from results.window import TimeWindow


def pushed_down(query: Query) -> Query:
    """Return the query with each condition as far down as its meaning allows, and those that depend
    on NOW apart.

    A FROM of one stream becomes the stream itself, with its own names of columns.
    """
    return set_apart(_pushed_query(query))


def _pushed_query(query: Query) -> Query:
    source = query.source
    if isinstance(source, Leg):
        return query
    pushed = replace(query, source=_pushed_from(source))
    if source.subqueries:
        return with_shared_queries(pushed)
    only = source.items[0] if len(source.items) == 1 else None
    return _alone(pushed) if isinstance(only, Leg) and _takes(only, source.on) else pushed


def _pushed_from(source: From) -> From:
    items, remaining = list(source.items), []
    for condition in conjuncts(source.on):
        # A condition on NOW stays above a join, which is then the same at every NOW.
        late = len(items) > 1 and uses_now(condition)
        number = None if late else _only_item(condition)
        narrowed = None if number is None else _narrow_item(items[number], number, condition)
        if number is None or narrowed is None:
            remaining.append(condition)
        else:
            items[number] = narrowed
    subqueries = [
        replace(subquery, query=_pushed_query(subquery.query)) for subquery in source.subqueries
    ]
    on = all_of(remaining)
    return replace(
        source,
        items=tuple(_within(item, number, on) for number, item in enumerate(items)),
        on=on,
        subqueries=tuple(subqueries),
    )


def _only_item(condition: Expression) -> int | None:
    """Return the number of the item that all columns of a condition are of; None for several, or
    none."""
    numbers = {name.partition(".")[0] for name in columns_of(condition)}
    return int(numbers.pop()) if len(numbers) == 1 else None


def _narrow_item(item: Item, number: int, condition: Expression) -> Item | None:
    """Return the item with a condition on its rows alone; None if it can't take one."""
    if not _takes(item, condition):
        return None
    match item:
        case Leg():
            return replace(item, where=all_of((item.where, renamed(condition, number))))
        case SetOperation(_, queries):
            names = [output.name for output in queries[0].outputs]
            narrowed = [_narrowed(query, number, condition, names) for query in queries]
            pushed = tuple(query for query in narrowed if query is not None)
            return replace(item, queries=pushed) if len(pushed) == len(queries) else None
        case Query():
            names = [output.name for output in item.outputs]
            return _narrowed(item, number, condition, names)
        case LeftJoin(left_side):
            # What the right side lacks is known only after the join.
            prefix = item_column(number, item_column(0, ""))
            if not all(name.startswith(prefix) for name in columns_of(condition)):
                return None
            of_left = renamed(renamed(condition, number), 0)
            return replace(item, left=replace(left_side, on=all_of((left_side.on, of_left))))


def _takes(item: Item, condition: Expression) -> bool:
    """Return False for a condition on NOW if NOW is another one inside the item, at its refresh
    points."""
    if not uses_now(condition):
        return True
    parts = item.queries if isinstance(item, SetOperation) else (item,)
    return all(isinstance(part, LeftJoin) or part.refresh is None for part in parts)


def _narrowed(
    query: Query, number: int, condition: Expression, names: Sequence[str]
) -> Query | None:
    """Return an item of FROM with a condition on its outputs, which have these names there, as one
    on the rows of its source. None for groups, and if the condition would choose before a limit
    does."""
    counted = query.over is not None and not isinstance(query.over, TimeWindow)
    if query.grouping is not None or query.limit is not None or query.offset or counted:
        return None
    columns = {item_column(number, "ts"): time_of(query.source)} if query.timed else {}
    for name, output in zip(names, query.outputs, strict=True):
        columns[item_column(number, name)] = output.expression
    if _grows_too_large(condition, columns):
        return None
    return replace(query, source=with_condition(query.source, substituted(condition, columns)))


def _grows_too_large(condition: Expression, columns: Mapping[str, Expression]) -> bool:
    """Return whether a condition with other expressions in the place of its columns would be too
    large to be worth it: outputs of queries inside queries can multiply."""
    extents = {name: extent_of(columns[name], {}) for name in columns_of(condition)}
    return extent_of(condition, extents).nodes > _MAX_PUSHED_NODES


# Nodes of the largest condition that is pushed down.
_MAX_PUSHED_NODES = 4096


def _within(item: Item, number: int, on: Expression) -> Item:
    """Item `number` of a FROM with conditions pushed down inside it; `on` are those about several
    items."""
    match item:
        case Leg():
            return with_keys(item, number, on)
        case Query():
            return _pushed_query(item)
        case SetOperation(_, queries):
            return replace(item, queries=tuple(_pushed_query(query) for query in queries))
        case LeftJoin():
            return _pushed_left_join(item)


def _pushed_left_join(item: LeftJoin) -> LeftJoin:
    """Conditions of ON about the right side alone choose its rows before the join."""
    right, remaining = item.right, []
    for condition in conjuncts(item.on):
        narrowed = _narrow_item(right, 1, condition) if _only_item(condition) == 1 else None
        if narrowed is None:
            remaining.append(condition)
        else:
            right = narrowed
    on = all_of(remaining)
    return LeftJoin(_pushed_from(item.left), _within(right, 1, on), on)


def _alone(query: Query) -> Query:
    """Return a query over FROM with one stream as a query over the stream."""
    source = query.source
    assert isinstance(source, From)
    (leg,) = source.items
    assert isinstance(leg, Leg)
    query = query.mapped(lambda expression: renamed(expression, 0))
    return replace(query, source=with_condition(leg, renamed(source.on, 0)))


def with_shared_queries(query: Query) -> Query:
    """Return the query with one of all queries inside its expressions that are equal."""
    source = query.source
    assert isinstance(source, From)
    shared: dict[SubQuery, int] = {}
    columns: dict[str, Expression] = {}
    for number, subquery in enumerate(source.subqueries):
        operand = subquery.operand
        if operand is not None:
            # The operand may read the values of earlier subqueries, which may have another number.
            inside = {item_column(0, name): as_item(new, 0) for name, new in columns.items()}
            subquery = replace(subquery, operand=substituted(operand, inside))
        place = shared.setdefault(subquery, len(shared))
        columns[subquery_column(number)] = ColumnRef(subquery_column(place), subquery.type)
    if len(shared) == len(source.subqueries):
        return query
    where = substituted(source.where, columns)
    query = query.mapped(lambda expression: substituted(expression, columns))
    return replace(query, source=replace(source, subqueries=tuple(shared), where=where))
