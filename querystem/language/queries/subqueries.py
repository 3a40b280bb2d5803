"""Queries inside expressions, bound: EXISTS, IN, ANY, ALL, and scalar queries.

A query inside an expression may name columns of the query around it, in its WHERE. Such conditions
are taken out of it, and decide which of its rows go with a row of the outer query: the columns that
they read of the inner query become outputs of it. If those of a scalar aggregate are equalities, it
is grouped by them; with other conditions it is computed over the rows that go with each outer row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlglot import exp

from querystem.expressions import TRUE, Call, ColumnRef, Expression, Op, columns_of, references_of
from querystem.grouping import Grouping, aggregate_name, key_name
from querystem.language.errors import BindProblem, NotYet, Span, TypeProblem
from querystem.language.expressions.bind import OUTER, Binder
from querystem.language.expressions.coerce import cast, comparable
from querystem.language.expressions.conditions import InnerQuery
from querystem.language.normal_form.normal import call
from querystem.language.normal_form.rewrite import (
    all_of,
    as_item,
    conjuncts,
    has_subquery,
    substituted,
)
from querystem.language.queries.drafts import is_limited
from querystem.language.queries.sets import BoundBlock
from querystem.language.syntax.tree import node_span
from querystem.language.tokens.literals import Typed
from querystem.query import (
    From,
    Output,
    Query,
    SortKey,
    SubQuery,
    SubQueryKind,
    item_column,
    subquery_column,
)

_PARTS = "columns of the outer query stand in the WHERE of a SELECT without LIMIT"


class SubQueries:
    """The queries inside the expressions over the rows of one From, as they are bound.

    `bind` binds a query inside an expression of a binder. `resolved` returns an expression of the
    block with its final names.
    """

    def __init__(
        self,
        bind: Callable[[exp.Expr, Binder], BoundBlock],
        resolved: Callable[[Expression], Expression],
    ) -> None:
        self._bind = bind
        self._resolved = resolved
        self._values: dict[int, Typed] = {}
        self.subqueries: list[SubQuery] = []

    def value(self, query: InnerQuery, binder: Binder) -> Typed:
        """Return the value of a query; each is bound once."""
        value = self._values.get(id(query.node))
        if value is None:
            span = node_span(query.node)
            subquery = self._subquery(query, self._bind(query.query, binder), span)
            column = ColumnRef(subquery_column(len(self.subqueries)), subquery.type)
            self.subqueries.append(subquery)
            value = self._values[id(query.node)] = Typed(column, span)
        return value

    def _subquery(self, inner: InnerQuery, block: BoundBlock, span: Span) -> SubQuery:
        query = block.query
        if inner.kind is not SubQueryKind.EXISTS and len(query.outputs) != 1:
            raise TypeProblem(
                f"the query has {len(query.outputs)} outputs, and a value is one",
                span,
                hint="select one",
            )
        operand = inner.operand
        if operand is not None:
            query, operand = _compared(query, operand, span)
        subquery = SubQuery(inner.kind, query, TRUE, op=inner.op)
        if operand is not None:
            subquery = replace(subquery, operand=as_item(self._resolved(operand.node), 0))
        if block.correlated:
            return self._correlated(subquery, block.correlated, span)
        if inner.kind is SubQueryKind.SCALAR and not _is_single(query):
            raise BindProblem(
                "the query may have several rows, and a value is one",
                span,
                hint="write an aggregate such as max(price), or LIMIT 1",
                reason="MANY_ROWS",
            )
        return subquery

    # ---- correlation

    def _correlated(self, subquery: SubQuery, by: Sequence[Expression], span: Span) -> SubQuery:
        # Neither order nor repeats of inner rows matter to EXISTS, ANY and aggregates.
        query = replace(subquery.query, distinct=False, order_by=())
        if is_limited(query) or any(map(has_subquery, by)):
            raise NotYet("a query like this with columns of the outer one", span, hint=_PARTS)
        if subquery.kind is SubQueryKind.SCALAR:
            return self._scalar(replace(subquery, query=query), by, span)
        if query.grouping is not None:
            raise NotYet("groups chosen by columns of the outer query", span, hint=_PARTS)
        # The inner columns that conditions read become hidden outputs. So the inner query is
        # answered once, for all outer rows, and joined with them by `on`.
        outputs = list(query.outputs if subquery.kind is SubQueryKind.ANY else ())
        read = [column for condition in by for column in references_of(condition)]
        inner = {column.name: column for column in read if not _is_outer(column.name)}
        columns: dict[str, Expression] = self._outer(by)
        for number, (name, column) in enumerate(inner.items()):
            outputs.append(Output(_hidden(number), column))
            columns[name] = ColumnRef(item_column(1, _hidden(number)), column.type)
        # A query needs an output, also if its conditions read outer columns only.
        outputs = outputs or [Output(_hidden(0), TRUE)]
        on = all_of([substituted(condition, columns) for condition in by])
        return replace(subquery, query=replace(query, outputs=tuple(outputs)), on=on)

    def _scalar(self, subquery: SubQuery, by: Sequence[Expression], span: Span) -> SubQuery:
        """Return an aggregate without GROUP BY, grouped by the expressions that conditions equate
        with the outer row."""
        query, outer = subquery.query, self._outer(by)
        if query.grouping is None or query.grouping.keys or query.having != TRUE:
            raise NotYet(
                "a query like this as a value with columns of the outer one",
                span,
                hint="write an aggregate without GROUP BY and HAVING",
            )
        sides = [_sides(condition) for condition in by]
        if None in sides:
            return self._over_pairs(subquery, query.grouping, by)
        # The inner side of each equality becomes a grouping key. An outer row then meets at most
        # one group, whose aggregates are its value.
        keys, equal = [], []
        for number, (condition, equated) in enumerate(zip(by, sides, strict=True)):
            assert equated is not None
            key, value = equated
            column = ColumnRef(item_column(1, _hidden(number)), key.type)
            keys.append(key)
            equal.append(call(Op.EQ, (substituted(value, outer), column), condition.type))
        hidden = [
            Output(_hidden(number), ColumnRef(key_name(number), key.type))
            for number, key in enumerate(keys)
        ]
        grouping = Grouping(tuple(keys), query.grouping.aggregates)
        grouped = replace(query, grouping=grouping, outputs=(*query.outputs, *hidden))
        return replace(subquery, query=grouped, on=all_of(equal))

    def _over_pairs(
        self, subquery: SubQuery, grouping: Grouping, by: Sequence[Expression]
    ) -> SubQuery:
        """Return an aggregate without GROUP BY over the rows that go with each outer row."""
        query = subquery.query
        value = query.outputs[0].expression
        arguments = [a.argument for a in grouping.aggregates if a.argument is not None]
        read = [column for part in (*by, *arguments) for column in references_of(part)]
        inner = {column.name: column for column in read if not _is_outer(column.name)}
        columns: dict[str, Expression] = self._outer(by)
        outputs = []
        for number, (name, column) in enumerate(inner.items()):
            outputs.append(Output(_hidden(number), column))
            columns[name] = ColumnRef(item_column(1, _hidden(number)), column.type)
        aggregates = [
            a if a.argument is None else replace(a, argument=substituted(a.argument, columns))
            for a in grouping.aggregates
        ]
        rows = replace(query, outputs=tuple(outputs or [Output(_hidden(0), TRUE)]), grouping=None)
        return replace(
            subquery,
            query=rows,
            on=all_of([substituted(condition, columns) for condition in by]),
            grouping=Grouping((), tuple(aggregates)),
            value=value,
        )

    def _outer(self, by: Sequence[Expression]) -> dict[str, Expression]:
        """Return the columns of the outer query in some conditions, as columns of item 0."""
        columns: dict[str, Expression] = {}
        for column in (column for condition in by for column in references_of(condition)):
            if _is_outer(column.name):
                bound = ColumnRef(column.name.removeprefix(OUTER), column.type)
                columns[column.name] = as_item(self._resolved(bound), 0)
        return columns


def _hidden(number: int) -> str:
    """Return the name of an output that only conditions read."""
    return f"$outer{number}"


def _is_outer(name: str) -> bool:
    return name.startswith(OUTER)


def is_correlated(condition: Expression) -> bool:
    """Return whether a condition reads columns of the query around."""
    return any(_is_outer(name) for name in columns_of(condition))


def _compared(query: Query, operand: Typed, span: Span) -> tuple[Query, Typed]:
    """Return a query and what its output is compared with, as they are compared."""
    output = query.outputs[0]
    value = Typed(ColumnRef(output.name, output.expression.type), span)
    operand, compared = comparable(operand, value, span)
    converted = cast(Typed(output.expression, span), compared.type).node
    return replace(query, outputs=(Output(output.name, converted),)), operand


def _sides(condition: Expression) -> tuple[Expression, Expression] | None:
    """Return the inner and the outer side of an equality; None for any other condition."""
    if isinstance(condition, Call) and condition.op is Op.EQ:
        for inner, outer in (condition.args, reversed(condition.args)):
            of_outer = [_is_outer(name) for name in columns_of(outer)]
            if of_outer and all(of_outer) and not is_correlated(inner):
                return inner, outer
    return None


def _is_single(query: Query) -> bool:
    """Return whether a query has at most one row by its form."""
    if query.limit is not None and query.limit <= 1:
        return True
    if query.grouping is not None:
        return not query.grouping.keys
    source = query.source
    if not isinstance(source, From) or len(source.items) > 1:
        return False
    (item,) = source.items
    return isinstance(item, Query) and _is_single(item)


# ---- over groups


def of_groups(expression: Expression) -> Expression:
    """Return an expression over groups as an expression over a query of the groups, which is the
    only item."""
    columns = {
        column.name: ColumnRef(item_column(0, column.name), column.type)
        for column in references_of(expression)
        if not has_subquery(column)
    }
    return substituted(expression, columns)


def over_groups(block: BoundBlock, subqueries: Sequence[SubQuery]) -> BoundBlock:
    """Return a query whose expressions over groups have queries inside, as a query over another
    that has its groups as rows. They come in the order of groups: by their keys."""
    query = block.query
    grouping = query.grouping
    assert grouping is not None
    keys = [ColumnRef(key_name(n), key.type) for n, key in enumerate(grouping.keys)]
    aggregates = [
        ColumnRef(aggregate_name(n), aggregate.type)
        for n, aggregate in enumerate(grouping.aggregates)
    ]
    # Conditions without subqueries choose groups inside; the others become WHERE around them.
    having = conjuncts(query.having)
    groups = Query(
        query.source,
        tuple(Output(column.name, column) for column in (*keys, *aggregates)),
        grouping,
        all_of([condition for condition in having if not has_subquery(condition)]),
    )
    where = all_of([of_groups(condition) for condition in having if has_subquery(condition)])
    whole = replace(query, grouping=None, having=TRUE).mapped(of_groups)
    order = [key.expression for key in whole.order_by]
    # The query around has no groups, so their order by keys has to be written out.
    by_keys = [
        SortKey(key, descending=False, nulls_first=False)
        for key in map(of_groups, keys)
        if key not in order and not query.distinct
    ]
    source = From((groups,), TRUE, tuple(subqueries), where)
    whole = replace(whole, source=source, order_by=(*whole.order_by, *by_keys))
    values = [replace(value, node=of_groups(value.node)) for value in block.values]
    return replace(block, query=whole, values=values)
