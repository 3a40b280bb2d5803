"""A stream with every type, and the way back from a bound expression to text."""

from __future__ import annotations

from datetime import datetime

from datastem.instants import format_instant, to_micros
from datastem.schema import StreamSchema
from datastem.types import Kind
from querystem.expressions import Call, ColumnRef, Expression, Literal, Op, Parameter, Scalar
from querystem.language import CreateStream, bind_query, parse_statement
from querystem.query import Query

TRADES_SQL = (
    "CREATE STREAM trades (symbol TEXT, venue TEXT, price DOUBLE, size BIGINT, at TIMESTAMP,"
    " day DATE, ok BOOLEAN, amount DECIMAL(10,2), fee DECIMAL(38,10)) ORDERED BY at RETAIN 30 DAYS"
)


def schema_of(sql: str) -> StreamSchema:
    statement = parse_statement(sql)
    assert isinstance(statement, CreateStream)
    return statement.schema


TRADES = schema_of(TRADES_SQL)


def lookup(name: str) -> StreamSchema | None:
    return TRADES if name == "trades" else None


def bind(text: str, **parameters: Scalar) -> Query:
    return bind_query(text, lookup, parameters)


def where(condition: str, **parameters: Scalar) -> Expression:
    return bind(f"SELECT * FROM trades WHERE {condition}", **parameters).where


def value(expression: str, **parameters: Scalar) -> Expression:
    return bind(f"SELECT {expression} AS x FROM trades", **parameters).outputs[0].expression


def show(expression: Expression) -> str:
    """Text that binds to the same expression. Every call is in parentheses."""
    match expression:
        case ColumnRef(name, _):
            return name
        case Parameter(name, _):
            return f":{name}"
        case Literal():
            return _literal(expression)
        case Call():
            return f"({_call(expression)})"


def _literal(literal: Literal) -> str:
    value, type_ = literal.value, literal.type
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
        case Kind.DECIMAL:
            return f"CAST({value:f} AS {type_})"
        case Kind.DOUBLE:
            return repr(value) if "e" in repr(value) or "." in repr(value) else f"{value}.0"
    return str(value)


def _call(call: Call) -> str:
    args = [show(arg) for arg in call.args]
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
