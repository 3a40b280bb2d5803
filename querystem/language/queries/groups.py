"""GROUP BY: expressions over groups, which see keys and aggregates of rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from querystem.expressions import ColumnRef, Expression, Now, references_of
from querystem.grouping import Aggregate, Grouping, aggregate_name, key_name
from querystem.language.errors import BindProblem, NotYet, Span
from querystem.language.expressions.bind import OUTER, Binder, InnerQueries, identifier
from querystem.language.expressions.coerce import need_type
from querystem.language.functions.aggregates import bind_aggregate, is_aggregate
from querystem.language.normal_form.normal import sort_key
from querystem.language.queries.clauses import (
    OutputItem,
    at_position,
    by_name,
    is_constant,
    need_varying,
)
from querystem.language.syntax.tree import consume, is_query, node_span, outside_queries
from querystem.language.tokens.literals import Typed
from querystem.language.tokens.names import write_name


@dataclass
class GroupBinder(Binder):
    """Binds the expressions of SELECT, HAVING and ORDER BY over groups: keys, and aggregates of
    rows.

    `rows` binds over rows; `keys` numbers the normal forms of the keys; `mixed` has the ids of the
    nodes that hold an aggregate or a query; `queried` are the keys that hold a query, as they are
    written. Aggregates are collected as they occur, equal ones
    once.
    """

    rows: Binder = field(kw_only=True)
    keys: Mapping[str, Expression] = field(kw_only=True)
    mixed: Collection[int] = field(kw_only=True)
    queried: Sequence[exp.Expr] = ()
    aggregates: dict[Aggregate, int] = field(default_factory=dict)

    @property
    def grouping(self) -> Grouping:
        return Grouping(tuple(self.keys.values()), tuple(self.aggregates))

    def bind(self, node: exp.Expr) -> Typed:
        if self.keys and (id(node) not in self.mixed or node in self.queried):
            bound = self.rows.bind(next((key for key in self.queried if key == node), node))
            number = None if is_constant(node, bound) else self._key(bound.node)
            if number is not None:
                return Typed(ColumnRef(key_name(number), bound.type), bound.span)
        bound = super().bind(node)
        is_free = isinstance(bound.node, Now) or _is_outer(bound.node)
        if isinstance(node, exp.Column) and not is_free:
            raise _not_grouped(node, bound.span)
        return bound

    def _key(self, expression: Expression) -> int | None:
        form = sort_key(expression)
        return next((number for number, key in enumerate(self.keys) if key == form), None)

    def _aggregate(self, node: exp.Expr) -> Typed:
        aggregate = bind_aggregate(node, replace(self.rows, clause="an aggregate").bind)
        argument = aggregate.argument
        read = [] if argument is None else list(references_of(argument))
        if read and all(map(_is_outer, read)):
            raise NotYet(
                "an aggregate of columns of the outer query alone",
                node_span(node),
                hint="compute it in the outer query",
            )
        number = self.aggregates.setdefault(aggregate, len(self.aggregates))
        return Typed(ColumnRef(aggregate_name(number), aggregate.type), node_span(node))


def _is_outer(expression: Expression) -> bool:
    return isinstance(expression, ColumnRef) and expression.name.startswith(OUTER)


def _not_grouped(column: exp.Expr, span: Span) -> BindProblem:
    parts = [column.args.get("table"), column.this]
    name = ".".join(write_name(identifier(part)) for part in parts if part is not None)
    return BindProblem(
        f"{name} is neither grouped nor inside an aggregate",
        span,
        hint=f"add it to GROUP BY, or write an aggregate such as last({name})",
        reason="NOT_GROUPED",
    )


@dataclass
class _RowBinder(Binder):
    """A binder that binds each node once, however often it is called."""

    done: dict[int, Typed] = field(default_factory=dict)

    def bind(self, node: exp.Expr) -> Typed:
        if id(node) not in self.done:
            self.done[id(node)] = super().bind(node)
        return self.done[id(node)]


def group_binder(
    select: exp.Expr,
    items: Sequence[OutputItem],
    base: Binder,
    inner_queries: InnerQueries | None,
) -> GroupBinder | None:
    """Return the binder of a query that groups or aggregates; None for a query that answers rows.
    `inner_queries` binds queries inside its expressions over groups."""
    mixed = _holding(select, is_aggregate)
    if not mixed and not select.args.get("group") and not select.args.get("having"):
        return None
    rows = _RowBinder(base.scope, base.parameters, "GROUP BY", base.outputs, base.used)
    rows.outer, rows.beyond, rows.functions = base.outer, base.beyond, base.functions
    rows.has_now = base.has_now
    rows.inner_queries = base.inner_queries
    keys = _keys(select.args.get("group"), items, rows)
    queried = [node for node in _key_nodes(select, items, rows) if _holds_query(node)]
    return GroupBinder(
        base.scope,
        base.parameters,
        outputs=base.outputs,
        used=base.used,
        inner_queries=inner_queries,
        outer=base.outer,
        beyond=base.beyond,
        functions=base.functions,
        has_now=base.has_now,
        rows=rows,
        keys=keys,
        queried=queried,
        mixed=mixed | _holding(select, is_query),
    )


def _holding(select: exp.Expr, what: Callable[[exp.Expr], bool]) -> frozenset[int]:
    """Return the ids of the nodes, outside inner queries, of which `what` is true, and of the nodes
    around them."""
    ids: set[int] = set()
    for clause in ("expressions", "having", "order"):
        part = select.args.get(clause) or []
        for root in part if isinstance(part, list) else [part]:
            for node in filter(what, outside_queries(root)):
                ids.update(_with_parents(node))
    return frozenset(ids)


def _with_parents(node: exp.Expr) -> list[int]:
    ids = []
    above: exp.Expr | None = node
    while above is not None and not isinstance(above, exp.Select):
        ids.append(id(above))
        above = above.parent
    return ids


def _keys(
    group: exp.Expr | None, items: Sequence[OutputItem], rows: Binder
) -> Mapping[str, Expression]:
    if group is None:
        return {}
    consume(group, "expressions")
    keys: dict[str, Expression] = {}
    for node in group.expressions:
        expression = _key(node, items, rows)
        keys.setdefault(sort_key(expression), expression)
    return keys


def _key_nodes(select: exp.Expr, items: Sequence[OutputItem], rows: Binder) -> Iterator[exp.Expr]:
    """Yield the keys of GROUP BY as they are written, also those that are outputs."""
    group = select.args.get("group")
    for node in group.expressions if group is not None else ():
        yield _output_of(node, items, rows) or node


def _holds_query(node: exp.Expr) -> bool:
    return any(map(is_query, outside_queries(node)))


def _output_of(node: exp.Expr, items: Sequence[OutputItem], rows: Binder) -> exp.Expr | None:
    """Return the output that a key of GROUP BY is; None for any other key. A name means a column
    before it means an output."""
    output = at_position(node, items, "GROUP BY")
    if output is None and not _is_column(node, rows):
        output = by_name(node, items)
    return output


def _key(node: exp.Expr, items: Sequence[OutputItem], rows: Binder) -> Expression:
    """Return a key of GROUP BY."""
    output = _output_of(node, items, rows)
    if output is not None:
        return need_type(rows.bind(output)).node
    value = rows.bind(node)
    key = need_varying(node, value, "GROUP BY")
    need_type(value)
    return key


def _is_column(node: exp.Expr, rows: Binder) -> bool:
    return isinstance(node.unnest(), exp.Column) and rows.scope.has(node.unnest().name.lower())
