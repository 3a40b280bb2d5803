"""The clauses of a SELECT, bound: the outputs, conditions, ORDER BY, LIMIT."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from datastem.types import Kind
from querystem.expressions import TRUE, Expression, Literal, Parameter
from querystem.language.errors import (
    BindProblem,
    Span,
    SyntaxProblem,
    TypeProblem,
    UnknownColumn,
)
from querystem.language.expressions.bind import Binder, identifier
from querystem.language.expressions.coerce import need, need_type
from querystem.language.expressions.scope import Scope
from querystem.language.functions.aggregates import is_aggregate
from querystem.language.syntax.tree import consume, node_span
from querystem.language.tokens.literals import Typed
from querystem.query import Output, SortKey


def bind_condition(clause: exp.Expr | None, word: str, binder: Binder) -> Expression:
    """Return the condition after WHERE, or another word; TRUE without one."""
    if clause is None:
        return TRUE
    consume(clause, "this")
    return replace(binder, clause=word).condition(clause.this).node


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
    """Return the outputs of a SELECT, one or more, each with its own name; `*` stands for the
    declared columns."""
    if not select.expressions:
        raise SyntaxProblem("SELECT selects nothing", node_span(select), hint="write SELECT * …")
    items: list[OutputItem] = []
    names: set[str] = set()
    for node in select.expressions:
        for item in _items(node, len(items) + 1, scope):
            if item.name in names:
                raise BindProblem(
                    f"two outputs are named {item.name}",
                    node_span(node),
                    hint=_duplicate_hint(node, scope),
                    reason="DUPLICATE_NAME",
                )
            names.add(item.name)
            items.append(item)
    if not items:
        raise SyntaxProblem("FROM is missing", node_span(select), hint="write SELECT * FROM stream")
    return items


def at_position(node: exp.Expr, items: Sequence[OutputItem], clause: str) -> exp.Expr | None:
    """Return the output that a bare whole number means, as in ORDER BY 2; None for anything
    else."""
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
    """Return the output that a name alone means; None for anything else."""
    node = node.unnest()
    if not isinstance(node, exp.Column) or node.args.get("table") is not None:
        return None
    name = _column_name(node)
    return next((item.node for item in items if item.name == name), None)


def _duplicate_hint(node: exp.Expr, scope: Scope) -> str:
    if _is_star(node) and len(scope.items) > 1:
        first, second = scope.items[:2]
        return f"write SELECT {first.name}.*, {second.name}.{second.star_columns[0]} AS other"
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
    """Yield an item for every column that the star stands for, each with the place of the star."""
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
    """Return a column, `of` an item of FROM or any, as if it were written at `span`."""
    column = exp.Column(this=exp.Identifier(this=name, quoted=True))
    if of is not None:
        column.set("table", exp.Identifier(this=of, quoted=True))
    return column.update_positions(start=span.start, end=span.end - 1)


def _column_name(node: exp.Expr) -> str:
    """Return the name of a column as it is written, in lower case unless quoted; empty for any
    other node. The binder finds out whether there is such a column."""
    if not isinstance(node, exp.Column) or not isinstance(node.this, exp.Identifier):
        return ""
    name = str(node.this.this)
    return name if node.this.args.get("quoted") else name.lower()


def is_constant(node: exp.Expr, value: Typed) -> bool:
    """Return whether `node`, bound as `value`, is written as a constant.

    A constant may still take another type from its neighbours. A node that reads a column or an
    aggregate is no constant, even if it is bound to one, as `size > 3 AND FALSE` is: whether a text
    is accepted must not depend on what can be simplified.
    """
    if not isinstance(value.node, Literal | Parameter):
        return False
    return not any(isinstance(part, exp.Column) or is_aggregate(part) for part in node.walk())


def need_varying(node: exp.Expr, value: Typed, clause: str) -> Expression:
    """Return the bound expression; raise TypeProblem for a constant, which would make one group, or
    no order."""
    if is_constant(node, value):
        raise TypeProblem(
            f"{clause} takes a column, an expression or the number of an output, not a constant",
            value.span,
            hint="names are written without quotes",
        )
    return value.node


def bind_order(
    order: exp.Expr | None, items: Sequence[OutputItem], binder: Binder
) -> tuple[SortKey, ...]:
    """Return the keys of ORDER BY. A name alone is an output's before it is a column's; in an
    expression it is a column's."""
    if order is None:
        return ()
    consume(order, "expressions")
    binder = replace(binder, clause="ORDER BY")
    return tuple(_sort_key(node, items, binder) for node in order.expressions)


def check_distinct(
    order: exp.Expr | None, order_by: Sequence[SortKey], outputs: Sequence[Output]
) -> None:
    """Refuse to order by an expression that is not selected: DISTINCT leaves only outputs."""
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
    """Return the number after LIMIT or OFFSET, or the parameter that stands there."""
    if clause is None:
        return None
    consume(clause, "expression")
    if (column := clause.find(exp.Column)) is not None:
        raise TypeProblem(f"{word} takes a number or a parameter", node_span(column))
    number = replace(binder, clause=word).bind(clause.args["expression"])
    value = need(number, Kind.BIGINT, word)
    if isinstance(value.node, Literal):
        count_of(value.node, word, value.span)
    if not isinstance(value.node, Literal | Parameter):
        raise TypeProblem(f"{word} takes a number or a parameter", value.span)
    return value


def count_of(literal: Literal, word: str, span: Span) -> int:
    value = literal.value
    if not isinstance(value, int) or value < 0:
        written = "NULL" if value is None else value
        raise TypeProblem(
            f"{word} takes a whole number from 0, not {written}", span, reason="BAD_VALUE"
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
