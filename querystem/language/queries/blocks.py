"""The blocks of a query: SELECT with its clauses, queries in parentheses, set operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from sqlglot import exp

from datastem.schema import StreamSchema
from querystem.expressions import Expression, uses_now
from querystem.language.errors import RefreshProblem, SyntaxProblem
from querystem.language.expressions.bind import Binder, InnerQueries, identifier
from querystem.language.expressions.coerce import need_type
from querystem.language.expressions.scope import Scope, stream_item
from querystem.language.normal_form.rewrite import (
    all_of,
    conjuncts,
    has_subquery,
    renamed,
)
from querystem.language.queries.clauses import (
    OutputItem,
    bind_condition,
    bind_count,
    bind_order,
    check_distinct,
    read_items,
)
from querystem.language.queries.decorrelation import whole
from querystem.language.queries.drafts import limited, unordered
from querystem.language.queries.groups import group_binder
from querystem.language.queries.references import Place, TextBinding, item_name, references
from querystem.language.queries.sets import (
    BoundBlock,
    Branch,
    combined,
    in_order_of_values,
    operator_of,
)
from querystem.language.queries.sources import CLAUSES, Sources, check_bracketed
from querystem.language.queries.subqueries import SubQueries, is_correlated, of_groups, over_groups
from querystem.language.syntax.refreshes import ParsedRefresh
from querystem.language.syntax.tree import consume, is_query, node_span, outside_queries
from querystem.language.tokens.literals import Typed
from querystem.query import Output, Query, Source
from querystem.refresh import RefreshOn
from querystem.sources import From, SetOperator
from querystem.views import ViewDefinition


class QueryBinder:
    """Binds the queries of one text."""

    def __init__(self, text: TextBinding) -> None:
        self._text = text
        text.bind_rows = self._rows

    def outermost(self, node: exp.Expr, place: Place) -> Query:
        """Return a query with its own window and names in `place` already."""
        return self._part(node, place).query

    def inner(self, node: exp.Expr, place: Place) -> Query:
        """Return a query inside another."""
        return unordered(whole(self._part(node, place.within(node))).query)

    def _rows(self, rows: exp.Expr) -> tuple[RefreshOn, StreamSchema]:
        """Return the rows of REFRESH ON, and their stream."""
        table = references(rows)[0][0]
        consume(table, "this", "alias")
        if (view := self._text.view_of(table)) is not None:
            return self._rows_of_view(view, rows)
        stream = self._text.stream(table)
        scope = Scope((stream_item(item_name(table), stream),))
        binder = replace(self._text.binder(scope), has_now=False)
        where = bind_condition(rows.args.get("where"), "REFRESH ON", binder)
        return RefreshOn(stream.name, where), stream

    def _rows_of_view(self, view: ViewDefinition, rows: exp.Expr) -> tuple[RefreshOn, StreamSchema]:
        """Return the rows of REFRESH ON a view, as rows of the view's stream."""
        shared, stream = self._text, self._text.stream_of(view)
        if stream is None:
            raise RefreshProblem(
                f"the rows of the view {view.name} are not rows of one stream",
                node_span(rows.args["from_"].this),
                hint="REFRESH ON takes a stream, or a view that only selects rows of one",
            )
        text = TextBinding(shared.lookup, shared.names, shared.parameters, shared.used)
        source = QueryBinder(text)._over_several(rows, Place(None, True), False).query.source
        assert isinstance(source, From)
        if uses_now(source.on):
            raise RefreshProblem(
                f"the rows of the view {view.name} depend on NOW",
                node_span(rows.args["from_"].this),
                hint="REFRESH ON takes rows that come once: name the stream",
            )
        return RefreshOn(stream.name, renamed(source.on, 0)), stream

    def _part(self, node: exp.Expr, place: Place, branch: bool = False) -> BoundBlock:
        """Return a query, or a `branch` of a set operation, which may take the types of its outputs
        from the other branches."""
        if isinstance(node, exp.Select):
            block = self._block(node, place, branch)
        elif isinstance(node, exp.Subquery):
            check_bracketed(node)
            block = self._part(node.this, place.within(node.this), branch)
        else:
            block = self._set_operation(node, place)
        self._text.check_reached(node)
        parsed = node.args.get("refresh")
        return block if parsed is None else self._refreshed(block, parsed)

    def _refreshed(self, block: BoundBlock, parsed: ParsedRefresh) -> BoundBlock:
        """Return a query with its REFRESH."""
        if block.query.refresh is not None:
            raise SyntaxProblem(
                "a query has one REFRESH",
                parsed.span,
                hint="write SELECT … FROM (SELECT … REFRESH …) AS name REFRESH …",
            )
        if not block.query.legs:
            raise RefreshProblem(
                "a query that reads no stream never changes",
                parsed.span,
                hint="leave REFRESH out",
            )
        return replace(block, query=replace(block.query, refresh=self._text.refresh(parsed)))

    # ---- one block

    def _block(self, select: exp.Expr, place: Place, branch: bool) -> BoundBlock:
        consume(select, "expressions", "distinct", "from_", "joins", "where", *CLAUSES)
        table = self._only_stream(select, place)
        if table is None:
            return self._over_several(select, place, branch)
        leg, schema = self._text.leg(table, place)
        scope = Scope((stream_item(item_name(table), schema),))
        base = replace(self._text.binder(scope), outer=place.outer, beyond=place.beyond)
        return self._clauses(select, base, lambda where: replace(leg, where=where), branch)

    def _only_stream(self, select: exp.Expr, place: Place) -> exp.Expr | None:
        """Return the reference of a SELECT that reads rows of one stream, and nothing else; else
        None."""
        items = references(select)
        if len(items) != 1 or _has_queries(select):
            return None
        table = items[0][0]
        if not isinstance(table, exp.Table) or table.args.get("version") is not None:
            return None
        if identifier(table.this) in place.named or self._text.view_of(table) is not None:
            return None
        return table

    def _over_several(self, select: exp.Expr, place: Place, branch: bool) -> BoundBlock:
        sources = Sources(self._text, self)
        scope = sources.scope(select, place)

        def resolved(expression: Expression) -> Expression:
            return sources.resolved(expression, node_span(select))

        def bind_inner(node: exp.Expr, binder: Binder) -> BoundBlock:
            block = self._part(node, Place(None, True, place.named, binder).within(node))
            return replace(block, query=unordered(block.query))

        rows, groups = SubQueries(bind_inner, resolved), SubQueries(bind_inner, of_groups)
        conditions = [part for whole_ in sources.conditions for part in conjuncts(whole_)]

        def source(where: Expression) -> From:
            parts = conjuncts(resolved(where))
            on = [part for part in conditions if not is_correlated(part)]
            on += [part for part in parts if not has_subquery(part)]
            later = [part for part in parts if has_subquery(part)]
            plain = From(sources.items, all_of(on))
            subqueries = rows.finished(self._text, plain)
            return replace(plain, subqueries=subqueries, where=all_of(later))

        base = replace(
            self._text.binder(scope), outer=place.outer, beyond=place.beyond, inner_queries=rows
        )
        block = self._clauses(select, base, source, branch, groups)
        values = [replace(value, node=resolved(value.node)) for value in block.values]
        correlated = [resolved(condition) for condition in block.correlated]
        correlated += [part for part in conditions if is_correlated(part)]
        block = BoundBlock(block.query.mapped(resolved), values, correlated)
        return over_groups(whole(block), groups, self._text) if len(groups) else block

    def _clauses(
        self,
        select: exp.Expr,
        base: Binder,
        source: Callable[[Expression], Source],
        branch: bool,
        inner_queries: InnerQueries | None = None,
    ) -> BoundBlock:
        """Return a SELECT; `source` returns its FROM, given its WHERE. `inner_queries` binds
        queries in expressions over groups."""
        items = read_items(select, base.scope)
        base = replace(base, outputs=[item.name for item in items if item.renamed])
        groups = group_binder(select, items, base, inner_queries)
        binder = groups or base
        order = select.args.get("order")
        values = [binder.bind(item.node) for item in items]
        if not branch:
            values = [need_type(value) for value in values]
        outputs = tuple(map(_output, items, values))
        where = bind_condition(select.args.get("where"), "WHERE", base)
        having = bind_condition(select.args.get("having"), "HAVING", binder)
        order_by = bind_order(order, items, binder)
        distinct = _distinct(select)
        if distinct:
            check_distinct(order, order_by, outputs)
        grouping = groups.grouping if groups else None
        factors = conjuncts(where)
        correlated = [factor for factor in factors if is_correlated(factor)]
        if correlated:
            where = all_of([factor for factor in factors if not is_correlated(factor)])
        query = Query(source(where), outputs, grouping, having, distinct, order_by)
        return BoundBlock(self._limited(select, query), values, correlated)

    def _limited(self, node: exp.Expr, query: Query) -> Query:
        """Return the query with the LIMIT and OFFSET of a node."""
        base = self._text.binder(Scope(()))
        limit = bind_count(node.args.get("limit"), "LIMIT", base)
        offset = bind_count(node.args.get("offset"), "OFFSET", base)
        return limited(query, limit, offset)

    # ---- set operations

    def _set_operation(self, node: exp.Expr, place: Place) -> BoundBlock:
        """Return a set operation as one item, with the ORDER BY and LIMIT of the whole over it."""
        consume(node, "this", "expression", "distinct", *CLAUSES)
        operator = operator_of(node)
        assert operator is not None
        block, item, outputs = combined(operator, list(self._branches(node, place, operator)), node)
        binder = self._text.binder(Scope((item,)))
        order_by = bind_order(node.args.get("order"), outputs, binder)
        query = replace(block.query, order_by=order_by)
        if operator is not SetOperator.UNION_ALL:
            query = in_order_of_values(query)
        return replace(block, query=self._limited(node, query))

    def _branches(self, node: exp.Expr, place: Place, operator: SetOperator) -> Iterator[Branch]:
        for part in (node.this, node.args["expression"]):
            yield from self._branch(part, place.within(part), operator)

    def _branch(self, part: exp.Expr, place: Place, operator: SetOperator) -> Iterator[Branch]:
        """Yield the branches that a part of a set operation is: several if it is UNION ALL inside
        UNION ALL."""
        if isinstance(part, exp.Subquery) and part.args.get("refresh") is None:
            check_bracketed(part)
            yield from self._branch(part.this, place.within(part.this), operator)
            self._text.check_reached(part)
        elif operator is SetOperator.UNION_ALL and operator_of(part) is operator and _uncut(part):
            consume(part, "this", "expression", "distinct", *CLAUSES)
            yield from self._branches(part, place, operator)
            self._text.check_reached(part)
        else:
            block = whole(self._part(part, place, branch=True))
            yield Branch(part, replace(block, query=unordered(block.query)))


def _has_queries(select: exp.Expr) -> bool:
    """Return whether a SELECT has queries inside expressions."""
    clauses = [select.args.get(name) for name in ("where", "group", "having", "order")]
    parts = [*select.expressions, *filter(None, clauses)]
    return any(is_query(node) for part in parts for node in outside_queries(part))


def _uncut(node: exp.Expr) -> bool:
    return all(node.args.get(clause) is None for clause in ("limit", "offset", "refresh"))


def _output(item: OutputItem, value: Typed) -> Output:
    return Output(item.name, value.node)


def _distinct(select: exp.Expr) -> bool:
    distinct = select.args.get("distinct")
    if distinct is None:
        return False
    consume(distinct)
    return True
