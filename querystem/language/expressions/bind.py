"""Expressions: sqlglot's tree becomes the bound form, typed strictly.

Conditions are bound by `conditions`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sqlglot import exp

from datastem.types import DURATION, TEXT, Kind, Type
from querystem.expressions import TRUE, ColumnRef, Literal, Now, Op, Parameter
from querystem.language.errors import (
    BindProblem,
    NotYet,
    Span,
    SyntaxProblem,
    UnknownParameter,
)
from querystem.language.expressions.clocks import check_clock, is_clock
from querystem.language.expressions.coerce import (
    arithmetic,
    explicit_cast,
    need,
    need_signed,
    negative,
)
from querystem.language.expressions.conditions import CONDITIONS, InnerQuery
from querystem.language.expressions.scope import Scope
from querystem.language.expressions.time_arithmetic import is_of_time, time_arithmetic
from querystem.language.expressions.time_zones import clock_time, misplaced_zone
from querystem.language.functions.aggregates import is_aggregate, misplaced
from querystem.language.functions.table import FUNCTIONS, bind_function, check_function
from querystem.language.functions.texts import concatenation
from querystem.language.normal_form.normal import FALSE
from querystem.language.syntax.tree import consume, node_span, what
from querystem.language.tokens.durations import read_interval
from querystem.language.tokens.literals import Typed, claim, null, number
from querystem.language.tokens.names import read_name, read_type
from querystem.pace import spending
from querystem.sources import SubQueryKind
from querystem.user_functions import FunctionDefinition

MAX_DEPTH = 100
# Units (`querystem.pace`) of a node that is bound.
_NODE_UNITS = 20_000


class InnerQueries(Protocol):
    """The queries inside the expressions of one block, as they are bound."""

    def value(self, query: InnerQuery, binder: Binder) -> Typed:
        """Return the value of a query that stands in an expression of `binder`."""


class UserFunctions(Protocol):
    """The functions that users define, as a text may call them."""

    def find(self, name: str) -> FunctionDefinition | None:
        """Return the function of a name, which no function of the language has."""

    def call(self, function: FunctionDefinition, args: Sequence[Typed], span: Span) -> Typed:
        """Return the value of a call at `span`; raise QueryError."""


@dataclass
class Binder:
    """Binds the expressions of one query.

    `scope` has the columns a name may mean, `parameters` the types of `:name`; None is the type of
    a parameter that is always NULL. `clause` and `outputs`, the names that are only outputs', are
    for messages. `inner_queries` binds queries inside expressions. Such a query may name columns of
    the query around it, which `outer` binds. A query of FROM or WITH inside it may, too: `beyond`
    binds them. If `claims` is a dict, expressions may name claims of the caller, and it gets the
    place of each. `functions` are those that users defined. Expressions of an answer, which
    `has_now`, may name NOW.
    """

    scope: Scope
    parameters: Mapping[str, Type | None]
    clause: str = "SELECT"
    outputs: Collection[str] = ()
    used: dict[str, Span] = field(default_factory=dict)
    inner_queries: InnerQueries | None = None
    outer: Binder | None = None
    beyond: Binder | None = None
    claims: dict[str, Span] | None = None
    functions: UserFunctions | None = None
    has_now: bool = False
    _depth: int = 0

    def condition(self, node: exp.Expr) -> Typed:
        return self.boolean(node, self.clause)

    def bind(self, node: exp.Expr) -> Typed:
        """Return the bound form of a node; raise QueryError if it is refused."""
        handler = _HANDLERS.get(type(node))
        if handler is None:
            raise _unsupported(node)
        spending()(_NODE_UNITS)
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise SyntaxProblem(
                f"the expression is nested more than {MAX_DEPTH} deep",
                node_span(node),
                reason="NESTED_TOO_DEEP",
            )
        bound = handler(self, node)
        self._depth -= 1
        return bound

    def boolean(self, node: exp.Expr, what_for: str) -> Typed:
        """Return the bound form of a node that has to be a condition."""
        return need(self.bind(node), Kind.BOOLEAN, what_for)

    def _paren(self, node: exp.Expr) -> Typed:
        consume(node, "this")
        return self.bind(node.this)

    def _literal(self, node: exp.Expr) -> Typed:
        consume(node, "this", "is_string")
        span = node_span(node)
        if node.args["is_string"]:
            return Typed(Literal(node.this, TEXT), span)
        return number(node.this, span)

    def _interval(self, node: exp.Expr) -> Typed:
        consume(node, "this", "unit")
        span, number, unit = node_span(node), node.this, node.args.get("unit")
        word, place = (str(unit.this), node_span(unit)) if unit else (None, span)
        micros = read_interval(str(number.this), node_span(number), word, place, span)
        return Typed(Literal(micros, DURATION), span)

    def _constant(self, node: exp.Expr) -> Typed:
        consume(node, "this")
        return Typed(TRUE if node.this else FALSE, node_span(node))

    def _null(self, node: exp.Expr) -> Typed:
        consume(node)
        return null(node_span(node))

    def _placeholder(self, node: exp.Expr) -> Typed:
        consume(node, "this")
        span = node_span(node)
        name = read_name(str(node.this), span, quoted=True)
        type_ = self.use(name, span)
        return null(span) if type_ is None else Typed(Parameter(name, type_), span)

    def use(self, name: str, span: Span) -> Type | None:
        """Return the type of a parameter, noting that it stands at `span`; raise
        UnknownParameter."""
        if name not in self.parameters:
            raise UnknownParameter(
                f":{name} has no value", span, hint="give it one when you register"
            )
        self.used.setdefault(name, span)
        return self.parameters[name]

    def _aggregate(self, node: exp.Expr) -> Typed:
        raise misplaced(node, self.clause)

    def knows(self, column: exp.Expr) -> bool:
        """Return whether a column is one of this query, or of a query around it."""
        around = filter(None, (self.outer, self.beyond))
        return self._is_own(column) or any(binder.knows(column) for binder in around)

    def _is_own(self, column: exp.Expr) -> bool:
        table, name = column.args.get("table"), column.this
        if table is not None:
            return any(item.name == identifier(table) for item in self.scope.items)
        return isinstance(name, exp.Identifier) and self.scope.has(identifier(name))

    def _correlated(self, node: exp.Expr, around: Binder) -> Typed:
        """Return a column of the query around this one, or of one further out."""
        value = around.bind(node)
        assert isinstance(value.node, ColumnRef)
        return Typed(ColumnRef(OUTER + value.node.name, value.type), node_span(node))

    def _column(self, node: exp.Expr) -> Typed:
        consume(node, "this", "table")
        span = node_span(node)
        written = str(node.this.this)
        is_own_name = any(written.lower() in item.types for item in self.scope.items)
        if is_clock(written) and node.args.get("table") is None and not is_own_name:
            check_clock(written, self.clause, self.has_now, span)
            return Typed(Now(), span)
        around = self.outer or self.beyond
        if around is not None and not self._is_own(node) and around.knows(node):
            return self._correlated(node, around)
        if not isinstance(node.this, exp.Identifier):
            raise SyntaxProblem("* stands alone in the SELECT list", span)
        table = node.args.get("table")
        item = None if table is None else self.scope.item(identifier(table), node_span(table))
        is_known = self.scope.has if item is None else item.types.__contains__
        if node.this.args.get("quoted") and not is_known(written):
            raise (self.scope if item is None else Scope((item,))).unknown_quoted(written, span)
        name = identifier(node.this)
        if item is None:
            return Typed(self.scope.column(name, span, self._output_hint(name)), span)
        if name not in item.types:
            raise item.unknown(name, span, self._output_hint(name))
        return Typed(item.column(name), span)

    def _output_hint(self, name: str) -> str:
        if name in self.outputs:
            return f"{name} is an output; {self.clause} sees the columns: repeat its expression"
        return ""

    def _cast(self, node: exp.Expr) -> Typed:
        consume(node, "this", "to")
        to = node.args["to"]
        type_ = read_type(str(to.this), node_span(to))
        value = self._shown(node.this) if type_.kind in (Kind.DATE, Kind.TEXT) else None
        return explicit_cast(value or self.bind(node.this), type_, node_span(node))

    def _shown(self, node: exp.Expr) -> Typed | None:
        """Return what a zone's clock shows for `… AT TIME ZONE '…'`; None for any other node."""
        while isinstance(node, exp.Paren):
            node = node.this
        if not isinstance(node, exp.AtTimeZone):
            return None
        consume(node, "this", "zone")
        return clock_time(self.bind(node.this), self.bind(node.args["zone"]), node_span(node))

    def _at_time_zone(self, node: exp.Expr) -> Typed:
        raise misplaced_zone(node_span(node))

    def _arithmetic(self, node: exp.Expr) -> Typed:
        consume(node, "this", "expression")
        lhs, rhs = self.bind(node.this), self.bind(node.args["expression"])
        rules = time_arithmetic if is_of_time(lhs, rhs) else arithmetic
        return rules(_ARITHMETIC[type(node)], lhs, rhs, node_span(node))

    def _concat(self, node: exp.Expr) -> Typed:
        consume(node, "this", "expression", "safe")
        if node.args.get("expression") is None:
            raise SyntaxProblem("an expression is missing after ||", node_span(node))
        lhs, rhs = self.bind(node.this), self.bind(node.args["expression"])
        return concatenation(lhs, rhs, node_span(node))

    def _neg(self, node: exp.Expr) -> Typed:
        consume(node, "this")
        span, operand = node_span(node), node.this
        if isinstance(operand, exp.Literal) and not operand.args["is_string"]:
            return number(str(operand.this), span, negative=True)
        return negative(self.bind(operand), span)

    def _function(self, node: exp.Expr) -> Typed:
        consume(node, "this", "expressions")
        span, name = node_span(node), node.this
        if not isinstance(name, str):
            raise BindProblem("function names are not quoted", span)
        if name == "+":
            return need_signed(self.bind(node.expressions[0]), "+")
        if is_aggregate(node):
            return self._aggregate(node)
        if name.lower() == "claim":
            return self._claim(node)
        if node.expressions and isinstance(node.expressions[0], exp.Subquery):
            if name.lower() == "exists":
                return self.query_value(InnerQuery(SubQueryKind.EXISTS, node, node.expressions[0]))
            if name.lower() == "some":
                return self._alone(node)
        defined = self._user_function(name.lower())
        if defined is None:
            check_function(name.lower(), span)
        if any(isinstance(arg, exp.Distinct) for arg in node.expressions):
            raise SyntaxProblem(
                "DISTINCT stands in aggregates, or after SELECT", node_span(node.expressions[0])
            )
        is_extract = name.lower() == "extract"
        args = [(is_extract and self._shown(arg)) or self.bind(arg) for arg in node.expressions]
        if defined is not None and self.functions is not None:
            return self.functions.call(defined, args, span)
        return bind_function(name.lower(), args, span)

    def _user_function(self, name: str) -> FunctionDefinition | None:
        if self.functions is None or name in FUNCTIONS:
            return None
        return self.functions.find(name)

    def _claim(self, node: exp.Expr) -> Typed:
        """Return the value of a claim of the caller."""
        span, args = node_span(node), node.expressions
        if self.claims is None:
            raise BindProblem(
                "claim(…) stands for a value of the caller in CREATE POLICY alone",
                span,
                hint="give the value as a parameter, :name",
                reason="NOT_SUPPORTED",
            )
        plain = len(args) == 1 and isinstance(args[0], exp.Literal) and args[0].args["is_string"]
        if not plain or not args[0].this:
            raise SyntaxProblem(
                "claim takes the name of one claim, in single quotes",
                span,
                hint="write claim('region')",
            )
        name = str(args[0].this)
        self.claims.setdefault(name, span)
        return claim(name, span)

    # ---- queries inside expressions

    def _subquery(self, node: exp.Expr) -> Typed:
        return self.query_value(InnerQuery(SubQueryKind.SCALAR, node, node))

    def _exists(self, node: exp.Expr) -> Typed:
        consume(node, "this")
        return self.query_value(InnerQuery(SubQueryKind.EXISTS, node, node.this))

    def _alone(self, node: exp.Expr) -> Typed:
        raise SyntaxProblem(
            "ALL, ANY and SOME stand after a comparison",
            node_span(node),
            hint="write value >= ALL (SELECT …)",
        )

    def query_value(self, query: InnerQuery) -> Typed:
        """Return the value of a query inside an expression."""
        if self.inner_queries is None:
            of_join = "compute it in a query of FROM, and name that output in ON"
            raise NotYet(
                "a query in the ON of a LEFT JOIN"
                if self.clause == "ON"
                else f"a query in {self.clause}",
                node_span(query.node),
                hint=of_join if self.clause == "ON" else "write it in WHERE, or join with it",
            )
        return self.inner_queries.value(query, self)


