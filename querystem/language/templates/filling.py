"""Fillers: functions that fill in parameters, compiled once per query. Parts of the query without a
parameter are not touched again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from querystem.expressions import Call, Expression, Literal, Parameter
from querystem.grouping import Aggregate, Grouping
from querystem.language.normal_form.normal import call
from querystem.language.queries.clauses import count_of
from querystem.language.queries.drafts import LimitedQuery, with_counts
from querystem.language.tokens.literals import Typed
from querystem.legs import AsOf, Leg
from querystem.query import Item, Output, Query, SortKey, Source
from querystem.refresh import Refresh, RefreshAny, RefreshEvery, RefreshOn
from querystem.sources import From, LeftJoin, SetOperation, SubQuery

_T = TypeVar("_T")
# A part of a query, compiled to a function of the constants in the place of its parameters.
Filler = Callable[[Mapping[str, Literal]], _T]


def clauses_filler(query: Query) -> Filler[Query]:
    """Return the filler of a query, or of a query inside another."""
    source, having = _source_filler(query.source), expression_filler(query.having)
    outputs = _tuple_filler(query.outputs, _output_filler)
    order_by = _tuple_filler(query.order_by, _sort_key_filler)
    grouping, refresh = _grouping_filler(query.grouping), _refresh_filler(query.refresh)
    counts = _counts_filler(query)
    return lambda literals: replace(
        counts(literals),
        source=source(literals),
        outputs=outputs(literals),
        grouping=grouping(literals),
        having=having(literals),
        order_by=order_by(literals),
        refresh=refresh(literals),
    )


def _counts_filler(query: Query) -> Filler[Query]:
    """Return the filler of a query's LIMIT and OFFSET."""
    if not isinstance(query, LimitedQuery):
        return lambda _: query
    limit = _count_filler(query.limit_from, "LIMIT")
    offset = _count_filler(query.offset_from, "OFFSET")
    return lambda literals: with_counts(query, limit(literals), offset(literals) or 0)


def _count_filler(count: Typed | None, word: str) -> Filler[int | None]:
    if count is None:
        return lambda _: None
    filler, place = expression_filler(count.node), count.span

    def number(literals: Mapping[str, Literal]) -> int:
        literal = filler(literals)
        assert isinstance(literal, Literal)
        return count_of(literal, word, place)

    return number


def _source_filler(source: Source) -> Filler[Source]:
    return _leg_filler(source) if isinstance(source, Leg) else _from_filler(source)


def _from_filler(source: From) -> Filler[From]:
    items, on = _tuple_filler(source.items, _item_filler), expression_filler(source.on)
    subqueries = _tuple_filler(source.subqueries, _subquery_filler)
    where = expression_filler(source.where)
    return lambda literals: From(
        items(literals), on(literals), subqueries(literals), where(literals)
    )


def _subquery_filler(subquery: SubQuery) -> Filler[SubQuery]:
    query, on = clauses_filler(subquery.query), expression_filler(subquery.on)
    operand = None if subquery.operand is None else expression_filler(subquery.operand)
    value = None if subquery.value is None else expression_filler(subquery.value)
    grouping = _grouping_filler(subquery.grouping)
    return lambda literals: replace(
        subquery,
        grouping=grouping(literals),
        value=None if value is None else value(literals),
        query=query(literals),
        on=on(literals),
        operand=None if operand is None else operand(literals),
    )


def _item_filler(item: Item) -> Filler[Item]:
    match item:
        case Leg():
            return _leg_filler(item)
        case Query():
            return clauses_filler(item)
        case SetOperation(_, parts):
            queries = _tuple_filler(parts, clauses_filler)
            return lambda literals: replace(item, queries=queries(literals))
        case LeftJoin(left_side, right_side, on):
            sides, condition = (
                (_from_filler(left_side), _item_filler(right_side)),
                expression_filler(on),
            )
            return lambda literals: LeftJoin(
                sides[0](literals), sides[1](literals), condition(literals)
            )


def _leg_filler(leg: Leg) -> Filler[Leg]:
    where, as_of = expression_filler(leg.where), _as_of_filler(leg.as_of)
    refresh = _refresh_filler(leg.refresh)
    return lambda literals: replace(
        leg, where=where(literals), as_of=as_of(literals), refresh=refresh(literals)
    )


def _as_of_filler(as_of: AsOf | None) -> Filler[AsOf | None]:
    if as_of is None:
        return lambda _: None
    keys = _tuple_filler(as_of.keys, expression_filler)
    return lambda literals: replace(as_of, keys=keys(literals))


def expression_filler(expression: Expression) -> Filler[Expression]:
    if isinstance(expression, Parameter):
        name = expression.name
        return lambda literals: literals[name]
    if not isinstance(expression, Call) or not _has_parameter(expression):
        return lambda _: expression
    op, type_ = expression.op, expression.type
    args = _tuple_filler(expression.args, expression_filler)
    return lambda literals: call(op, args(literals), type_)


def _has_parameter(expression: Expression) -> bool:
    if isinstance(expression, Call):
        return any(_has_parameter(arg) for arg in expression.args)
    return isinstance(expression, Parameter)


def _tuple_filler(
    parts: Iterable[_T], filler_of: Callable[[_T], Filler[_T]]
) -> Filler[tuple[_T, ...]]:
    fillers = [filler_of(part) for part in parts]
    return lambda literals: tuple([filler(literals) for filler in fillers])


def _output_filler(output: Output) -> Filler[Output]:
    filler, name = expression_filler(output.expression), output.name
    return lambda literals: Output(name, filler(literals))


def _sort_key_filler(key: SortKey) -> Filler[SortKey]:
    filler = expression_filler(key.expression)
    return lambda literals: SortKey(filler(literals), key.descending, key.nulls_first)


def _grouping_filler(grouping: Grouping | None) -> Filler[Grouping | None]:
    if grouping is None:
        return lambda _: None
    keys = _tuple_filler(grouping.keys, expression_filler)
    aggregates = _tuple_filler(grouping.aggregates, _aggregate_filler)
    return lambda literals: Grouping(keys(literals), aggregates(literals))


def _aggregate_filler(aggregate: Aggregate) -> Filler[Aggregate]:
    if aggregate.argument is None:
        return lambda _: aggregate
    filler = expression_filler(aggregate.argument)
    return lambda literals: replace(aggregate, argument=filler(literals))


def _refresh_filler(refresh: Refresh | None) -> Filler[Refresh | None]:
    if isinstance(refresh, RefreshAny):
        parts = _tuple_filler(refresh.parts, _points_filler)
        return lambda literals: RefreshAny(parts(literals))
    if refresh is None:
        return lambda _: None
    points = _points_filler(refresh)
    return lambda literals: points(literals)


def _points_filler(points: RefreshEvery | RefreshOn) -> Filler[RefreshEvery | RefreshOn]:
    if isinstance(points, RefreshEvery):
        return lambda _: points
    where = expression_filler(points.where)
    return lambda literals: replace(points, where=where(literals))
