"""A parsed SELECT to a bound Query."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from datastem.schema import StreamSchema
from datastem.types import Type
from querystem.expressions import TRUE, Expression
from querystem.language.bind import Binder, identifier
from querystem.language.coerce import need_type
from querystem.language.errors import Span, SyntaxProblem, UnknownParameter, UnknownStream
from querystem.language.grouping import group_binder
from querystem.language.ordering import Count, bind_count, bind_order, check_distinct
from querystem.language.outputs import Item, read_items
from querystem.language.parse import Parsed
from querystem.language.tree import consume, node_span
from querystem.language.windows import read_window
from querystem.language.words import nearest
from querystem.query import Output, Query
from results.window import UNBOUNDED

Lookup = Callable[[str], StreamSchema | None]
Names = Callable[[], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Draft:
    """A query that may still hold parameters, as its LIMIT and OFFSET may.

    `places` says where each parameter first stands. The query's own limit and offset are not set.
    """

    query: Query
    limit: Count | None
    offset: Count | None
    places: Mapping[str, Span]


def bind_select(
    parsed: Parsed,
    end: int,
    lookup: Lookup,
    parameters: Mapping[str, Type | None],
    names: Names | None = None,
) -> Draft:
    """`end` is the length of the text; `names` lists the streams, to suggest one."""
    select = parsed.select
    consume(select, "expressions", "distinct", "from_", "where", *_CLAUSES)
    schema, alias = _stream(select, lookup, names)
    base = Binder(schema.types, alias, parameters)
    items = read_items(select, schema, base)
    base = replace(base, outputs=[item.name for item in items if item.renamed])
    query = _query(select, schema, items, base)
    if parsed.window:
        query = replace(query, window=read_window(parsed.window, end, schema))
    limit = bind_count(select.args.get("limit"), "LIMIT", replace(base, clause="LIMIT"))
    offset = bind_count(select.args.get("offset"), "OFFSET", replace(base, clause="OFFSET"))
    _check_used(parameters, base.used)
    return Draft(query, limit, offset, base.used)


_CLAUSES = ("group", "having", "order", "limit", "offset")


def _query(select: exp.Select, schema: StreamSchema, items: Sequence[Item], base: Binder) -> Query:
    groups = group_binder(select, items, base)
    binder = groups or base
    order = select.args.get("order")
    outputs = tuple(Output(item.name, need_type(binder.bind(item.node)).node) for item in items)
    where = _condition(select.args.get("where"), replace(base, clause="WHERE"))
    having = _condition(select.args.get("having"), replace(binder, clause="HAVING"))
    order_by = bind_order(order, items, replace(binder, clause="ORDER BY"))
    distinct = _distinct(select)
    if distinct:
        check_distinct(order, order_by, outputs)
    return Query(
        schema.name,
        outputs,
        where,
        UNBOUNDED,
        grouping=groups.grouping if groups else None,
        having=having,
        distinct=distinct,
        order_by=order_by,
    )


def _stream(select: exp.Select, lookup: Lookup, names: Names | None) -> tuple[StreamSchema, str]:
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


def _distinct(select: exp.Select) -> bool:
    distinct = select.args.get("distinct")
    if distinct is None:
        return False
    consume(distinct)
    return True


def _condition(clause: exp.Expr | None, binder: Binder) -> Expression:
    if clause is None:
        return TRUE
    consume(clause, "this")
    return binder.condition(clause.this).node


def _check_used(parameters: Mapping[str, Type | None], used: Mapping[str, Span]) -> None:
    for name in parameters:
        if name not in used:
            raise UnknownParameter(f"the text has no :{name}", hint="leave the value out")
