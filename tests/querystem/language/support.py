"""A stream with every type, and the way back from a bound expression to text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime

from datastem.instants import format_instant, to_micros
from datastem.schema import StreamSchema
from datastem.types import Kind
from querystem.expressions import (
    TRUE,
    Call,
    ColumnRef,
    Expression,
    Literal,
    Now,
    Op,
    Parameter,
    Scalar,
    Zone,
)
from querystem.grouping import Aggregate, Grouping, aggregate_name, key_name
from querystem.language import (
    CreateStream,
    bind_query,
    parse_statement,
    refresh_text,
    window_text,
)
from querystem.language.tokens.names import write_name
from querystem.legs import Leg
from querystem.query import Item, Query, SortKey, Source
from querystem.sources import LeftJoin, SetOperation, SubQuery, subquery_column
from results.window import UNBOUNDED

TRADES_SQL = (
    "CREATE STREAM trades (symbol TEXT, venue TEXT, price DOUBLE, size BIGINT, at TIMESTAMP,"
    " day DATE, ok BOOLEAN, amount DECIMAL(10,2), fee DECIMAL(38,10)) ORDERED BY at RETAIN 30 DAYS"
)


NAMES: Mapping[str, str] = {}


def schema_of(sql: str) -> StreamSchema:
    statement = parse_statement(sql)
    assert isinstance(statement, CreateStream)
    return statement.schema


TRADES = schema_of(TRADES_SQL)
ALARMS = schema_of("CREATE STREAM alarms (kind TEXT, level BIGINT, at TIMESTAMP) ORDERED BY at")
DOORS = schema_of("CREATE STREAM doors (door TEXT, open BOOLEAN)")

QUOTES = schema_of(
    "CREATE STREAM quotes (symbol TEXT, bid DOUBLE, size DECIMAL(8,2), at TIMESTAMP) ORDERED BY at"
)
COMPANIES = schema_of("CREATE STREAM companies (symbol TEXT, name TEXT, size BIGINT) KEY (symbol)")
LISTINGS = schema_of(
    "CREATE STREAM listings (symbol TEXT, venue TEXT, lot BIGINT, at TIMESTAMP)"
    " KEY (symbol, venue) ORDERED BY at RETAIN 7 DAYS"
)
_ALL = (TRADES, ALARMS, DOORS, QUOTES, COMPANIES, LISTINGS)
STREAMS = {schema.name: schema for schema in _ALL}


def lookup(name: str) -> StreamSchema | None:
    return STREAMS.get(name)


def bind(text: str, **parameters: Scalar) -> Query:
    return bind_query(text, lookup, parameters)


def where(condition: str, **parameters: Scalar) -> Expression:
    return bind(f"SELECT * FROM trades WHERE {condition}", **parameters).leg.where


def value(expression: str, **parameters: Scalar) -> Expression:
    return bind(f"SELECT {expression} AS x FROM trades", **parameters).outputs[0].expression


def show(expression: Expression, names: Mapping[str, str] = NAMES) -> str:
    """Text that binds to the same expression. Every call is in parentheses.

    `names` has the text of columns that have no name of their own.
    """
    match expression:
        case ColumnRef(name, _):
            return names.get(name, name)
        case Parameter(name, _):
            return f":{name}"
        case Now():
            return "NOW"
        case Zone(name):
            return f"'{name}'"
        case Literal():
            return _literal(expression)
        case Call():
            return f"({_call(expression, names)})"


def show_query(query: Query) -> str:
    """Text that binds to the same query."""
    names = NAMES if query.grouping is None else _group_names(query.grouping)
    outputs = [f"{show(o.expression, names)} AS {write_name(o.name)}" for o in query.outputs]
    parts = [f"SELECT {'DISTINCT ' if query.distinct else ''}{', '.join(outputs)}"]
    parts.append(f"FROM {query.leg.stream}")
    if query.leg.where != TRUE:
        parts.append(f"WHERE {show(query.leg.where)}")
    if query.grouping is not None and query.grouping.keys:
        parts.append(f"GROUP BY {', '.join(show(key) for key in query.grouping.keys)}")
    if query.having != TRUE:
        parts.append(f"HAVING {show(query.having, names)}")
    if query.order_by:
        keys = [_sort_key(key, names, query.leg.stream) for key in query.order_by]
        parts.append(f"ORDER BY {', '.join(keys)}")
    if query.limit is not None:
        parts.append(f"LIMIT {query.limit}")
    if query.offset:
        parts.append(f"OFFSET {query.offset}")
    if query.leg.window != UNBOUNDED:
        parts.append(window_text(query.leg.window))
    return "\n".join(parts)


def show_tree(query: Query) -> str:
    """Return the tree of a query as lines, what stands inside of what by their beginning."""
    names = NAMES if query.grouping is None else _group_names(query.grouping)
    outputs = [f"{show(o.expression, names)} AS {o.name}" for o in query.outputs]
    lines = [f"SELECT {'DISTINCT ' if query.distinct else ''}{', '.join(outputs)}"]
    lines += _show_source(query.source)
    if query.grouping is not None and query.grouping.keys:
        lines.append(f"GROUP BY {', '.join(show(key) for key in query.grouping.keys)}")
    if query.having != TRUE:
        lines.append(f"HAVING {show(query.having, names)}")
    if query.order_by:
        keys = [
            show(k.expression, names) + (" DESC" if k.descending else "") for k in query.order_by
        ]
        lines.append(f"ORDER BY {', '.join(keys)}")
    if query.limit is not None or query.offset:
        lines.append(f"LIMIT {query.limit} OFFSET {query.offset}")
    if query.refresh is not None:
        lines.append(refresh_text(query.refresh))
    return "\n".join(lines)


def _show_source(source: Source) -> list[str]:
    if isinstance(source, Leg):
        return [f"FROM {_show_leg(source)}"]
    lines = []
    for number, item in enumerate(source.items):
        first, *more_lines = _show_item(item)
        lines += [f"FROM {number}: {first}", *[f"    {line}" for line in more_lines]]
    if source.on != TRUE:
        lines.append(f"ON {show(source.on)}")
    for number, subquery in enumerate(source.subqueries):
        lines += [f"{subquery_column(number)}: {_show_asked(subquery)}"]
        lines += [f"    {line}" for line in show_tree(subquery.query).splitlines()]
    if source.where != TRUE:
        lines.append(f"WHERE {show(source.where)}")
    return lines


def _show_asked(subquery: SubQuery) -> str:
    parts = [subquery.kind.value]
    if subquery.operand is not None and subquery.op is not None:
        parts = [show(subquery.operand), subquery.op.value, *parts]
    return " ".join(parts) if subquery.on == TRUE else f"{' '.join(parts)} ON {show(subquery.on)}"


def _show_item(item: Item) -> list[str]:
    match item:
        case LeftJoin(left_side, right_side, on):
            first, *more_lines = _show_item(right_side)
            of_right = [f"RIGHT {first}", *[f"    {line}" for line in more_lines]]
            return ["left join", *_show_source(left_side), *of_right, f"LEFT ON {show(on)}"]
        case Leg():
            return [_show_leg(item)]
        case Query():
            over = "" if item.over is None else f" {window_text(item.over)}"
            return [f"query{over}", *show_tree(item).splitlines()]
        case SetOperation(operator, queries):
            return [operator.value, *[line for q in queries for line in show_tree(q).splitlines()]]
        case LeftJoin(left_side, right_side, on):
            inner = [line for left_item in left_side.items for line in _show_item(left_item)]
            return [f"left join ON {show(on)}", *inner, *_show_item(right_side)]


def _show_leg(leg: Leg) -> str:
    where = "" if leg.where == TRUE else f" WHERE {show(leg.where)}"
    if (as_of := leg.as_of) is not None:
        keys = ", ".join(map(show, as_of.keys))
        as_known = "" if as_of.row is None else f" known at {as_of.stream} {show(as_of.row)}"
        return f"{leg.stream}{where} as of {show(as_of.instant)}{as_known} by {keys}"
    refresh = f" {refresh_text(leg.refresh)}" if leg.refresh else ""
    own_word = "own " if leg.has_own_window else ""
    when = "" if leg.when == TRUE else f" WHEN {show(leg.when)}"
    return f"{leg.stream}{where}{when} {own_word}{window_text(leg.window)}{refresh}"


def _group_names(grouping: Grouping) -> dict[str, str]:
    keys = {key_name(number): show(key) for number, key in enumerate(grouping.keys)}
    aggregates = {
        aggregate_name(number): show_aggregate(aggregate)
        for number, aggregate in enumerate(grouping.aggregates)
    }
    return keys | aggregates


def show_aggregate(aggregate: Aggregate, names: Mapping[str, str] = NAMES) -> str:
    if aggregate.argument is None:
        return aggregate.function.value
    distinct = "DISTINCT " if aggregate.distinct else ""
    return f"{aggregate.function.value}({distinct}{show(aggregate.argument, names)})"


def _sort_key(key: SortKey, names: Mapping[str, str], stream: str) -> str:
    """Return a column is written with its stream: alone it would be an output's name."""
    text = show(key.expression, names)
    text = f"{stream}.{text}" if text.isidentifier() else text
    direction = "DESC" if key.descending else "ASC"
    return f"{text} {direction} NULLS {'FIRST' if key.nulls_first else 'LAST'}"


