"""FROM, bound: references to streams, joins, and the queries inside a query.

A query in FROM that only selects, projects and joins is *flattened*: its items take their place
among the outer ones, its conditions join the outer ones, and its outputs are replaced by their
expressions. While the outer block is bound such an output is a column like any other, of a name
that nothing else has; `Sources.resolved` puts the expression in its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from sqlglot import exp

from datastem.schema import StreamSchema
from datastem.types import TIMESTAMP
from querystem.expressions import TRUE, ColumnRef, Expression, Op, uses_now
from querystem.language.errors import (
    BindProblem,
    NotYet,
    Span,
    SyntaxProblem,
    WindowProblem,
)
from querystem.language.expressions.bind import MAX_DEPTH, identifier
from querystem.language.expressions.coerce import compare, need_type
from querystem.language.expressions.scope import Scope, ScopeItem, ScopeStream, stream_item
from querystem.language.normal_form.rewrite import (
    Extent,
    all_of,
    extent_of,
    greatest_time,
    moved,
    moved_name,
    substituted,
)
from querystem.language.queries.clauses import bind_condition, read_items
from querystem.language.queries.drafts import is_limited
from querystem.language.queries.inlining import bounds_time, is_flat
from querystem.language.queries.references import (
    Place,
    TextBinding,
    item_name,
    references,
    window_text,
)
from querystem.language.queries.tails import window_number
from querystem.language.syntax.tree import consume, node_span
from querystem.language.tokens.literals import Typed
from querystem.legs import Leg
from querystem.query import Item, Output, Query, is_timed, legs_of
from querystem.sources import From, LeftJoin, SetOperation, item_column
from querystem.views import ViewDefinition

MAX_NODES = 16_384
# What may follow the FROM and WHERE of a query.
CLAUSES = ("group", "having", "order", "limit", "offset", "frame", "refresh", "ctes")


class QueryItems(Protocol):
    """The binder of queries of FROM that stay items."""

    def inner(self, node: exp.Expr, place: Place) -> Query: ...


class Sources:
    """The items of one From, with the conditions on their rows, as they are bound."""

    def __init__(self, text: TextBinding, queries: QueryItems) -> None:
        self._text = text
        self._queries = queries
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
        """Return the expression of a block at `span` with those of the outputs of flattened queries
        in their places; raise SyntaxProblem if that makes it too large."""
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
        """Bind a FROM and return its names; raise QueryError."""
        scope, start = Scope(()), _Start(len(self._items), len(self._conditions))
        for node, join in references(select):
            is_left = join is not None and _is_left(join)
            item = self._item(node, place, scope, flat=not is_left)
            if any(earlier.name == item.name for earlier in scope.items):
                raise BindProblem(
                    f"two items of FROM are named {item.name}",
                    node_span(node),
                    hint="give one of them another name with AS",
                    reason="DUPLICATE_NAME",
                )
            before = scope
            scope = Scope((*before.items, item), before.merged)
            if join is not None:
                conditions, scope = self._joined(join, before, scope, place)
                if is_left:
                    scope = self._left_joined(start, all_of(conditions), scope)
                else:
                    self._conditions += conditions
        return scope

    # ---- items

    def _item(self, node: exp.Expr, place: Place, before: Scope, flat: bool) -> ScopeItem:
        """Return an item of FROM, after others; `flat` says that a query may be flattened."""
        name, frame = item_name(node), node.args.get("frame")
        if isinstance(node, exp.Table):
            query = place.named.get(identifier(node.this))
            if query is None and (view := self._text.view_of(node)) is not None:
                return self._view(view, node, name, place, flat)
            if query is None:
                return self._leg(node, name, place, before)
            consume(node, "this", "alias", "frame")
            self._text.reached.add(id(query.node))
            return self._query(query.node.this, name, frame, query.place, flat)
        consume(node, "this", "alias", "frame")
        return self._query(node.this, name, frame, place.inner(), flat)

    def _leg(self, table: exp.Expr, name: str, place: Place, before: Scope) -> ScopeItem:
        number = len(self._items)
        if table.args.get("version") is None:
            leg, schema = self._text.leg(table, place)
        else:
            leg, schema = self._looked_up(table, before)
        self._items.append(leg)
        return stream_item(name, schema, item_column(number, ""), len(self._text.windows) - 1)

    def _looked_up(self, table: exp.Expr, before: Scope) -> tuple[Leg, StreamSchema]:
        leg, schema = self._text.looked_up(table, before)
        assert leg.as_of is not None
        instant = self.resolved(leg.as_of.instant, node_span(table))
        if uses_now(instant):
            raise NotYet(
                "a look-up AS OF an instant made from NOW",
                node_span(table),
                hint=f"join with {schema.name} without AS OF: it has the rows that are current at"
                " NOW",
            )
        return replace(leg, as_of=replace(leg.as_of, instant=instant)), schema

    def _inside(self, items: Sequence[Item]) -> list[ScopeStream]:
        """Return the streams that some items read, but for those whose rows are looked up."""
        read = [leg for item in items for leg in legs_of(item) if leg.as_of is None]
        numbers = [window_number(leg.window) for leg in read]
        return [ScopeStream(self._text.windows[number].schema, number) for number in numbers]

    def _query(
        self, node: exp.Expr, name: str, frame: exp.Expr | None, place: Place, flat: bool
    ) -> ScopeItem:
        if isinstance(node, exp.Subquery) and node.args.get("refresh") is None:
            check_bracketed(node)
            item_of_inner = self._query(node.this, name, frame, place.within(node), flat)
            self._text.check_reached(node)
            return item_of_inner
        if flat and frame is None and isinstance(node, exp.Select) and is_flat(node):
            return self._flatten(node, name, place.within(node))
        query = self._queries.inner(node, place)
        operation = whole_operation(query) if frame is None else None
        if frame is not None:
            query = self._with_window(query, name, frame, node_span(frame))
        return self._add_query(query, name, operation)

    def _with_window(self, query: Query, name: str, frame: exp.Expr, span: Span) -> Query:
        """Return a query with a window over it."""
        _check_timed(query, frame)
        self._check_validity([query], frame)
        written = window_text(frame, StreamSchema(name, query.columns), span)
        query = replace(query, over=self._text.window(written))
        if (parsed := frame.args.get("refresh")) is None:
            return query
        return replace(_around(query), refresh=self._text.refresh(parsed))

    def _check_validity(self, items: Sequence[Item], frame: exp.Expr) -> None:
        """Refuse a window over a query of rows with a validity: it would bound their ts."""
        for stream in self._inside(items):
            if stream.schema.validity is not None:
                raise _over_validity(stream.schema, frame)

    def _add_query(self, query: Query, name: str, item: Item | None = None) -> ScopeItem:
        """Add a query as an item, or the `item` whose rows it shows."""
        number = len(self._items)
        self._items.append(query if item is None else item)
        types = {column.name: column.type for column in query.columns}
        times = {"ts": TIMESTAMP} if query.timed else {}
        inside = self._inside(self._items[number:])
        return ScopeItem(
            name, {**times, **types}, list(types), item_column(number, ""), inside=inside
        )

    def _has_validity(self, query: Query) -> bool:
        return any(stream.schema.validity is not None for stream in self._inside([query]))

    # ---- views

    def _view(
        self, view: ViewDefinition, table: exp.Expr, name: str, place: Place, flat: bool
    ) -> ScopeItem:
        """Add a view: inlined if it can be, else as an item. The window of the block bounds its
        rows."""
        text, written = self._text, table.args.get("frame")
        if (version := table.args.get("version")) is not None:
            raise BindProblem(
                f"{view.name} is a view, and rows are looked up in a keyed stream",
                node_span(version),
                hint="name the stream",
                reason="BAD_LOOKUP",
            )
        consume(table, "this", "alias", "frame")
        frame = place.frame if written is None else written
        has_own_window = place.has_own_window or written is not None
        span, stream = node_span(table.this), text.stream_of(view)
        if stream is not None and stream.validity is not None:
            if frame is not None:
                raise _over_validity(stream, frame)
            # What the view shows is valid at NOW, and other windows would show more.
            has_own_window = True
        if flat and stream and (frame is None or bounds_time(frame, stream)):
            inside = Place(frame, has_own_window, view=place.view or view.name)
            with text.within_view(view, span):
                return self._flatten(text.parsed(view), name, inside)
        with text.within_view(view, span):
            query = self._queries.inner(text.parsed(view), Place(None, True))
        if frame is not None:
            text.reached.add(id(frame))
            _check_timed(query, frame, view.name)
            query = self._with_window(query, name, frame, span)
        operation = None if query.timed else whole_operation(query)
        if operation is not None:
            return self._add_query(query, name, replace(operation, view=view.name))
        is_open = query.timed and not has_own_window and not self._has_validity(query)
        query = replace(query, view=view.name, open=is_open)
        return self._add_query(query, name)

    def _flatten(self, select: exp.Expr, name: str, place: Place) -> ScopeItem:
        consume(select, "expressions", "from_", "joins", "where", "frame", "ctes")
        start, span = len(self._items), node_span(select)
        scope = self.scope(select, place)
        binder = replace(self._text.binder(scope), beyond=place.beyond)
        items = read_items(select, scope)
        outputs = {item.name: need_type(binder.bind(item.node)).node for item in items}
        where = bind_condition(select.args.get("where"), "WHERE", binder)
        self._conditions.append(self.resolved(where, span))
        types = {output: bound.type for output, bound in outputs.items()}
        added = self._items[start:]
        timed = added and all(map(is_timed, added))
        times = {"ts": greatest_time(added, start)} if timed else {}
        outputs = {**times, **outputs}
        prefix = f"~{self._flattened}."
        self._flattened += 1
        extents = {
            prefix + output: extent_of(bound, self._extents) for output, bound in outputs.items()
        }
        self._outputs |= {
            prefix + output: self.resolved(bound, span) for output, bound in outputs.items()
        }
        self._extents |= extents
        self._text.check_reached(select)
        all_types = {**dict.fromkeys(times, TIMESTAMP), **types}
        return ScopeItem(name, all_types, list(types), prefix, inside=self._inside(added))

    # ---- joins

    def _joined(
        self, join: exp.Expr, before: Scope, scope: Scope, place: Place
    ) -> tuple[list[Expression], Scope]:
        """Return the conditions of a join, and the scope after it."""
        consume(join, "this", "kind", "on", "using")
        conditions = []
        if (on := join.args.get("on")) is not None:
            binder = replace(
                self._text.binder(scope), clause="ON", outer=place.outer, beyond=place.beyond
            )
            conditions.append(self.resolved(binder.condition(on).node, node_span(on)))
        for column in join.args.get("using") or ():
            name, span = identifier(column), node_span(column)
            lhs = before.column(name, span)
            rhs = Scope(scope.items[-1:]).column(name, span)
            equal = compare(Op.EQ, Typed(lhs, span), Typed(rhs, span), span)
            conditions.append(self.resolved(equal.node, span))
            first = before.merged.get(name) or next(i for i in before.items if name in i.types)
            scope = Scope(scope.items, {**scope.merged, name: first})
        return conditions, scope

    def _left_joined(self, start: _Start, on: Expression, scope: Scope) -> Scope:
        """Return the scope after a LEFT JOIN, whose left side is all items of the FROM before it.
        Both sides, and their conditions, become one item."""
        *left_items, right_item = self._items[start.item :]
        # The prefixes of columns by the number of their item: within the left side, within the
        # LEFT JOIN, and outside of it.
        numbers = [str(number) for number in range(start.item, len(self._items))]
        alone = {number: item_column(place, "") for place, number in enumerate(numbers)}
        inside = {number: item_column(0, prefix) for number, prefix in alone.items()}
        inside[numbers[-1]] = item_column(1, "")
        outside = {number: item_column(start.item, prefix) for number, prefix in inside.items()}
        conditions = [moved(condition, alone) for condition in self._conditions[start.condition :]]
        left_items = [_moved_lookup(item, alone) for item in left_items]
        left_side = From(tuple(left_items), all_of(conditions))
        joined = LeftJoin(left_side, _moved_lookup(right_item, inside), moved(on, inside))
        self._items[start.item :] = [joined]
        del self._conditions[start.condition :]
        self._outputs = {name: moved(bound, outside) for name, bound in self._outputs.items()}
        items = {
            item.name: replace(item, prefix=moved_name(item.prefix, outside))
            for item in scope.items
        }
        merged = {name: items[item.name] for name, item in scope.merged.items()}
        return Scope(tuple(items.values()), merged)


@dataclass(frozen=True, slots=True)
class _Start:
    """How many items and conditions there were before a FROM began."""

    item: int
    condition: int


def _moved_lookup(item: Item, prefixes: Mapping[str, str]) -> Item:
    """Return an item; if its rows are looked up, by other names of columns."""
    if not isinstance(item, Leg) or item.as_of is None:
        return item
    as_of, row = item.as_of, item.as_of.row
    row = None if row is None else moved(row, prefixes)
    return replace(item, as_of=replace(as_of, instant=moved(as_of.instant, prefixes), row=row))


def _is_left(join: exp.Expr) -> bool:
    """Return whether a join is a LEFT JOIN; raise SyntaxProblem for RIGHT and FULL."""
    kind = join.args.get("kind") or ""
    if kind in ("RIGHT", "FULL"):
        raise SyntaxProblem(
            f"there is no {kind} JOIN",
            node_span(join),
            hint="LEFT JOIN keeps all rows of the left side",
            reason="NOT_SUPPORTED",
        )
    return bool(kind == "LEFT")


def check_bracketed(node: exp.Expr) -> None:
    """Refuse anything but a window after a query in parentheses."""
    consume(node, "this", "alias", *CLAUSES)
    for clause in ("order", "limit", "offset"):
        if (part := node.args.get(clause)) is not None:
            raise NotYet(
                "a clause after a query in parentheses",
                node_span(part),
                hint="write it inside, or leave the parentheses out",
            )


def _check_timed(query: Query, frame: exp.Expr, view: str = "") -> None:
    if query.timed:
        return
    untimed = "groups have no ts, nor have rows of DISTINCT, LIMIT, UNION, INTERSECT and EXCEPT"
    if view:
        raise WindowProblem(
            f"a window bounds the ts of rows, and those of the view {view} have none",
            node_span(frame),
            hint=f"give the other streams theirs: stream WINDOW(…); {untimed}",
        )
    raise WindowProblem(
        "a window bounds the ts of rows, and those of this query have none",
        node_span(frame),
        hint=f"write the window inside the query; {untimed}",
    )


def _over_validity(schema: StreamSchema, frame: exp.Expr) -> NotYet:
    return NotYet(
        f"a window over a query or a view of {schema.name}, whose rows have a validity",
        node_span(frame),
        hint="write the window inside the query; give the other streams theirs: stream WINDOW(…)",
    )


def whole_operation(query: Query) -> SetOperation | None:
    """Return the set operation that a query inside another is, without order or limits; else
    None."""
    source = query.source
    if is_limited(query) or query.grouping is not None or query.distinct or query.refresh:
        return None
    if not isinstance(source, From) or len(source.items) != 1 or source.subqueries:
        return None
    (item,) = source.items
    if not isinstance(item, SetOperation) or source.on != TRUE:
        return None
    return item if _outputs_of(item) == query.outputs else None


def _around(query: Query) -> Query:
    """Return a query of the rows of another, which may have a window over them."""
    return Query(From((query,)), _outputs_of(query))


def _outputs_of(item: Query | SetOperation) -> tuple[Output, ...]:
    """Return the outputs that show all columns of an only item."""
    columns = item.columns
    return tuple(Output(c.name, ColumnRef(item_column(0, c.name), c.type)) for c in columns)
