"""A parsed SELECT to a bound Query."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlglot import exp

from datastem.schema import StreamSchema
from datastem.types import Type
from querystem.expressions import TRUE, ColumnRef, Expression
from querystem.language.bind import Binder, identifier
from querystem.language.errors import (
    BindProblem,
    Span,
    SyntaxProblem,
    TypeProblem,
    UnknownParameter,
    UnknownStream,
)
from querystem.language.literals import Typed
from querystem.language.parse import Parsed
from querystem.language.tree import consume, node_span
from querystem.language.windows import read_window
from querystem.query import Output, Query
from results.window import UNBOUNDED

Lookup = Callable[[str], StreamSchema | None]


def bind_select(
    parsed: Parsed, end: int, lookup: Lookup, parameters: Mapping[str, Type | None]
) -> tuple[Query, Mapping[str, Span]]:
    """The query, and where each parameter first stands. `end` is the length of the text."""
    select = parsed.select
    consume(select, "expressions", "from_", "where")
    schema, alias = _stream(select, lookup)
    binder = Binder(schema.types, alias, parameters)
    outputs = _outputs(select, schema, binder)
    where = _where(select.args.get("where"), binder)
    window = read_window(parsed.window, end, schema) if parsed.window else UNBOUNDED
    _check_used(parameters, binder.used)
    return Query(schema.name, outputs, where, window), binder.used


def _stream(select: exp.Select, lookup: Lookup) -> tuple[StreamSchema, str]:
    source = select.args.get("from_")
    if source is None:
        raise SyntaxProblem("FROM is missing", node_span(select), hint="write SELECT … FROM stream")
    consume(source, "this")
    table = source.this
    consume(table, "this", "alias")
    name = identifier(table.this)
    schema = lookup(name)
    if schema is None:
        raise UnknownStream(
            f"there is no stream {name}",
            node_span(table.this),
            hint="create it with CREATE STREAM, or look at the list of streams",
        )
    alias = table.args.get("alias")
    return schema, identifier(alias) if alias else name


def _outputs(select: exp.Select, schema: StreamSchema, binder: Binder) -> tuple[Output, ...]:
    if not select.expressions:
        raise SyntaxProblem("SELECT selects nothing", node_span(select), hint="write SELECT * …")
    outputs: list[Output] = []
    seen: set[str] = set()
    for node in select.expressions:
        for output in _output(node, len(outputs) + 1, schema, binder):
            if output.name in seen:
                raise BindProblem(
                    f"two outputs are named {output.name}",
                    node_span(node),
                    hint="give one of them another name with AS",
                    reason="DUPLICATE_NAME",
                )
            seen.add(output.name)
            outputs.append(output)
    return tuple(outputs)


def _output(node: exp.Expr, position: int, schema: StreamSchema, binder: Binder) -> list[Output]:
    if isinstance(node, exp.Star) or (
        isinstance(node, exp.Column) and isinstance(node.this, exp.Star)
    ):
        return _star(node, schema, binder)
    name = None
    if isinstance(node, exp.Alias):
        consume(node, "this", "alias")
        name = identifier(node.args["alias"])
        node = node.this
    bound = binder.bind(node)
    return [Output(name or _own_name(bound, position), _settled(bound))]


def _star(node: exp.Expr, schema: StreamSchema, binder: Binder) -> list[Output]:
    if isinstance(node, exp.Column):
        consume(node, "this", "table")
        binder.check_qualifier(node)
        node = node.this
    consume(node)
    return [Output(c.name, ColumnRef(c.name, c.type)) for c in schema.columns]


def _own_name(bound: Typed, position: int) -> str:
    return bound.node.name if isinstance(bound.node, ColumnRef) else f"column_{position}"


def _settled(bound: Typed) -> Expression:
    if bound.open:
        raise TypeProblem(
            "NULL alone has no type", bound.span, hint="give it one: CAST(NULL AS BIGINT)"
        )
    return bound.node


def _where(where: exp.Expr | None, binder: Binder) -> Expression:
    if where is None:
        return TRUE
    consume(where, "this")
    return binder.condition(where.this).node


def _check_used(parameters: Mapping[str, Type | None], used: Mapping[str, Span]) -> None:
    for name in parameters:
        if name not in used:
            raise UnknownParameter(f"the text has no :{name}", hint="leave the value out")
