"""Calls of functions that users define: the function's expression takes the place of the call.

A function sees its parameters and nothing else, so its expression means the same wherever it is
called. It is bound once for a text, over its parameters; in each call the arguments take their
place. The result is what the expression would be if it were written out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from datastem.schema import Column
from querystem.expressions import ColumnRef, Expression
from querystem.language.errors import (
    BindProblem,
    NotYet,
    QueryError,
    Span,
    SyntaxProblem,
    TypeProblem,
    UnknownParameter,
    located,
)
from querystem.language.expressions.bind import MAX_DEPTH, Binder, UserFunctions
from querystem.language.expressions.coerce import need_type, unify
from querystem.language.expressions.scope import Scope, ScopeItem
from querystem.language.normal_form.rewrite import Extent, extent_of, substituted
from querystem.language.syntax.parse import parse_query
from querystem.language.syntax.tree import consume, node_span
from querystem.language.tokens.literals import Typed
from querystem.language.tokens.names import write_name
from querystem.language.tokens.scan import MAX_TEXT
from querystem.pace import spending
from querystem.user_functions import MAX_FUNCTIONS_DEEP, FunctionDefinition

# The nodes of one call, and of all calls of a text.
MAX_CALL_NODES, MAX_TEXT_NODES = 16_384, 65_536
# Units (`querystem.pace`) of a node that takes the place of a call.
_NODE_UNITS = 5_000


@dataclass
class UserCalls:
    """The calls of one text. `lookup` returns the function of a name; its second argument says
    whether the name stands in the text of another function."""

    lookup: Callable[[str, bool], FunctionDefinition | None]
    _bodies: dict[str, Expression] = field(default_factory=dict)
    _depth: int = 0
    _nodes: int = 0

    def find(self, name: str) -> FunctionDefinition | None:
        return self.lookup(name, self._depth > 0)

    def call(self, function: FunctionDefinition, args: Sequence[Typed], span: Span) -> Typed:
        """Return the expression of a function over the arguments of a call at `span`; raise
        QueryError."""
        parameters = function.parameters
        if len(args) != len(parameters):
            count = f"{len(parameters)} argument{'' if len(parameters) == 1 else 's'}"
            raise SyntaxProblem(
                f"{function.name} takes {count}, not {len(args)}",
                span,
                hint=f"write {_signature(function)}",
            )
        pairs = zip(parameters, args, strict=True)
        values = {column.name: _argument(function, column, arg).node for column, arg in pairs}
        body = self._body(function, span)
        extent = extent_of(body, {name: extent_of(value, {}) for name, value in values.items()})
        self._count(extent, span)
        spending()(extent.nodes * _NODE_UNITS)
        return Typed(substituted(body, values), span)

    def check(self, function: FunctionDefinition, span: Span) -> None:
        """Raise QueryError if a function can't be called."""
        self._body(function, span)

    def _count(self, extent: Extent, span: Span) -> None:
        self._nodes += extent.nodes
        within_call = extent.nodes <= MAX_CALL_NODES and extent.depth <= MAX_DEPTH
        if not within_call or self._nodes > MAX_TEXT_NODES:
            raise SyntaxProblem(
                "the calls of functions make an expression too large",
                span,
                hint=f"a call has at most {MAX_CALL_NODES:,} parts, {MAX_DEPTH} inside each other,"
                f" all calls of a text {MAX_TEXT_NODES:,}",
                reason="NESTED_TOO_DEEP",
            )

    def _body(self, function: FunctionDefinition, span: Span) -> Expression:
        """Return the expression of a function over its parameters. Errors point to the call,
        because the text of the function is not part of the query's."""
        if function.name not in self._bodies:
            if self._depth >= MAX_FUNCTIONS_DEEP:
                raise too_deep(span)
            self._depth += 1
            try:
                with located(function.text):
                    node = parse_body(function.text)
                    body = bind_body(node, function.name, function.parameters, self)
            except QueryError as problem:
                problem.message = f"in function {function.name}: {problem.message}"
                problem.span, problem.text = span, ""
                raise
            finally:
                self._depth -= 1
            self._bodies[function.name] = body
        return self._bodies[function.name]


def too_deep(span: Span) -> BindProblem:
    return BindProblem(
        f"functions stand more than {MAX_FUNCTIONS_DEEP} deep inside each other",
        span,
        hint="write the expression of one of them instead of its call",
        reason="NESTED_TOO_DEEP",
    )


def parse_body(text: str, begin: int = 0, max_text: int = MAX_TEXT) -> exp.Expr:
    """Return the tree of a function's expression, as if it stood at `begin` of a text if that is
    far enough; raise SyntaxProblem."""
    before = "SELECT ".ljust(begin)
    node = parse_query(f"{before}{text}\nFROM s", max(max_text, len(before) + len(text)))
    consume(node, "expressions", "from_")
    if len(node.expressions) != 1:
        raise SyntaxProblem(
            "a function has one expression",
            node_span(node.expressions[-1]),
            hint="define a function for each",
        )
    body: exp.Expr = node.expressions[0]
    return body


def bind_body(
    node: exp.Expr, name: str, parameters: Sequence[Column], functions: UserFunctions
) -> Expression:
    """Return a function's expression over its parameters; raise QueryError."""
    types = {column.name: column.type for column in parameters}
    scope = Scope((ScopeItem(name, types, list(types)),))
    try:
        return need_type(Binder(scope, {}, "a function", functions=functions).bind(node)).node
    except UnknownParameter as problem:
        problem.hint = "a parameter of a function is written as a column is, without a colon"
        raise
    except NotYet as problem:
        problem.hint = "give its value to the function as an argument"
        raise


def _argument(function: FunctionDefinition, parameter: Column, arg: Typed) -> Typed:
    """Return an argument with the type of its parameter; raise TypeProblem."""
    column = Typed(ColumnRef(parameter.name, parameter.type), arg.span)
    try:
        (_, value), common = unify((column, arg), arg.span)
    except TypeProblem as problem:
        # A constant that is no value of the type, such as '2026-02-30', says so itself.
        if problem.reason != "TYPE_MISMATCH":
            raise
        common = None
    if common != parameter.type:
        raise TypeProblem(
            f"{function.name} takes {parameter.type} for {parameter.name}, not {arg.type}",
            arg.span,
            hint=f"convert it: CAST(… AS {parameter.type})",
        )
    return value


def _signature(function: FunctionDefinition) -> str:
    return f"{function.name}({', '.join(write_name(p.name) for p in function.parameters)})"
