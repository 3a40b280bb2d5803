"""CREATE FUNCTION and DROP FUNCTION: parsed, and bound when the function is created."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from datastem.schema import Column
from datastem.types import Type
from querystem.expressions import Expression
from querystem.language.errors import BindProblem, QueryError, Span, SyntaxProblem, located
from querystem.language.expressions.clocks import is_clock
from querystem.language.expressions.user_calls import (
    MAX_CALL_NODES,
    UserCalls,
    bind_body,
    parse_body,
)
from querystem.language.functions.aggregates import AGGREGATES
from querystem.language.functions.table import FUNCTIONS
from querystem.language.normal_form.rewrite import extent_of
from querystem.language.queries.references import Lookup, function_lookup
from querystem.language.tokens.names import write_name
from querystem.language.tokens.scan import MAX_TEXT, TokenReader
from querystem.user_functions import MAX_PARAMETERS, FunctionDefinition

_FUNCTION = "write CREATE FUNCTION name(parameter TYPE, …) AS expression"
# Words before a parenthesis that mean something else.
_WORDS = frozenset({"claim", "some", "values"})


@dataclass(frozen=True, slots=True)
class CreateFunction:
    """A function to create, whose name stands at `span`: `text` is its expression, which begins at
    `begin` of the statement."""

    name: str
    span: Span
    parameters: tuple[Column, ...]
    text: str
    begin: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DropFunction:
    """A function to drop, with `cascade` the views and functions that call it too."""

    name: str
    span: Span
    cascade: bool = False


def parse_function(
    reader: TokenReader, text: str, read_type: Callable[[TokenReader], Type]
) -> CreateFunction:
    """Return the function whose statement is read up to its name."""
    name, span = reader.need_name("the name of the function")
    reader.need("(", hint=_FUNCTION)
    parameters: list[Column] = []
    while not (reader.sees(")") and not parameters):
        parameters.append(_parameter(reader, parameters, read_type))
        if not reader.take(","):
            break
    reader.need(")", hint="parameters are separated by commas")
    reader.need("AS", hint=_FUNCTION)
    if reader.token is None:
        reader.fail("expected an expression after AS", hint=_FUNCTION)
    begin = reader.token.start
    while reader.token is not None:
        last = reader.skip()
    return CreateFunction(name, span, tuple(parameters), text[begin : last.end + 1], begin)


def _parameter(
    reader: TokenReader, before: list[Column], read_type: Callable[[TokenReader], Type]
) -> Column:
    name, span = reader.need_name("the name of a parameter")
    if any(column.name == name for column in before):
        raise BindProblem(f"{name} is declared twice", span, reason="DUPLICATE_NAME")
    if len(before) == MAX_PARAMETERS:
        raise BindProblem(
            f"a function has at most {MAX_PARAMETERS} parameters", span, reason="TOO_MANY_COLUMNS"
        )
    return Column(name, read_type(reader))


def bind_function_definition(
    sql: str, statement: CreateFunction, lookup: Lookup, *, max_text: int = MAX_TEXT
) -> FunctionDefinition:
    """Return the function that a statement, whose text is `sql`, makes; raise QueryError if it is
    refused."""
    with located(sql):
        _check_name(statement.name, statement.span)
        calls = UserCalls(function_lookup(lookup))
        try:
            node = parse_body(statement.text, statement.begin, max_text)
            body = bind_body(node, statement.name, statement.parameters, calls)
        except QueryError as problem:
            problem.text = sql
            raise
        if extent_of(body, {}).nodes > MAX_CALL_NODES:
            raise SyntaxProblem(
                f"the expression has more than {MAX_CALL_NODES:,} parts", reason="NESTED_TOO_DEEP"
            )
        function = FunctionDefinition(
            statement.name, statement.parameters, statement.text, body.type
        )
        # A function that calls others may be too deep to be called itself.
        UserCalls(lambda name, _: calls.lookup(name, True)).check(function, statement.span)
    return function


def function_body(function: FunctionDefinition, lookup: Lookup) -> Expression:
    """Return the expression of a function over its parameters; raise QueryError."""
    calls = UserCalls(function_lookup(lookup))
    return bind_body(parse_body(function.text), function.name, function.parameters, calls)


def _check_name(name: str, span: Span) -> None:
    """Refuse a name under which the function could not be called."""
    built_in = name in FUNCTIONS or name in AGGREGATES or name in _WORDS or is_clock(name)
    if built_in or not _is_callable(name):
        raise BindProblem(
            f"{name} is a word or a function of the language",
            span,
            hint="give the function another name",
        )


def _is_callable(name: str) -> bool:
    """Return whether a name before parentheses is read as the call of a function."""
    try:
        node = parse_body(f"{name}(0)")
    except QueryError:
        return False
    return isinstance(node, exp.Anonymous) and node.this == name


def parse_drop_function(reader: TokenReader) -> DropFunction:
    """Return the DROP FUNCTION that is read up to the name."""
    name, span = reader.need_name("the name of the function")
    cascade = reader.take("CASCADE") is not None
    reader.finish(hint="DROP FUNCTION takes one name, then CASCADE or nothing")
    return DropFunction(name, span, cascade)


def function_sql(function: FunctionDefinition) -> str:
    """Return the statement that makes a function; parsing it gives the function again."""
    parameters = ", ".join(f"{write_name(p.name)} {p.type}" for p in function.parameters)
    return f"CREATE FUNCTION {write_name(function.name)}({parameters}) AS {function.text}"
