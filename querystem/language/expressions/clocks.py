"""NOW outside windows: it is refused, with the window to write instead."""

from __future__ import annotations

from sqlglot import exp

from querystem.language.errors import Span, SyntaxProblem
from querystem.language.expressions.scope import Scope
from querystem.language.syntax.tree import node_span
from querystem.language.tokens.names import words

_CLOCKS = words("now current_timestamp current_date current_time localtimestamp")
_AT_END = "write the window at the end of the query: RANGE 5 SECONDS, or BEGIN NOW - 1 HOUR END NOW"


def is_clock(name: str) -> bool:
    return name.lower() in _CLOCKS


def refuse_clock(span: Span, hint: str = _AT_END) -> SyntaxProblem:
    return SyntaxProblem("NOW stands only in windows", span, hint=hint, reason="NOT_SUPPORTED")


def check_age(node: exp.Expr, scope: Scope) -> None:
    """Refuse a comparison like `NOW - 5 < ts`."""
    sides = node.this, node.args["expression"]
    for side, compared in (sides, sides[::-1]):
        if isinstance(side, exp.Sub) and _is_now(side.this, scope):
            before = isinstance(node, (exp.GT, exp.GTE) if side is node.this else (exp.LT, exp.LTE))
            window = _window(side.args["expression"], before)
            of = compared.args.get("table") if isinstance(compared, exp.Column) else None
            alone = "" if of is None else f", or WINDOW({window}) after {of.name}"
            raise refuse_clock(node_span(node), f"write {window} at the end of the query{alone}")


def _is_now(node: exp.Expr, scope: Scope) -> bool:
    if not isinstance(node, exp.Column) or node.args.get("table") is not None:
        return False
    return is_clock(node.name) and not scope.has(node.name.lower())


def _window(age: exp.Expr, before: bool) -> str:
    """Return the window of the rows that are at most so old or, with `before`, at least so old."""
    duration = "duration"
    if isinstance(age, exp.Literal) and not age.args["is_string"]:
        duration = f"{age.this} SECONDS"
    elif isinstance(age, exp.Interval) and age.args.get("unit") is not None:
        duration = f"{age.this.this} {age.args['unit'].name.upper()}"
    return f"BEGIN NOW - 30 DAYS END NOW - {duration}" if before else f"RANGE {duration}"
