"""The clauses of a SELECT, bound: the outputs, GROUP BY with aggregates, ORDER BY, LIMIT."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from datastem.types import Kind
from querystem.expressions import TRUE, ColumnRef, Expression, Literal, Parameter
from querystem.grouping import Aggregate, Grouping, aggregate_name, key_name
from querystem.language.bind import Asking, Binder, identifier
from querystem.language.coerce import need, need_type
from querystem.language.errors import (
    BindProblem,
    Span,
    SyntaxProblem,
    TypeProblem,
    UnknownColumn,
)
from querystem.language.functions import bind_aggregate, is_aggregate
from querystem.language.literals import Typed
from querystem.language.names import write_name
from querystem.language.normal import sort_key
from querystem.language.scope import Scope
from querystem.language.tree import consume, is_query, node_span
from querystem.query import Output, SortKey


def bind_condition(clause: exp.Expr | None, binder: Binder) -> Expression:
    if clause is None:
        return TRUE
    consume(clause, "this")
    return binder.condition(clause.this).node


@dataclass(frozen=True, slots=True)
class OutputItem:
    """An output of SELECT that is not bound yet."""

    name: str
    node: exp.Expr

    @property
    def renamed(self) -> bool:
        """Whether the output's name is another than that of the column it shows."""
        return self.name != _column_name(self.node)


def read_items(select: exp.Expr, scope: Scope) -> Sequence[OutputItem]:
    """The outputs of a SELECT, one or more, each with its own name; `*` stands for the declared
    columns."""
    if not select.expressions:
        raise SyntaxProblem("SELECT selects nothing", node_span(select), hint="write SELECT * …")
    items: list[OutputItem] = []
    seen: set[str] = set()
    for node in select.expressions:
        for item in _items(node, len(items) + 1, scope):
            if item.name in seen:
                raise BindProblem(
                    f"two outputs are named {item.name}",
                    node_span(node),
                    hint=_duplicate_hint(node, scope),
                    reason="DUPLICATE_NAME",
                )
            seen.add(item.name)
            items.append(item)
    return items


def at_position(node: exp.Expr, items: Sequence[OutputItem], clause: str) -> exp.Expr | None:
    """The output that a bare whole number means, as in ORDER BY 2; None for anything else."""
    node = node.unnest()
    if not isinstance(node, exp.Literal) or node.args["is_string"] or not node.this.isdigit():
        return None
    consume(node, "this", "is_string")
    number = node.this.lstrip("0") or "0"
    if len(number) > 9 or not 1 <= int(number) <= len(items):
        raise UnknownColumn(
            f"{clause} {number[:60]}: there is no such output",
            node_span(node),
            hint=f"the outputs are numbered from 1 to {len(items)}",
        )
    return items[int(number) - 1].node


def by_name(node: exp.Expr, items: Sequence[OutputItem]) -> exp.Expr | None:
    """The output that a name alone means; None for anything else."""
    node = node.unnest()
    if not isinstance(node, exp.Column) or node.args.get("table") is not None:
        return None
    name = _column_name(node)
    return next((item.node for item in items if item.name == name), None)


def _duplicate_hint(node: exp.Expr, scope: Scope) -> str:
    if _is_star(node) and len(scope.items) > 1:
        first, second = scope.items[:2]
        return f"write SELECT {first.name}.*, {second.name}.{second.shown[0]} AS other"
    return "give one of them another name with AS"


def _is_star(node: exp.Expr) -> bool:
    return isinstance(node, exp.Star) or (
        isinstance(node, exp.Column) and isinstance(node.this, exp.Star)
    )


def _items(node: exp.Expr, position: int, scope: Scope) -> Iterator[OutputItem]:
    if _is_star(node):
        yield from _star(node, scope)
    elif isinstance(node, exp.Alias):
        consume(node, "this", "alias")
        yield OutputItem(identifier(node.args["alias"]), node.this)
    else:
        yield OutputItem(_column_name(node.unnest()) or f"column_{position}", node)


