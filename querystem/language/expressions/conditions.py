"""Conditions: comparisons, AND and OR, IN, LIKE, CASE and so on, as bound expressions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from sqlglot import exp

from datastem.types import BOOLEAN, TEXT, Kind, Type
from querystem.expressions import Literal, Op, Parameter
from querystem.language.errors import SyntaxProblem, TypeProblem
from querystem.language.expressions.clocks import check_days
from querystem.language.expressions.coerce import compare, need, settle, unify
from querystem.language.normal_form.normal import FALSE, call, like_pattern
from querystem.language.syntax.tree import chain, consume, node_span
from querystem.language.tokens.literals import Typed, null
from querystem.sources import SubQueryKind


@dataclass(frozen=True, slots=True)
class InnerQuery:
    """A query inside an expression: the node around it, and for ANY what its rows are compared
    with."""

    kind: SubQueryKind
    node: exp.Expr
    query: exp.Expr
    operand: Typed | None = None
    op: Op | None = None


class NodeBinder(Protocol):
    """The binder of the nodes of an expression."""

    def bind(self, node: exp.Expr) -> Typed: ...

    def boolean(self, node: exp.Expr, what_for: str) -> Typed: ...

    def query_value(self, query: InnerQuery) -> Typed: ...


def _connective(binder: NodeBinder, node: exp.Expr) -> Typed:
    op, word = (Op.AND, "AND") if isinstance(node, exp.And) else (Op.OR, "OR")
    args = tuple(binder.boolean(part, word).node for part in chain(node, type(node)))
    return Typed(call(op, args, BOOLEAN), node_span(node))


def _not(binder: NodeBinder, node: exp.Expr) -> Typed:
    consume(node, "this")
    return _negated(binder.boolean(node.this, "NOT"))


def _compare(binder: NodeBinder, node: exp.Expr) -> Typed:
    consume(node, "this", "expression")
    if type(node.this) in _COMPARISONS or type(node.args["expression"]) in _COMPARISONS:
        raise SyntaxProblem(
            "comparisons can't be chained", node_span(node), hint="use AND, or parentheses"
        )
    op = _COMPARISONS[type(node)]
    quantified = _quantified(node.args["expression"])
    if quantified is not None and op in _NEGATIONS:
        return _compare_all(binder, node, op, *quantified)
    return _compared(op, binder.bind(node.this), binder.bind(node.args["expression"]), node)


def _compared(op: Op, lhs: Typed, rhs: Typed, node: exp.Expr) -> Typed:
    span = node_span(node)
    check_days(lhs, rhs, span)
    return compare(op, lhs, rhs, span)


def _is_not_distinct(binder: NodeBinder, node: exp.Expr) -> Typed:
    consume(node, "this", "expression")
    lhs, rhs = binder.bind(node.this), binder.bind(node.args["expression"])
    return _negated(_compared(Op.IS_DISTINCT, lhs, rhs, node))


def _is(binder: NodeBinder, node: exp.Expr) -> Typed:
    consume(node, "this", "expression")
    span, test = node_span(node), node.args["expression"]
    if isinstance(test, exp.Null):
        return Typed(call(Op.IS_NULL, (binder.bind(node.this).node,), BOOLEAN), span)
    if not isinstance(test, exp.Boolean):
        raise SyntaxProblem(
            "IS takes NULL, TRUE, FALSE or DISTINCT FROM", span, hint="= compares values"
        )
    value = binder.boolean(node.this, "IS")
    if not test.this:
        value = _negated(value)
    return Typed(call(Op.COALESCE, (value.node, FALSE), BOOLEAN), span)


def _between(binder: NodeBinder, node: exp.Expr) -> Typed:
    consume(node, "this", "low", "high")
    span, value = node_span(node), binder.bind(node.this)
    low = _compared(Op.GE, value, binder.bind(node.args["low"]), node)
    high = _compared(Op.LE, value, binder.bind(node.args["high"]), node)
    return Typed(call(Op.AND, (low.node, high.node), BOOLEAN), span)


def _in(binder: NodeBinder, node: exp.Expr) -> Typed:
    consume(node, "this", "expressions", "query")
    if (query := node.args.get("query")) is not None:
        inner = InnerQuery(SubQueryKind.ANY, node, query, binder.bind(node.this), Op.EQ)
        return binder.query_value(inner)
    span, value = node_span(node), binder.bind(node.this)
    items = [binder.bind(item) for item in node.expressions]
    if not items:
        # As in SQLite: nothing is among no values, not even NULL.
        return Typed(FALSE, span)
    if value.open:
        value = settle(value, next((i.type for i in items if not i.open), TEXT))
    constants: list[Typed] = []
    equal: list[Typed] = []
    for item in items:
        test = compare(Op.EQ, value, item, item.span)
        item = settle(item, value.type)
        plain = isinstance(item.node, Literal | Parameter) and _one_kind(item.type, value.type)
        (constants if plain else equal).append(item if plain else test)
    tests = [test.node for test in equal]
    if constants:
        tests.append(call(Op.IN, (value.node, *(c.node for c in constants)), BOOLEAN))
    return Typed(call(Op.OR, tuple(tests), BOOLEAN), span)


def _escape(binder: NodeBinder, node: exp.Expr) -> Typed:
    consume(node, "this", "expression")
    escape = node.args["expression"]
    if not isinstance(node.this, exp.Like) or not isinstance(escape, exp.Literal):
        raise SyntaxProblem("ESCAPE follows LIKE and takes one character", node_span(node))
    return _like(binder, node.this, str(escape.this))


def _like(binder: NodeBinder, node: exp.Expr, escape: str = "\\") -> Typed:
    consume(node, "this", "expression", "negate")
    span = node_span(node)
    text = need(binder.bind(node.this), Kind.TEXT, "LIKE")
    pattern = need(binder.bind(node.args["expression"]), Kind.TEXT, "LIKE")
    if len(escape) != 1:
        raise SyntaxProblem("ESCAPE takes one character", span)
    if isinstance(pattern.node, Literal) and isinstance(pattern.node.value, str):
        canonical = like_pattern(pattern.node.value, escape, pattern.span)
        pattern = Typed(Literal(canonical, TEXT), pattern.span)
    elif not isinstance(pattern.node, Literal | Parameter) or escape != "\\":
        raise TypeProblem("LIKE needs a constant pattern", pattern.span)
    matched = Typed(call(Op.LIKE, (text.node, pattern.node), BOOLEAN), span)
    return _negated(matched) if node.args.get("negate") else matched


def _case(binder: NodeBinder, node: exp.Expr) -> Typed:
    consume(node, "this", "ifs", "default")
    span, default = node_span(node), node.args.get("default")
    subject = binder.bind(node.this) if node.this else None
    conditions, values = [], []
    for branch in node.args["ifs"]:
        consume(branch, "this", "true")
        conditions.append(_when(binder, subject, branch.this))
        values.append(binder.bind(branch.args["true"]))
    values.append(binder.bind(default) if default else null(span))
    unified, type_ = unify(values, span)
    pairs = zip(conditions, unified, strict=False)
    nodes = [part.node for pair in pairs for part in pair]
    return Typed(call(Op.CASE, (*nodes, unified[-1].node), type_), span)


def _when(binder: NodeBinder, subject: Typed | None, node: exp.Expr) -> Typed:
    if subject is None:
        return binder.boolean(node, "WHEN")
    return compare(Op.EQ, subject, binder.bind(node), node_span(node))


def _compare_all(binder: NodeBinder, node: exp.Expr, op: Op, query: exp.Expr, every: bool) -> Typed:
    """Return a comparison with ANY row of a query, or with `every` row: no row may then satisfy the
    opposite."""
    op = _NEGATIONS[op] if every else op
    inner = InnerQuery(SubQueryKind.ANY, node, query, binder.bind(node.this), op)
    value = binder.query_value(inner)
    return _negated(value) if every else value


def _quantified(node: exp.Expr) -> tuple[exp.Expr, bool] | None:
    """Return the query in ALL, ANY or SOME (query), and whether all its rows are meant; else
    None."""
    if isinstance(node, exp.Any | exp.All):
        consume(node, "this")
        return node.this, isinstance(node, exp.All)
    is_some = isinstance(node, exp.Anonymous) and str(node.this).lower() == "some"
    if is_some and node.expressions and isinstance(node.expressions[0], exp.Subquery):
        return node.expressions[0], False
    return None


def _negated(value: Typed) -> Typed:
    return Typed(call(Op.NOT, (value.node,), BOOLEAN), value.span)


def _one_kind(lhs: Type, rhs: Type) -> bool:
    return lhs.kind is rhs.kind or (lhs.is_numeric and rhs.is_numeric)


_COMPARISONS: dict[type[exp.Expr], Op] = {
    exp.EQ: Op.EQ,
    exp.NEQ: Op.NE,
    exp.LT: Op.LT,
    exp.LTE: Op.LE,
    exp.GT: Op.GT,
    exp.GTE: Op.GE,
    exp.NullSafeNEQ: Op.IS_DISTINCT,
}
_NEGATIONS = {
    Op.EQ: Op.NE,
    Op.NE: Op.EQ,
    Op.LT: Op.GE,
    Op.GE: Op.LT,
    Op.GT: Op.LE,
    Op.LE: Op.GT,
}
CONDITIONS: dict[type[exp.Expr], Callable[[NodeBinder, exp.Expr], Typed]] = {
    **dict.fromkeys(_COMPARISONS, _compare),
    exp.And: _connective,
    exp.Or: _connective,
    exp.Not: _not,
    exp.NullSafeEQ: _is_not_distinct,
    exp.Is: _is,
    exp.Between: _between,
    exp.In: _in,
    exp.Like: _like,
    exp.Escape: _escape,
    exp.Case: _case,
}
