"""The aggregates of the language, and their types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from datastem.types import BIGINT, DOUBLE, MAX_PRECISION, Kind, Type, decimal_type
from querystem.expressions import Expression
from querystem.language.coerce import need_number, need_type
from querystem.language.errors import BindProblem, Span, SyntaxProblem
from querystem.language.literals import Typed
from querystem.language.tree import consume, node_span
from querystem.query import Aggregate, Function

_LEAST_MEAN_SCALE = 6
# Repeats make no difference to these.
_PICKING = (Function.MIN, Function.MAX, Function.FIRST, Function.LAST)


@dataclass(frozen=True, slots=True)
class _Rule:
    function: Function
    type: Callable[[Type], Type]
    numbers: bool = False


def _sum(type_: Type) -> Type:
    if type_.kind is Kind.DECIMAL:
        return decimal_type(MAX_PRECISION, type_.scale)
    return type_


def _avg(type_: Type) -> Type:
    if type_.kind is Kind.DECIMAL:
        return decimal_type(MAX_PRECISION, max(_LEAST_MEAN_SCALE, type_.scale))
    return DOUBLE


def _same(type_: Type) -> Type:
    return type_


_STDDEV = _Rule(Function.STDDEV, lambda _: DOUBLE, numbers=True)

AGGREGATES = {
    "avg": _Rule(Function.AVG, _avg, numbers=True),
    "count": _Rule(Function.COUNT, lambda _: BIGINT),
    "first": _Rule(Function.FIRST, _same),
    "last": _Rule(Function.LAST, _same),
    "max": _Rule(Function.MAX, _same),
    "min": _Rule(Function.MIN, _same),
    "stddev": _STDDEV,
    "stddev_samp": _STDDEV,
    "sum": _Rule(Function.SUM, _sum, numbers=True),
}


def is_aggregate(node: exp.Expr) -> bool:
    return (
        isinstance(node, exp.Anonymous)
        and isinstance(node.this, str)
        and node.this.lower() in AGGREGATES
    )


def bind_aggregate(node: exp.Expr, bind: Callable[[exp.Expr], Typed]) -> Aggregate:
    """`node` is one that `is_aggregate`; `bind` binds its argument."""
    consume(node, "this", "expressions")
    name, span, args = node.this.lower(), node_span(node), node.expressions
    distinct = len(args) == 1 and isinstance(args[0], exp.Distinct)
    if distinct:
        consume(args[0], "expressions")
        args = args[0].expressions
    if len(args) != 1:
        hint = "count(*) counts rows" if name == "count" and not args else ""
        raise SyntaxProblem(f"{name} takes 1 argument, not {len(args)}", span, hint=hint)
    if isinstance(args[0], exp.Star):
        return _count_rows(name, distinct, args[0], span)
    return _aggregate(name, distinct, bind(args[0]))


def misplaced(node: exp.Expr, clause: str) -> BindProblem:
    """An aggregate where there is nothing to aggregate."""
    hints = {
        "WHERE": "WHERE chooses rows before they are grouped; write the condition in HAVING",
        "GROUP BY": "group by what the aggregate is taken over",
        "an aggregate": "aggregate once; an expression may hold several aggregates",
    }
    return BindProblem(
        f"{node.this.lower()} can't stand in {clause}",
        node_span(node),
        hint=hints.get(clause, ""),
        reason="MISPLACED_AGGREGATE",
    )


def _count_rows(name: str, distinct: bool, star: exp.Expr, span: Span) -> Aggregate:
    consume(star)
    if name != "count":
        raise SyntaxProblem(f"{name} takes a value, not *", span, hint="only count takes *")
    if distinct:
        raise SyntaxProblem(
            "count(DISTINCT *) is not part of the language", span, hint="count(DISTINCT column)"
        )
    return Aggregate(Function.COUNT_ROWS, None, False, BIGINT)


def _aggregate(name: str, distinct: bool, value: Typed) -> Aggregate:
    rule = AGGREGATES[name]
    argument = _argument(name, rule, value)
    distinct = distinct and rule.function not in _PICKING
    return Aggregate(rule.function, argument, distinct, rule.type(argument.type))


def _argument(name: str, rule: _Rule, value: Typed) -> Expression:
    value = need_type(value)
    return need_number(value, name).node if rule.numbers else value.node
