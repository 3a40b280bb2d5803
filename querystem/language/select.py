"""A parsed SELECT to a bound Query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from datastem.schema import StreamSchema
from datastem.types import Type
from querystem.language.bind import Binder
from querystem.language.coerce import need_type
from querystem.language.errors import Span, UnknownParameter
from querystem.language.grouping import group_binder
from querystem.language.ordering import Count, bind_count, bind_order, check_distinct
from querystem.language.outputs import Item, read_items
from querystem.language.parse import Parsed
from querystem.language.refreshing import bind_trigger
from querystem.language.sources import Lookup, Names, bind_condition, bind_stream
from querystem.language.tail import Tail
from querystem.language.tree import consume
from querystem.query import Output, Query
from results.window import UNBOUNDED


@dataclass(frozen=True, slots=True)
class Draft:
    """A query that may still hold parameters, as its LIMIT, OFFSET, window and REFRESH may.

    `places` says where each parameter first stands. The query's own limit and offset are not set,
    nor what is in its tail.
    """

    query: Query
    limit: Count | None
    offset: Count | None
    tail: Tail
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
    schema, alias = bind_stream(select, lookup, names)
    base = Binder(schema.types, alias, parameters)
    items = read_items(select, schema, base)
    base = replace(base, outputs=[item.name for item in items if item.renamed])
    query = _query(select, schema, items, base)
    query = replace(query, refresh=bind_trigger(parsed.refresh, schema, base, lookup, names))
    limit = bind_count(select.args.get("limit"), "LIMIT", replace(base, clause="LIMIT"))
    offset = bind_count(select.args.get("offset"), "OFFSET", replace(base, clause="OFFSET"))
    tail = Tail.of(parsed, end, schema)
    for name, place in tail.names.items():
        base.use(name, place)
    _check_used(parameters, base.used)
    return Draft(query, limit, offset, tail, base.used)


_CLAUSES = ("group", "having", "order", "limit", "offset")


def _query(select: exp.Select, schema: StreamSchema, items: Sequence[Item], base: Binder) -> Query:
    groups = group_binder(select, items, base)
    binder = groups or base
    order = select.args.get("order")
    outputs = tuple(Output(item.name, need_type(binder.bind(item.node)).node) for item in items)
    where = bind_condition(select.args.get("where"), replace(base, clause="WHERE"))
    having = bind_condition(select.args.get("having"), replace(binder, clause="HAVING"))
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


def _distinct(select: exp.Select) -> bool:
    distinct = select.args.get("distinct")
    if distinct is None:
        return False
    consume(distinct)
    return True


def _check_used(parameters: Mapping[str, Type | None], used: Mapping[str, Span]) -> None:
    for name in parameters:
        if name not in used:
            raise UnknownParameter(f"the text has no :{name}", hint="leave the value out")
