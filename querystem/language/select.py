"""A parsed SELECT becomes a bound Query, whose parameters may still be without values.

The window and REFRESH EVERY follow the clauses of SQL, and are read once every `:name` in them, a
number or an instant, has its value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from datastem.instants import format_instant, to_micros
from datastem.schema import StreamSchema
from datastem.types import Type
from querystem.expressions import Literal
from querystem.language.bind import Binder
from querystem.language.clauses import (
    Count,
    Lookup,
    Names,
    OutputItem,
    bind_condition,
    bind_count,
    bind_order,
    bind_stream,
    check_distinct,
    group_binder,
    read_items,
)
from querystem.language.coerce import need_type
from querystem.language.durations import read_duration
from querystem.language.errors import RefreshProblem, Span, TypeProblem, UnknownParameter
from querystem.language.parse import Parsed, ParsedRefresh
from querystem.language.scan import TokenReader, span_of
from querystem.language.tree import consume
from querystem.language.windows import check_retention, read_window
from querystem.query import Leg, Output, Query
from querystem.refresh import RefreshEvery, RefreshOn
from results.window import UNBOUNDED


@dataclass(frozen=True, slots=True)
class BoundSelect:
    """A query that may still hold parameters, as its LIMIT, OFFSET, window and REFRESH may.

    `places` says where each parameter first stands. The query's own limit and offset, its window
    and its period are not set yet.
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
) -> BoundSelect:
    """Binds a SELECT in a text of length `end`; `names` lists the streams, to suggest one."""
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
    return BoundSelect(query, limit, offset, tail, base.used)


_CLAUSES = ("group", "having", "order", "limit", "offset")


def _query(
    select: exp.Select, schema: StreamSchema, items: Sequence[OutputItem], base: Binder
) -> Query:
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
        Leg(schema.name, where, UNBOUNDED),
        outputs,
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


@dataclass(frozen=True, slots=True)
class Tail:
    """The window and REFRESH EVERY of a text of length `end` over `schema`; `names` says where
    their parameters stand."""

    parsed: Parsed
    end: int
    schema: StreamSchema
    names: Mapping[str, Span]

    @classmethod
    def of(cls, parsed: Parsed, end: int, schema: StreamSchema) -> Tail:
        names: dict[str, Span] = {}
        for tokens in _parts(parsed):
            for colon, name in zip(tokens, tokens[1:], strict=False):
                if _is_parameter(colon, name):
                    names.setdefault(name.text, span_of(colon).to(span_of(name)))
        return cls(parsed, end, schema, names)

    def fill(self, query: Query, literals: Mapping[str, Literal]) -> Query:
        """The query with its window and its period, given values for their parameters; raises
        QueryError."""
        window, period = (_filled(tokens, literals) for tokens in _parts(self.parsed))
        if window:
            query = query.with_window(read_window(window, self.end, self.schema))
        if period:
            query = replace(query, refresh=RefreshEvery(read_period(period, self.end)))
        if tail := self.parsed.tail:
            span = span_of(tail[0]).to(span_of(tail[-1]))
            check_retention(query.leg.window, self.schema, span, query.period)
        return query


def _parts(parsed: Parsed) -> tuple[Sequence[Token], Sequence[Token]]:
    return parsed.window, parsed.refresh.period if parsed.refresh else ()


def _is_parameter(colon: Token, name: Token) -> bool:
    joined = colon.end + 1 == name.start
    return colon.text == ":" and name.token_type == TokenType.IDENTIFIER and joined


def _filled(tokens: Sequence[Token], literals: Mapping[str, Literal]) -> list[Token]:
    """The tokens with a constant in the place of each parameter."""
    filled: list[Token] = []
    for token in tokens:
        if filled and _is_parameter(filled[-1], token):
            filled.append(_constant(filled.pop(), token, literals[token.text]))
        else:
            filled.append(token)
    return filled


def _constant(colon: Token, name: Token, literal: Literal) -> Token:
    kind, text = TokenType.STRING, ""
    match literal.value:
        case bool() | None:
            raise _unfit(colon, name, literal, "it takes a number or an instant")
        case int() | float() | Decimal() as value:
            if not math.isfinite(value) or value < 0:
                raise _unfit(colon, name, literal, "it takes a number from 0")
            exact = Decimal(repr(value) if isinstance(value, float) else value)
            kind, text = TokenType.NUMBER, format(exact, "f")
        case datetime() as value:
            text = format_instant(to_micros(value))
        case date() as value:
            text = value.isoformat()
        case str() as value:
            text = value
    return Token(kind, text, colon.line, colon.col, colon.start, name.end)


def _unfit(colon: Token, name: Token, literal: Literal, hint: str) -> TypeProblem:
    shown = "NULL" if literal.value is None else str(literal.value)
    span = span_of(colon).to(span_of(name))
    return TypeProblem(
        f":{name.text} is {shown}, which no window takes", span, hint=hint, reason="BAD_VALUE"
    )


_LAST = "REFRESH stands last, after the window"


def bind_trigger(
    parsed: ParsedRefresh | None,
    schema: StreamSchema,
    binder: Binder,
    lookup: Lookup,
    names: Names | None,
) -> RefreshOn | None:
    """The REFRESH ON clause of a query with this `schema` and `binder`; None without one."""
    if parsed is None or parsed.rows is None:
        return None
    rows, alias = bind_stream(parsed.rows, lookup, names)
    if schema.ordered_by is not None and rows.ordered_by is None:
        raise RefreshProblem(
            f"{schema.name} has event time and {rows.name} arrival time: their clocks can't be"
            " compared",
            parsed.span,
            hint="REFRESH ON a stream with ORDERED BY, or REFRESH EVERY duration",
        )
    own = replace(binder, types=rows.types, stream=alias, clause="REFRESH ON", outputs=())
    return RefreshOn(rows.name, bind_condition(parsed.rows.args.get("where"), own))


def read_period(tokens: Sequence[Token], end: int) -> int:
    """The period of REFRESH EVERY, in microseconds."""
    reader = TokenReader(tokens, end)
    span = reader.span
    period = read_duration(reader)
    reader.finish(hint=_LAST)
    if period == 0:
        raise RefreshProblem(
            "REFRESH EVERY 0 has no points", span, hint="without REFRESH the answer is always fresh"
        )
    return period