def _star(node: exp.Expr, scope: Scope) -> Iterator[OutputItem]:
    """An item for every column that the star stands for, each placed where it stands."""
    span, of = node_span(node), None
    if isinstance(node, exp.Column):
        consume(node, "this", "table")
        if (table := node.args.get("table")) is not None:
            of = scope.item(identifier(table), node_span(table)).name
        node = node.this
    consume(node)
    several = len(scope.items) > 1
    for item, name in scope.star(of):
        yield OutputItem(name, placed(name, span, item.name if several else None))


def placed(name: str, span: Span, of: str | None = None) -> exp.Expr:
    """A column, `of` an item of FROM or any, as if it were written at `span`."""
    column = exp.Column(this=exp.Identifier(this=name, quoted=True))
    if of is not None:
        column.set("table", exp.Identifier(this=of, quoted=True))
    return column.update_positions(start=span.start, end=span.end - 1)


def _column_name(node: exp.Expr) -> str:
    """The name of a column as it is written, in lower case unless quoted; empty for any other node.
    The binder tells whether there is such a column."""
    if not isinstance(node, exp.Column) or not isinstance(node.this, exp.Identifier):
        return ""
    name = str(node.this.this)
    return name if node.this.args.get("quoted") else name.lower()


@dataclass
class GroupBinder(Binder):
    """Binds the expressions of SELECT, HAVING and ORDER BY over groups: keys, and aggregates of
    rows.

    `rows` binds over rows; `keys` numbers the normal forms of the keys; `mixed` has the ids of the
    nodes that hold an aggregate or a query. Aggregates are collected as they are met, equal ones
    once.
    """

    rows: Binder = field(kw_only=True)
    keys: Mapping[str, Expression] = field(kw_only=True)
    mixed: Collection[int] = field(kw_only=True)
    aggregates: dict[Aggregate, int] = field(default_factory=dict)

    @property
    def grouping(self) -> Grouping:
        return Grouping(tuple(self.keys.values()), tuple(self.aggregates))

    def bind(self, node: exp.Expr) -> Typed:
        if self.keys and id(node) not in self.mixed:
            bound = self.rows.bind(node)
            number = None if is_constant(node, bound) else self._key(bound.node)
            if number is not None:
                return Typed(ColumnRef(key_name(number), bound.type), bound.span)
        bound = super().bind(node)
        if isinstance(node, exp.Column):
            raise _not_grouped(node, bound.span)
        return bound

    def _key(self, expression: Expression) -> int | None:
        form = sort_key(expression)
        return next((number for number, key in enumerate(self.keys) if key == form), None)

    def _aggregate(self, node: exp.Expr) -> Typed:
        aggregate = bind_aggregate(node, replace(self.rows, clause="an aggregate").bind)
        number = self.aggregates.setdefault(aggregate, len(self.aggregates))
        return Typed(ColumnRef(aggregate_name(number), aggregate.type), node_span(node))


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
    """A binder that binds each node once, however often it is asked."""

    done: dict[int, Typed] = field(default_factory=dict)

    def bind(self, node: exp.Expr) -> Typed:
        if id(node) not in self.done:
            self.done[id(node)] = super().bind(node)
        return self.done[id(node)]


def group_binder(
    select: exp.Expr, items: Sequence[OutputItem], base: Binder, asking: Asking | None
) -> GroupBinder | None:
    """The binder of a query that groups or aggregates; None for a query that answers rows. Queries
    inside its expressions over groups are bound by `asking`."""
    mixed = _holding(select, is_aggregate)
    if not mixed and not select.args.get("group") and not select.args.get("having"):
        return None
    rows = _RowBinder(base.scope, base.parameters, "GROUP BY", base.outputs, base.used)
    rows.outer = base.outer
    keys = _keys(select.args.get("group"), items, rows)
    rows.asking = base.asking
    return GroupBinder(
        base.scope,
        base.parameters,
        outputs=base.outputs,
        used=base.used,
        asking=asking,
        outer=base.outer,
        rows=rows,
        keys=keys,
        mixed=mixed | _holding(select, is_query),
    )


def _holding(select: exp.Expr, what: Callable[[exp.Expr], bool]) -> frozenset[int]:
    """The ids of the nodes that are something, outside inner queries, or hold such a node."""
    found: set[int] = set()
    for clause in ("expressions", "having", "order"):
        part = select.args.get(clause) or []
        for root in part if isinstance(part, list) else [part]:
            for node in filter(what, root.walk(prune=is_query)):
                found.update(_with_parents(node))
    return frozenset(found)


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


