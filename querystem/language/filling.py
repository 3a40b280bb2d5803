"""Parameters to constants, compiled: what holds no parameter is not touched again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from querystem.expressions import Call, Expression, Literal, Parameter
from querystem.language.clauses import Count, count_of
from querystem.language.normal import call
from querystem.language.select import BoundSelect
from querystem.query import Aggregate, Grouping, Output, Query, Refresh, RefreshOn, SortKey

_T = TypeVar("_T")
Filler = Callable[[Mapping[str, Literal]], _T]


def query_filler(draft: BoundSelect) -> Filler[Query]:
    query = draft.query if draft.tail.names else draft.tail.fill(draft.query, {})
    where, having = expression_filler(query.where), expression_filler(query.having)
    outputs, order_by = _each(query.outputs, _output), _each(query.order_by, _sort_key)
    grouping, refresh = _grouping(query.grouping), _refresh(query.refresh)
    limit, offset = _count(draft.limit, "LIMIT", draft), _count(draft.offset, "OFFSET", draft)

    def fill(literals: Mapping[str, Literal]) -> Query:
        filled = replace(
            query,
            outputs=outputs(literals),
            where=where(literals),
            grouping=grouping(literals),
            having=having(literals),
            order_by=order_by(literals),
            limit=limit(literals),
            offset=offset(literals) or 0,
            refresh=refresh(literals),
        )
        return draft.tail.fill(filled, literals) if draft.tail.names else filled

    return fill


def expression_filler(expression: Expression) -> Filler[Expression]:
    if isinstance(expression, Parameter):
        name = expression.name
        return lambda literals: literals[name]
    if not isinstance(expression, Call) or not _has_parameter(expression):
        return lambda _: expression
    op, type_ = expression.op, expression.type
    args = _each(expression.args, expression_filler)
    return lambda literals: call(op, args(literals), type_)


def _has_parameter(expression: Expression) -> bool:
    if isinstance(expression, Call):
        return any(_has_parameter(arg) for arg in expression.args)
    return isinstance(expression, Parameter)


def _each(parts: Iterable[_T], filler_of: Callable[[_T], Filler[_T]]) -> Filler[tuple[_T, ...]]:
    fillers = [filler_of(part) for part in parts]
    return lambda literals: tuple([filler(literals) for filler in fillers])


def _output(output: Output) -> Filler[Output]:
    filler, name = expression_filler(output.expression), output.name
    return lambda literals: Output(name, filler(literals))


def _sort_key(key: SortKey) -> Filler[SortKey]:
    filler = expression_filler(key.expression)
    return lambda literals: SortKey(filler(literals), key.descending, key.nulls_first)


def _grouping(grouping: Grouping | None) -> Filler[Grouping | None]:
    if grouping is None:
        return lambda _: None
    keys = _each(grouping.keys, expression_filler)
    aggregates = _each(grouping.aggregates, _aggregate)
    return lambda literals: Grouping(keys(literals), aggregates(literals))


def _aggregate(aggregate: Aggregate) -> Filler[Aggregate]:
    if aggregate.argument is None:
        return lambda _: aggregate
    filler = expression_filler(aggregate.argument)
    return lambda literals: replace(aggregate, argument=filler(literals))


def _refresh(refresh: Refresh | None) -> Filler[Refresh | None]:
    if not isinstance(refresh, RefreshOn):
        return lambda _: refresh
    stream, where = refresh.stream, expression_filler(refresh.where)
    return lambda literals: RefreshOn(stream, where(literals))


def _count(count: Count | None, word: str, draft: BoundSelect) -> Filler[int | None]:
    if isinstance(count, Parameter):
        name, place = count.name, draft.places[count.name]
        return lambda literals: count_of(literals[name], word, place)
    number = None if count is None else count.value
    assert number is None or isinstance(number, int)
    return lambda _: number
