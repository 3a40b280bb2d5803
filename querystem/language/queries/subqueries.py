"""Queries inside expressions, bound: EXISTS, IN, ANY, ALL, and scalar queries.

A query inside an expression may name columns of the queries around it. Conditions of its WHERE with
such columns are taken out of it, and decide which of its rows go with a row of the outer query: the
columns that they read of the inner query become outputs of it. If those of a scalar aggregate are
equalities, it is grouped by them; with other conditions it is computed over the rows that go with
each outer row. A query with columns of the outer one anywhere else is answered for all of their
values at once: see `decorrelation`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from datastem.types import BOOLEAN, Type
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
from querystem.language.queries.decorrelation import (
    OuterRows,
    clauses_of,
    decorrelated,
    equal_to_hidden,
    outer_columns,
    projection,
    uncut,
    whole,
)
from querystem.language.queries.drafts import is_limited
from querystem.language.queries.references import TextBinding
from querystem.language.queries.sets import BoundBlock
from querystem.language.syntax.tree import node_span
from querystem.language.tokens.literals import Typed
from querystem.query import Output, Query, SortKey
from querystem.sources import From, SubQuery, SubQueryKind, item_column, subquery_column


@dataclass(frozen=True, slots=True)
class _Inner:
    """A query inside an expression, bound, and its place."""

    inner: InnerQuery
    block: BoundBlock
    span: Span

    @property
    def type(self) -> Type:
        first = self.block.query.outputs[0].expression.type
        return first if self.inner.kind is SubQueryKind.SCALAR else BOOLEAN

    @property
    def is_simple(self) -> bool:
        """Whether only conditions that were taken out of the query read outer columns, and decide
        which of its rows, or of those it aggregates, go with an outer row."""
        query, by = self.block.query, self.block.correlated
        if outer_columns(query) or any(map(has_subquery, by)):
            return False
        if not by:
            return True
        if self.inner.kind is not SubQueryKind.SCALAR:
            return query.grouping is None and not is_limited(query)
        if query.grouping is None:
            return query.limit == 1 and not (query.offset or query.distinct)
        if query.grouping.keys or query.having != TRUE or is_limited(query):
            return False
        return not any(map(is_correlated, clauses_of(query)))


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
        self._inner: list[_Inner] = []

    def value(self, query: InnerQuery, binder: Binder) -> Typed:
        """Return the value of a query; each is bound once."""
        value = self._values.get(id(query.node))
        if value is None:
            span = node_span(query.node)
            inner = _Inner(query, self._bind(query.query, binder), span)
            _check_outputs(inner)
            column = ColumnRef(subquery_column(len(self._inner)), inner.type)
            self._inner.append(inner)
            value = self._values[id(query.node)] = Typed(column, span)
        return value

    def __len__(self) -> int:
        return len(self._inner)

    def finished(self, text: TextBinding, rows: From) -> tuple[SubQuery, ...]:
        """Return the queries inside the expressions over `rows`."""
        return tuple(self._subquery(inner, text, rows) for inner in self._inner)

    def _subquery(self, bound: _Inner, text: TextBinding, rows: From) -> SubQuery:
        inner, block, span = bound.inner, bound.block, bound.span
        if inner.kind is SubQueryKind.SCALAR and not _is_single(block.query):
            raise BindProblem(
                "the query may have several rows, and a value is one",
                span,
                hint="write an aggregate such as max(price), or LIMIT 1",
                reason="MANY_ROWS",
            )
        if not bound.is_simple:
            return self._at_once(bound, text, rows)
        query, operand = block.query, inner.operand
        if operand is not None:
            query, operand = _compared(query, operand, span)
        subquery = SubQuery(inner.kind, query, TRUE, op=inner.op)
        if operand is not None:
            subquery = replace(subquery, operand=as_item(self._resolved(operand.node), 0))
        return self._correlated(subquery, block.correlated) if block.correlated else subquery

    # ---- correlation

    def _correlated(self, subquery: SubQuery, by: Sequence[Expression]) -> SubQuery:
        query = subquery.query
        if subquery.kind is SubQueryKind.SCALAR and query.grouping is not None:
            return self._scalar(replace(subquery, query=replace(query, order_by=())), by)
        if subquery.kind is SubQueryKind.SCALAR:
            query = uncut(subquery.kind, query)
        else:
            # Neither order nor repeats of inner rows matter to EXISTS and ANY.
            query = replace(query, distinct=False, order_by=())
        # The inner columns that conditions read become hidden outputs. So the inner query is
        # answered once, for all outer rows, and joined with them by `on`.
        outputs = list(() if subquery.kind is SubQueryKind.EXISTS else query.outputs)
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

    def _at_once(self, bound: _Inner, text: TextBinding, rows: From) -> SubQuery:
        """Return a query that is answered for all values of the outer columns in it at once."""
        inner, span = bound.inner, bound.span
        query, operand = whole(bound.block).query, inner.operand
        if operand is not None:
            query, operand = _compared(query, operand, span)
        names = outer_columns(query)
        if names and outer_columns(Query(rows, ())):
            raise NotYet(
                "a query with columns of one whose FROM reads columns of a query around it",
                span,
                hint="compare these columns in WHERE instead of in FROM",
            )
        values = [self._resolved(column) for column in names.values()]
        outputs = tuple(Output(f"$value{n}", value) for n, value in enumerate(values))
        outer = OuterRows(Query(rows, outputs, distinct=True), tuple(names), span)
        references = len(query.legs)
        query = uncut(inner.kind, query)
        query = decorrelated(query, OUTER, outer) if names else query
        text.count_references(len(query.legs) - references, span)
        if inner.kind is SubQueryKind.SCALAR and query.limit is None:
            # Every value has a group, or HAVING has dropped it: then it is NULL.
            query = projection(query)
        subquery = SubQuery(inner.kind, query, op=inner.op)
        if operand is not None:
            subquery = replace(subquery, operand=as_item(self._resolved(operand.node), 0))
        of_outer = [as_item(value, 0) for value in values]
        return replace(subquery, on=all_of(equal_to_hidden(outer, of_outer)))

    def _scalar(self, subquery: SubQuery, by: Sequence[Expression]) -> SubQuery:
        """Return an aggregate without GROUP BY, grouped by the expressions that conditions equate
        with the outer row."""
        query, outer = subquery.query, self._outer(by)
        assert query.grouping is not None
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


def _check_outputs(bound: _Inner) -> None:
    count = len(bound.block.query.outputs)
    if bound.inner.kind is not SubQueryKind.EXISTS and count != 1:
        raise TypeProblem(
            f"the query has {count} outputs, and a value is one", bound.span, hint="select one"
        )


def _is_single(query: Query) -> bool:
    """Return whether a query has at most one row by its form."""
    if query.limit is not None and query.limit <= 1:
        return True
    if query.grouping is not None:
        return not query.grouping.keys
    source = query.source
    if not isinstance(source, From) or len(source.items) > 1:
        return False
    return all(isinstance(item, Query) and _is_single(item) for item in source.items)


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


def over_groups(block: BoundBlock, inner: SubQueries, text: TextBinding) -> BoundBlock:
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
    rows = From((groups,))
    source = replace(rows, subqueries=inner.finished(text, rows), where=where)
    whole = replace(whole, source=source, order_by=(*whole.order_by, *by_keys))
    values = [replace(value, node=of_groups(value.node)) for value in block.values]
    return replace(block, query=whole, values=values)
