"""ERASE FROM stream WHERE column = value: the rows of one stream key, or those that have a value in
one column of a stream without a key.

Only equalities with constants are taken, so that a statement names one person's rows and nothing
more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from datastem.schema import StreamSchema
from datastem.types import Kind
from querystem.expressions import Call, ColumnRef, Expression, Literal, Op
from querystem.language.errors import BindProblem, Span, UnknownStream, located
from querystem.language.expressions.bind import Binder
from querystem.language.expressions.scope import Scope, stream_item
from querystem.language.queries.clauses import bind_condition
from querystem.language.queries.references import Lookup, Names
from querystem.language.syntax.parse import parse_query
from querystem.language.syntax.tree import consume
from querystem.language.tokens.names import nearest, write_name
from querystem.language.tokens.scan import MAX_TEXT, TokenReader


@dataclass(frozen=True, slots=True)
class EraseRows:
    """Rows to erase from the stream named at `span`: `text` is the condition, which begins at
    `begin` of the statement."""

    name: str
    span: Span
    text: str
    begin: int


@dataclass(frozen=True, slots=True)
class ErasedRows:
    """The rows to erase, bound: the condition, and for each of its columns the value."""

    where: Expression
    values: dict[str, Literal]


def parse_erase(reader: TokenReader, text: str) -> EraseRows:
    """Return what follows the word ERASE."""
    reader.need("FROM", hint="write ERASE FROM stream WHERE key = value")
    stream, span = reader.need_name("the name of the stream")
    reader.need("WHERE", hint="write ERASE FROM stream WHERE key = value")
    begin = reader.span.start
    return EraseRows(stream, span, text[begin:], begin)


def bind_erase(
    sql: str,
    statement: EraseRows,
    lookup: Lookup,
    *,
    max_text: int = MAX_TEXT,
    names: Names | None = None,
) -> ErasedRows:
    """Return the rows that a statement, whose text is `sql`, erases; raise QueryError if it is
    refused."""
    with located(sql):
        schema = _stream(statement, lookup, names)
        # The condition is at the same place as in the statement, so that errors point to it.
        before = f"SELECT 0 FROM {write_name(statement.name)} WHERE ".ljust(statement.begin)
        node = parse_query(f"{before}{statement.text}", max(max_text, len(before)))
        consume(node, "expressions", "from_", "where")
        where = _bound(node, schema)
        values = dict(_equalities(where, statement, schema))
        _check_columns(values, statement, schema)
        for name in schema.key:
            values[name] = _key_value(values[name], name, statement, schema)
    return ErasedRows(where, values)


def _stream(statement: EraseRows, lookup: Lookup, names: Names | None) -> StreamSchema:
    source = lookup(statement.name)
    if isinstance(source, StreamSchema):
        return source
    if source is not None:
        raise BindProblem(
            f"{statement.name} is a view; rows are erased from streams",
            statement.span,
            hint="erase them from the streams of the view: they leave its answers, too",
            reason="NOT_A_STREAM",
        )
    near = nearest(statement.name, names()) if names else None
    raise UnknownStream(
        f"there is no stream {statement.name}",
        statement.span,
        hint=f"did you mean {near}?" if near else "look at the list of streams",
    )


def _bound(node: exp.Expr, schema: StreamSchema) -> Expression:
    binder = Binder(Scope((stream_item(schema.name, schema),)), {})
    return bind_condition(node.args.get("where"), "WHERE", binder)


def _equalities(
    where: Expression, statement: EraseRows, schema: StreamSchema
) -> list[tuple[str, Literal]]:
    conditions = where.args if isinstance(where, Call) and where.op is Op.AND else (where,)
    pairs = []
    for condition in conditions:
        match condition:
            case Call(Op.EQ, (ColumnRef(name), Literal(value) as literal)) | Call(
                Op.EQ, (Literal(value) as literal, ColumnRef(name))
            ) if value is not None and name in schema.types:
                pairs.append((name, literal))
            case _:
                raise _refused(statement, schema)
    return pairs


def _check_columns(values: dict[str, Literal], statement: EraseRows, schema: StreamSchema) -> None:
    if schema.key and set(values) != set(schema.key):
        raise _refused(statement, schema)
    if not schema.key and len(values) != 1:
        raise _refused(statement, schema)


def _key_value(literal: Literal, name: str, statement: EraseRows, schema: StreamSchema) -> Literal:
    """Return a value of a key column as the column has it. A value that it can't have is refused:
    rounded it would be another key."""
    type_, value = schema.types[name], literal.value
    if type_.kind not in (Kind.BIGINT, Kind.DOUBLE, Kind.DECIMAL):
        return literal
    if type_.kind is Kind.DOUBLE:
        value = float(value)  # type: ignore[arg-type]
    try:
        stored = pa.array([value], type_.arrow)[0].as_py()
    except (pa.ArrowException, OverflowError):
        stored = None
    is_nan = isinstance(value, float) and math.isnan(value)
    if stored is None or (stored != value and not is_nan):
        label = schema.labelled.key[schema.key.index(name)]
        raise BindProblem(
            f"no row of {schema.name} can have that key: {label} is {type_}",
            statement.span,
            hint="write the value as the rows have it",
            reason="BAD_ERASE",
        )
    return Literal(stored, type_)


def _refused(statement: EraseRows, schema: StreamSchema) -> BindProblem:
    if schema.key:
        equal = " AND ".join(f"{write_name(name)} = …" for name in schema.labelled.key)
        expected = f"rows of {schema.name} are erased by their stream key: WHERE {equal}"
    else:
        expected = f"{schema.name} has no stream key: rows are erased by WHERE column = value"
    return BindProblem(
        expected,
        statement.span,
        hint="write each column with = and a constant; one statement erases one key or value",
        reason="BAD_ERASE",
    )
