"""ORDER BY, LIMIT and OFFSET."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from datastem.types import Kind
from querystem.expressions import Expression, Literal, Parameter
from querystem.language.bind import Binder
from querystem.language.coerce import need, need_type
from querystem.language.errors import BindProblem, Span, TypeProblem
from querystem.language.grouping import need_varying
from querystem.language.outputs import Item, at_position, by_name
from querystem.language.tree import consume, node_span
from querystem.query import Output, SortKey

Count = Literal | Parameter


def bind_order(
    order: exp.Expr | None, items: Sequence[Item], binder: Binder
) -> tuple[SortKey, ...]:
    """A name alone is an output's before it is a column's; in an expression it is a column's."""
    if order is None:
        return ()
    consume(order, "expressions")
    return tuple(_sort_key(node, items, binder) for node in order.expressions)


def check_distinct(
    order: exp.Expr | None, order_by: Sequence[SortKey], outputs: Sequence[Output]
) -> None:
    """DISTINCT leaves only what is selected to order by."""
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


def bind_count(clause: exp.Expr | None, word: str, binder: Binder) -> Count | None:
    """The number after LIMIT or OFFSET, or the parameter that will bring it."""
    if clause is None:
        return None
    consume(clause, "expression")
    value = need(binder.bind(clause.args["expression"]), Kind.BIGINT, word)
    if isinstance(value.node, Literal):
        count_of(value.node, word, value.span)
    if not isinstance(value.node, Literal | Parameter):
        raise TypeProblem(f"{word} takes a number or a parameter", value.span)
    return value.node


def count_of(literal: Literal, word: str, span: Span) -> int:
    value = literal.value
    if not isinstance(value, int) or value < 0:
        shown = "NULL" if value is None else value
        raise TypeProblem(
            f"{word} takes a whole number from 0, not {shown}", span, reason="BAD_VALUE"
        )
    return value


def _sort_key(node: exp.Expr, items: Sequence[Item], binder: Binder) -> SortKey:
    consume(node, "this", "desc", "nulls_first")
    descending, nulls_first = bool(node.args["desc"]), bool(node.args["nulls_first"])
    return SortKey(_expression(node.this, items, binder), descending, nulls_first)


def _expression(node: exp.Expr, items: Sequence[Item], binder: Binder) -> Expression:
    output = at_position(node, items, "ORDER BY")
    if output is None:
        output = by_name(node, items)
    if output is not None:
        return need_type(binder.bind(output)).node
    return need_varying(node, binder.bind(node), "ORDER BY")