# Before the name of a column of the query around one that is inside an expression.
OUTER = "^"


def identifier(node: exp.Expr) -> str:
    consume(node, "this", "quoted")
    return read_name(str(node.this), node_span(node), bool(node.args.get("quoted")))


def _unsupported(node: exp.Expr) -> SyntaxProblem:
    span = node_span(node)
    hint = _HINTS.get(type(node), "")
    return SyntaxProblem(f"{what(node)} is not supported", span, hint=hint, reason="NOT_SUPPORTED")


_HINTS: dict[type[exp.Expr], str] = {
    exp.ILike: "write lower(a) LIKE 'pattern'",
    exp.Concat: "one text, in one pair of quotes, or two with || between them",
    exp.Star: "* stands alone in the SELECT list",
}
_ARITHMETIC: dict[type[exp.Expr], Op] = {
    exp.Add: Op.ADD,
    exp.Sub: Op.SUB,
    exp.Mul: Op.MUL,
    exp.Div: Op.DIV,
    exp.IntDiv: Op.INT_DIV,
    exp.Mod: Op.MOD,
}
_HANDLERS: dict[type[exp.Expr], Callable[[Binder, exp.Expr], Typed]] = {
    **CONDITIONS,
    **dict.fromkeys(_ARITHMETIC, Binder._arithmetic),
    exp.DPipe: Binder._concat,
    exp.Paren: Binder._paren,
    exp.Literal: Binder._literal,
    exp.Interval: Binder._interval,
    exp.Boolean: Binder._constant,
    exp.Null: Binder._null,
    exp.Placeholder: Binder._placeholder,
    exp.Column: Binder._column,
    exp.Cast: Binder._cast,
    exp.AtTimeZone: Binder._at_time_zone,
    exp.Neg: Binder._neg,
    exp.Anonymous: Binder._function,
    exp.Subquery: Binder._subquery,
    exp.Exists: Binder._exists,
    exp.Any: Binder._alone,
    exp.All: Binder._alone,
}