def _key(node: exp.Expr, items: Sequence[OutputItem], rows: Binder) -> Expression:
    """A column of that name comes before an output of that name."""
    output = at_position(node, items, "GROUP BY")
    if output is None and not _is_column(node, rows):
        output = by_name(node, items)
    if output is not None:
        return need_type(rows.bind(output)).node
    value = rows.bind(node)
    key = need_varying(node, value, "GROUP BY")
    need_type(value)
    return key


def is_constant(node: exp.Expr, value: Typed) -> bool:
    """Whether `node`, bound as `value`, is written as a constant.

    A constant may still take another type from its neighbours. A node that reads a column or an
    aggregate is no constant, even if it is bound to one, as `size > 3 AND FALSE` is: whether a text
    is accepted must not depend on what can be simplified.
    """
    if not isinstance(value.node, Literal | Parameter):
        return False
    return not any(isinstance(part, exp.Column) or is_aggregate(part) for part in node.walk())


def need_varying(node: exp.Expr, value: Typed, clause: str) -> Expression:
    """The bound expression; refuses a constant, which would make one group, or no order."""
    if is_constant(node, value):
        raise TypeProblem(
            f"{clause} takes a column, an expression or the number of an output, not a constant",
            value.span,
            hint="names are written without quotes",
        )
    return value.node


def _is_column(node: exp.Expr, rows: Binder) -> bool:
    return isinstance(node.unnest(), exp.Column) and rows.scope.has(node.unnest().name.lower())


def bind_order(
    order: exp.Expr | None, items: Sequence[OutputItem], binder: Binder
) -> tuple[SortKey, ...]:
    """The keys of ORDER BY. A name alone is an output's before it is a column's; in an expression
    it is a column's."""
    if order is None:
        return ()
    consume(order, "expressions")
    return tuple(_sort_key(node, items, binder) for node in order.expressions)


def check_distinct(
    order: exp.Expr | None, order_by: Sequence[SortKey], outputs: Sequence[Output]
) -> None:
    """Refuses to order by an expression that is not selected: DISTINCT leaves only outputs."""
    selected = [output.expression for output in outputs]
    for number, key in enumerate(order_by):
        if key.expression not in selected:
            assert order is not None
            raise BindProblem(
                "DISTINCT orders by what it selects, and this is not selected",
                node_span(order.expressions[number].this),
                hint="add it to SELECT, or leave DISTINCT out",
                reason="NOT_SELECTED",
            )


def bind_count(clause: exp.Expr | None, word: str, binder: Binder) -> Typed | None:
    """The number after LIMIT or OFFSET, or the parameter that will bring it."""
    if clause is None:
        return None
    consume(clause, "expression")
    if (column := clause.find(exp.Column)) is not None:
        raise TypeProblem(f"{word} takes a number or a parameter", node_span(column))
    value = need(binder.bind(clause.args["expression"]), Kind.BIGINT, word)
    if isinstance(value.node, Literal):
        count_of(value.node, word, value.span)
    if not isinstance(value.node, Literal | Parameter):
        raise TypeProblem(f"{word} takes a number or a parameter", value.span)
    return value


def count_of(literal: Literal, word: str, span: Span) -> int:
    value = literal.value
    if not isinstance(value, int) or value < 0:
        shown = "NULL" if value is None else value
        raise TypeProblem(
            f"{word} takes a whole number from 0, not {shown}", span, reason="BAD_VALUE"
        )
    return value


def _sort_key(node: exp.Expr, items: Sequence[OutputItem], binder: Binder) -> SortKey:
    consume(node, "this", "desc", "nulls_first")
    descending, nulls_first = bool(node.args["desc"]), bool(node.args["nulls_first"])
    return SortKey(_expression(node.this, items, binder), descending, nulls_first)


def _expression(node: exp.Expr, items: Sequence[OutputItem], binder: Binder) -> Expression:
    output = at_position(node, items, "ORDER BY")
    if output is None:
        output = by_name(node, items)
    if output is not None:
        return need_type(binder.bind(output)).node
    return need_varying(node, binder.bind(node), "ORDER BY")
