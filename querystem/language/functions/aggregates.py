"""The aggregates of the language, with their types."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from datastem.types import BIGINT, DOUBLE, MAX_PRECISION, Kind, Type, decimal_type
from querystem.expressions import Expression, Literal
from querystem.grouping import Aggregate, Function
from querystem.language.errors import BindProblem, Span, SyntaxProblem, TypeProblem
from querystem.language.expressions.coerce import closed, need_number
from querystem.language.syntax.tree import consume, node_span
from querystem.language.tokens.literals import Typed

_LEAST_MEAN_SCALE = 6
# DISTINCT makes no difference to these.
_PICKING = (Function.MIN, Function.MAX, Function.FIRST, Function.LAST)


# The values of x in examples of aggregates, in the order of ts.
SAMPLE = (4, 1, None, 4, 7)


@dataclass(frozen=True, slots=True)
class _Rule:
    """An aggregate: how it is written, what it means and the type it has, as the page shows it. The
    `example`, `name(x)` if it is empty, has a `value` over SAMPLE."""

    name: str
    function: Function
    type: Callable[[Type], Type]
    written: str
    meaning: str
    type_text: str
    numbers: bool = False
    example: str = ""
    value: str = ""


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


def _double(type_: Type) -> Type:
    return DOUBLE


def _bigint(type_: Type) -> Type:
    return BIGINT


AGGREGATES = {
    rule.name: rule
    for rule in (
        _Rule(
            "avg",
            Function.AVG,
            _avg,
            "avg(x)",
            "the mean",
            "DOUBLE, or DECIMAL(38,s) with s at least 6",
            numbers=True,
            value="4.0",
        ),
        _Rule(
            "count",
            Function.COUNT,
            _bigint,
            "count(*), count(x)",
            "how many rows, or values that are not NULL",
            "BIGINT",
            value="4",
        ),
        _Rule(
            "first",
            Function.FIRST,
            _same,
            "first(x)",
            "the value of the first row by (ts, row_id) that has one",
            "that of x",
            value="4",
        ),
        _Rule(
            "last",
            Function.LAST,
            _same,
            "last(x)",
            "the value of the last row by (ts, row_id) that has one",
            "that of x",
            value="7",
        ),
        _Rule(
            "max",
            Function.MAX,
            _same,
            "max(x)",
            "the greatest value; NaN is greatest",
            "that of x",
            value="7",
        ),
        _Rule(
            "median",
            Function.PERCENTILE,
            _double,
            "median(x)",
            "the middle value, or the mean of the two in the middle: `percentile(x, 0.5)`",
            "DOUBLE",
            numbers=True,
            value="4.0",
        ),
        _Rule("min", Function.MIN, _same, "min(x)", "the least value", "that of x", value="1"),
        _Rule(
            "percentile",
            Function.PERCENTILE,
            _double,
            "percentile(x, p)",
            "with the n values in order, numbered from 0, the one at `p * (n - 1)`, interpolated "
            "between its neighbours; p is a constant from 0 to 1",
            "DOUBLE",
            numbers=True,
            example="percentile(x, 0.25)",
            value="3.25",
        ),
        _Rule(
            "stddev",
            Function.STDDEV,
            _double,
            "stddev(x)",
            "the standard deviation of the sample; NULL for fewer than two values",
            "DOUBLE",
            numbers=True,
            value="2.449489742783178",
        ),
        _Rule(
            "stddev_pop",
            Function.STDDEV_POP,
            _double,
            "stddev_pop(x)",
            "the standard deviation of all values",
            "DOUBLE",
            numbers=True,
            value="2.1213203435596424",
        ),
        _Rule(
            "stddev_samp",
            Function.STDDEV,
            _double,
            "stddev_samp(x)",
            "the same as `stddev(x)`",
            "DOUBLE",
            numbers=True,
            value="2.449489742783178",
        ),
        _Rule(
            "sum",
            Function.SUM,
            _sum,
            "sum(x)",
            "the sum; NULL if a BIGINT or DECIMAL overflows",
            "BIGINT, DOUBLE, or DECIMAL(38,s)",
            numbers=True,
            value="16",
        ),
        _Rule(
            "var_pop",
            Function.VAR_POP,
            _double,
            "var_pop(x)",
            "the variance of all values",
            "DOUBLE",
            numbers=True,
            value="4.5",
        ),
        _Rule(
            "var_samp",
            Function.VARIANCE,
            _double,
            "var_samp(x)",
            "the same as `variance(x)`",
            "DOUBLE",
            numbers=True,
            value="6.0",
        ),
        _Rule(
            "variance",
            Function.VARIANCE,
            _double,
            "variance(x)",
            "the variance of the sample; NULL for fewer than two values",
            "DOUBLE",
            numbers=True,
            value="6.0",
        ),
    )
}


def is_aggregate(node: exp.Expr) -> bool:
    return (
        isinstance(node, exp.Anonymous)
        and isinstance(node.this, str)
        and node.this.lower() in AGGREGATES
    )


def bind_aggregate(node: exp.Expr, bind: Callable[[exp.Expr], Typed]) -> Aggregate:
    """Return the aggregate of a node that `is_aggregate`; `bind` binds its argument."""
    consume(node, "this", "expressions")
    name, span, args = node.this.lower(), node_span(node), node.expressions
    distinct = len(args) == 1 and isinstance(args[0], exp.Distinct)
    if distinct:
        consume(args[0], "expressions")
        args = args[0].expressions
    fraction: float | None
    if name == "percentile":
        fraction, args = _fraction(args, bind, span), args[:1]
    else:
        fraction = 0.5 if name == "median" else None
    if len(args) != 1:
        hint = "count(*) counts rows" if name == "count" and not args else ""
        raise SyntaxProblem(f"{name} takes 1 argument, not {len(args)}", span, hint=hint)
    if isinstance(args[0], exp.Star):
        return _count_rows(name, distinct, args[0], span)
    return _aggregate(name, distinct, bind(args[0]), fraction)


def _fraction(args: list[exp.Expr], bind: Callable[[exp.Expr], Typed], span: Span) -> float:
    """Return the fraction of a percentile, which is its second argument."""
    if len(args) != 2:
        raise SyntaxProblem(
            f"percentile takes 2 arguments, not {len(args)}", span, hint="percentile(x, 0.95)"
        )
    value = bind(args[1])
    literal = value.node if isinstance(value.node, Literal) and value.type.is_numeric else None
    number = math.nan if literal is None or literal.value is None else float(str(literal.value))
    if not 0 <= number <= 1:
        raise TypeProblem(
            "percentile needs a constant from 0 to 1", value.span, hint="percentile(x, 0.95)"
        )
    return number


def misplaced(node: exp.Expr, clause: str) -> BindProblem:
    """Return the error for an aggregate in a clause that has nothing to aggregate."""
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


def _aggregate(name: str, distinct: bool, value: Typed, fraction: float | None) -> Aggregate:
    rule = AGGREGATES[name]
    argument = _argument(name, rule, value)
    distinct = distinct and rule.function not in _PICKING
    return Aggregate(rule.function, argument, distinct, rule.type(argument.type), fraction)


def _argument(name: str, rule: _Rule, value: Typed) -> Expression:
    value = closed(value)
    return need_number(value, name).node if rule.numbers else value.node