def _literal(literal: Literal) -> str:
    value, type_ = literal.value, literal.type
    if value is None and type_.kind is Kind.DURATION:
        return "(INTERVAL '0' SECOND + NULL)"
    if value is None:
        return f"CAST(NULL AS {type_})"
    match type_.kind:
        case Kind.BOOLEAN:
            return str(value).upper()
        case Kind.TEXT:
            return "'" + str(value).replace("'", "''") + "'"
        case Kind.TIMESTAMP:
            assert isinstance(value, datetime)
            return f"TIMESTAMP '{format_instant(to_micros(value))}'"
        case Kind.DATE:
            return f"DATE '{value}'"
        case Kind.DURATION:
            return f"INTERVAL '{value}' MICROSECOND"
        case Kind.DECIMAL:
            return f"CAST({value:f} AS {type_})"
        case Kind.DOUBLE if value in (math.inf, -math.inf) or value != value:
            return f"CAST('{value}' AS DOUBLE)"
        case Kind.DOUBLE:
            return repr(value) if "e" in repr(value) or "." in repr(value) else f"{value}.0"
    return str(value)


def _call(call: Call, names: Mapping[str, str]) -> str:
    args = [show(arg, names) for arg in call.args]
    match call.op:
        case Op.AND | Op.OR:
            return f" {call.op.value.upper()} ".join(args)
        case Op.NOT:
            return f"NOT {args[0]}"
        case Op.NEG:
            return f"- {args[0]}"
        case Op.IS_NULL:
            return f"{args[0]} IS NULL"
        case Op.IN:
            return f"{args[0]} IN ({', '.join(args[1:])})"
        case Op.CAST:
            return f"CAST({args[0]} AS {call.type})"
        case Op.CASE:
            pairs = zip(args[:-1:2], args[1::2], strict=True)
            branches = " ".join(f"WHEN {when} THEN {then}" for when, then in pairs)
            return f"CASE {branches} ELSE {args[-1]} END"
    if call.op.value.isalpha() and call.op not in (Op.LIKE, Op.INT_DIV) or "_" in call.op.value:
        return f"{call.op.value}({', '.join(args)})"
    return f"{args[0]} {call.op.value.upper()} {args[1]}"
