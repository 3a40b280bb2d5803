"""FROM, bound: references to streams, joins, and the queries inside a query.

A query in FROM that only selects, projects and joins is *flattened*: its items take their place
among the outer ones, its conditions join the outer ones, and its outputs are replaced by their
expressions. While the outer block is bound such an output is a column like any other, of a name
that nothing else has; `Sources.resolved` puts the expression in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from sqlglot import exp

from datastem.schema import StreamSchema
from datastem.types import TIMESTAMP
from querystem.expressions import Expression, Op
from querystem.language.bind import MAX_DEPTH, identifier
from querystem.language.clauses import bind_condition, read_items
from querystem.language.coerce import compare, need_type
from querystem.language.errors import (
    BindProblem,
    NotYet,
    Span,
    SyntaxProblem,
)
from querystem.language.functions import is_aggregate
from querystem.language.literals import Typed
from querystem.language.references import (
    Place,
    TextBinding,
    item_name,
    references,
    window_text,
)
from querystem.language.rewrite import Extent, extent_of, greatest_time, substituted
from querystem.language.scope import Scope, ScopeItem
from querystem.language.tree import consume, is_query, node_span
from querystem.query import From, Item, Query, SetOperation, item_column
from results.window import UNBOUNDED

MAX_NODES = 16_384


class Sources:
    """The items of one From, with the conditions on their rows, as they are bound.

    `inner` binds a query that stays an item.
    """

    def __init__(self, text: TextBinding, inner: Callable[[exp.Expr, Place], Query]) -> None:
        self._text = text
        self._inner = inner
        self._items: list[Item] = []
        self._conditions: list[Expression] = []
        self._outputs: dict[str, Expression] = {}
        self._extents: dict[str, Extent] = {}
        self._flattened = 0

    @property
    def items(self) -> tuple[Item, ...]:
        return tuple(self._items)

    @property
    def conditions(self) -> Sequence[Expression]:
        return self._conditions

    def resolved(self, expression: Expression, span: Span) -> Expression:
        """The expression of a block at `span` with those of the outputs of flattened queries in
        their places; raises SyntaxProblem where that makes it too large."""
        if not self._outputs:
            return expression
        extent = extent_of(expression, self._extents)
        if extent.nodes > MAX_NODES or extent.depth > MAX_DEPTH:
            raise SyntaxProblem(
                "the outputs of inner queries make an expression too large",
                span,
                hint=f"at most {MAX_NODES:,} parts, {MAX_DEPTH} inside each other",
                reason="NESTED_TOO_DEEP",
            )
        return substituted(expression, self._outputs)

    def scope(self, select: exp.Expr, place: Place) -> Scope:
        """The names of a FROM, whose items and conditions are taken; raises QueryError."""
        scope = Scope(())
        for node, join in references(select):
            if join is not None:
                _check_kind(join)
            item = self._item(node, place)
            if any(other.name == item.name for other in scope.items):
                raise BindProblem(
                    f"two items of FROM are named {item.name}",
                    node_span(node),
                    hint="give one of them another name with AS",
                    reason="DUPLICATE_NAME",
                )
            before = scope
            scope = Scope((*before.items, item), before.merged)
            if join is not None:
                scope = self._joined(join, before, scope)
        return scope

    # ---- items

    def _item(self, node: exp.Expr, place: Place) -> ScopeItem:
        name, frame = item_name(node), node.args.get("frame")
        if isinstance(node, exp.Table):
            query = place.named.get(identifier(node.this))
            if query is None:
                return self._leg(node, name, place)
            consume(node, "this", "alias", "frame")
            self._text.reached.add(id(query.node))
            return self._query(query.node.this, name, frame, query.place)
        consume(node, "this", "alias", "frame")
        return self._query(node.this, name, frame, Place(None, True, place.named))

    def _leg(self, table: exp.Expr, name: str, place: Place) -> ScopeItem:
        number = len(self._items)
        leg, schema = self._text.leg(table, place)
        self._items.append(leg)
        shown = [column.name for column in schema.columns]
        return ScopeItem(name, schema.types, shown, item_column(number, ""))

    def _query(self, node: exp.Expr, name: str, frame: exp.Expr | None, place: Place) -> ScopeItem:
        check_plain(node)
        if isinstance(node, exp.Subquery):
            item_of_inner = self._query(node.this, name, frame, place.within(node))
            self._text.check_reached(node)
            return item_of_inner
        if frame is None and isinstance(node, exp.Select):
            return self._flatten(node, name, place.within(node))
        query = self._inner(node, place)
        item: Item = query
        if frame is not None:
            schema = StreamSchema(name, query.columns)
            self._text.overs.append(window_text(frame, schema, node_span(frame)))
            item = replace(query, over=UNBOUNDED)
        elif isinstance(query.source, From) and isinstance(query.source.items[0], SetOperation):
            item = query.source.items[0]
        number = len(self._items)
        self._items.append(item)
        types = {column.name: column.type for column in query.columns}
        return ScopeItem(name, {"ts": TIMESTAMP, **types}, list(types), item_column(number, ""))

    def _flatten(self, select: exp.Expr, name: str, place: Place) -> ScopeItem:
        consume(select, "expressions", "from_", "joins", "where", "frame", "ctes")
        start, span = len(self._items), node_span(select)
        scope = self.scope(select, place)
        binder = self._text.binder(scope)
        items = read_items(select, scope)
        outputs = {item.name: need_type(binder.bind(item.node)).node for item in items}
        where = bind_condition(select.args.get("where"), replace(binder, clause="WHERE"))
        self._conditions.append(self.resolved(where, span))
        types = {output: bound.type for output, bound in outputs.items()}
        outputs = {"ts": greatest_time(range(start, len(self._items))), **outputs}
        prefix = f"~{self._flattened}."
        self._flattened += 1
        extents = {prefix + one: extent_of(outputs[one], self._extents) for one in outputs}
        self._outputs |= {prefix + one: self.resolved(outputs[one], span) for one in outputs}
        self._extents |= extents
        self._text.check_reached(select)
        return ScopeItem(name, {"ts": TIMESTAMP, **types}, list(types), prefix)

    # ---- joins

    def _joined(self, join: exp.Expr, before: Scope, scope: Scope) -> Scope:
        """The scope after a join, whose condition is taken."""
        consume(join, "this", "kind", "on", "using")
        if (on := join.args.get("on")) is not None:
            binder = replace(self._text.binder(scope), clause="ON")
            self._conditions.append(self.resolved(binder.condition(on).node, node_span(on)))
        for column in join.args.get("using") or ():
            scope = self._using(column, before, scope)
        return scope

    def _using(self, column: exp.Expr, before: Scope, scope: Scope) -> Scope:
        name, span, item = identifier(column), node_span(column), scope.items[-1]
        left = before.column(name, span)
        right = Scope((item,)).column(name, span)
        equal = compare(Op.EQ, Typed(left, span), Typed(right, span), span)
        self._conditions.append(self.resolved(equal.node, span))
        first = before.merged.get(name) or next(i for i in before.items if name in i.types)
        return Scope(scope.items, {**scope.merged, name: first})


def _check_kind(join: exp.Expr) -> None:
    kind = join.args.get("kind") or ""
    if kind in ("", "INNER", "CROSS"):
        return
    if kind == "LEFT":
        raise NotYet("LEFT JOIN", node_span(join), hint="JOIN keeps the rows that have a partner")
    raise SyntaxProblem(
        f"there is no {kind} JOIN",
        node_span(join),
        hint="JOIN keeps the rows that have a partner",
        reason="NOT_SUPPORTED",
    )


_GROUPED = "register the inner query on its own; joins and UNION ALL may stand inside a query"


def check_plain(node: exp.Expr) -> None:
    """Raises NotYet for a query inside another that does more than select, project and join, and
    UNION ALL of such."""
    for clause, word in _LATER.items():
        if (found := node.args.get(clause)) is not None:
            raise NotYet(f"{word} of a query inside a query", node_span(found), hint=_GROUPED)
    if isinstance(node, exp.Select):
        if (distinct := node.args.get("distinct")) is not None:
            raise NotYet("DISTINCT of a query inside a query", node_span(distinct), hint=_GROUPED)
        aggregate = next((part for out in node.expressions for part in _aggregates(out)), None)
        if aggregate is not None:
            raise NotYet(
                "an aggregate of a query inside a query", node_span(aggregate), hint=_GROUPED
            )


_LATER = {
    "group": "GROUP BY",
    "having": "HAVING",
    "order": "ORDER BY",
    "limit": "LIMIT",
    "offset": "OFFSET",
}


def _aggregates(node: exp.Expr) -> Iterable[exp.Expr]:
    return filter(is_aggregate, node.walk(prune=is_query))
