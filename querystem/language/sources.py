"""The stream after FROM or REFRESH ON, and the condition after WHERE or HAVING."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sqlglot import exp

from datastem.schema import StreamSchema
from querystem.expressions import TRUE, Expression
from querystem.language.bind import Binder, identifier
from querystem.language.errors import SyntaxProblem, UnknownStream
from querystem.language.tree import consume, node_span
from querystem.language.words import nearest

Lookup = Callable[[str], StreamSchema | None]
Names = Callable[[], Iterable[str]]


def bind_stream(
    select: exp.Select, lookup: Lookup, names: Names | None
) -> tuple[StreamSchema, str]:
    """The stream, and what it is called in expressions. Raises UnknownStream."""
    source = select.args.get("from_")
    if source is None:
        raise SyntaxProblem("FROM is missing", node_span(select), hint="write SELECT … FROM stream")
    consume(source, "this")
    table = source.this
    consume(table, "this", "alias")
    name = identifier(table.this)
    schema = lookup(name)
    if schema is None:
        near = nearest(name, names()) if names else None
        hint = "create it with CREATE STREAM, or look at the list of streams"
        raise UnknownStream(
            f"there is no stream {name}",
            node_span(table.this),
            hint=f"did you mean {near}?" if near else hint,
        )
    alias = table.args.get("alias")
    return schema, identifier(alias) if alias else name


def bind_condition(clause: exp.Expr | None, binder: Binder) -> Expression:
    if clause is None:
        return TRUE
    consume(clause, "this")
    return binder.condition(clause.this).node
