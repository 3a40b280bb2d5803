"""AS OF and AS KNOWN AT, bound: rows of keyed streams that are looked up for the rows of another.

A look-up goes by the values that conditions equate with all columns of KEY. They are determined
once conditions are pushed down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from datastem.schema import StreamSchema
from datastem.types import BIGINT, TIMESTAMP
from querystem.expressions import Call, ColumnRef, Expression, Literal, Op, uses_now
from querystem.join.factors import items_of
from querystem.language.errors import BindProblem, NotYet, Span, WindowProblem
from querystem.language.expressions.bind import identifier
from querystem.language.expressions.scope import Scope, ScopeItem, ScopeStream
from querystem.language.normal_form.normal import call
from querystem.language.normal_form.rewrite import conjuncts
from querystem.language.queries.drafts import DraftAsOf
from querystem.language.syntax.tree import node_span
from querystem.legs import AsOf, Leg
from querystem.sources import item_column


def bind_lookup(
    table: exp.Expr, schema: StreamSchema, before: Scope
) -> tuple[DraftAsOf, tuple[int, ...]]:
    """Return the look-up that a reference to a stream is, after other items of FROM, and the
    numbers of the windows of the rows it is for; raise QueryError."""
    version = table.args["version"]
    span, as_known = node_span(version), version.args.get("table") is None
    item = _item(version, as_known, before)
    _check_validity([schema, *(stream.schema for stream in _streams_in(item))], span)
    if (frame := table.args.get("frame")) is not None:
        raise WindowProblem(
            "rows that are looked up have no window",
            node_span(frame),
            hint=f"give {item.name} one: it decides which rows are looked up",
        )
    if not schema.key:
        raise _refused(
            f"{schema.name} has no KEY, and a row is looked up by its key",
            node_span(table.this),
            "join with the stream itself",
        )
    if item.stream is None and as_known:
        raise _refused("rows of a query have no position", span, "name a stream")
    streams = _streams_in(item)
    _check_time(item, schema, span)
    for stream in streams:
        _check_clocks(schema, stream.schema, span)
    if as_known and schema.retain is not None:
        raise _refused(
            f"{schema.name} has RETAIN, and may have forgotten what was known",
            span,
            "AS KNOWN AT takes a stream without RETAIN",
        )
    columns = tuple(ColumnRef(name, schema.types[name]) for name in schema.key)
    row = ColumnRef(f"{item.prefix}row_id", BIGINT) if as_known else None
    name = item.stream.schema.name if as_known and item.stream is not None else ""
    labels = schema.labelled.key
    draft = DraftAsOf(item.column("ts"), (), row, name, columns, labels, span)
    return draft, tuple(stream.window for stream in streams)


def _streams_in(item: ScopeItem) -> Sequence[ScopeStream]:
    """Return the streams whose rows an item is made of."""
    return item.inside if item.stream is None else [item.stream]


def _check_validity(schemas: Sequence[StreamSchema], span: Span) -> None:
    """Refuse to look rows up by their ts, or for the ts of others, if they have a validity."""
    for schema in schemas:
        if schema.validity is not None:
            raise NotYet(
                f"a look-up AS OF, or for rows of {schema.name}, which have a validity",
                span,
                hint="compare their columns with the instant: starts <= ts AND ts < ends",
            )


def _item(version: exp.Expr, as_known: bool, before: Scope) -> ScopeItem:
    """Return the item whose rows are looked up for."""
    name = version.this if as_known else version.args["table"]
    if not as_known and identifier(version.this) != "ts":
        raise _refused(
            "AS OF takes the ts of a row", node_span(version), f"write AS OF {name.name}.ts"
        )
    if not before.items:
        raise _refused(
            f"{name.name} does not stand before it",
            node_span(version),
            "name a stream that stands before it in FROM",
        )
    return before.item(identifier(name), node_span(version))


def _check_time(item: ScopeItem, schema: StreamSchema, span: Span) -> None:
    """Refuse to look up rows for those of a query that have no ts, or a computed ts if `schema`
    has RETAIN."""
    if item.types.get("ts") != TIMESTAMP:
        raise _refused(
            f"rows of {item.name} have no ts that is a TIMESTAMP",
            span,
            "groups have none, nor have rows of DISTINCT, LIMIT, UNION, INTERSECT and EXCEPT: name"
            " an output ts",
        )
    if item.stream is None and "ts" in item.star_columns and schema.retain is not None:
        raise _refused(
            f"the ts of {item.name} is an output, which may be any instant, and {schema.name} has"
            " RETAIN",
            span,
            "look rows up in a stream without RETAIN",
        )


def _check_clocks(schema: StreamSchema, schema_beside: StreamSchema, span: Span) -> None:
    if schema.now_is_clock != schema_beside.now_is_clock:
        event, arrival = (schema_beside, schema) if schema.now_is_clock else (schema, schema_beside)
        raise WindowProblem(
            f"{event.name} has event time and {arrival.name} arrival time: their clocks can't be"
            " compared",
            span,
            hint="look up rows of streams with one kind of time",
            reason="MIXED_CLOCKS",
        )


def _refused(message: str, span: Span | None, hint: str) -> BindProblem:
    return BindProblem(message, span, hint=hint, reason="BAD_LOOKUP")


def with_keys(leg: Leg, number: int, on: Expression) -> Leg:
    """Return a leg, item `number` of a FROM, that is looked up by what `on` equates its KEY with;
    raise BindProblem if that is not all of KEY."""
    draft = leg.as_of
    if not isinstance(draft, DraftAsOf):
        return leg
    keys = []
    for column, label in zip(draft.columns, draft.labels, strict=True):
        item_ref = ColumnRef(item_column(number, column.name), column.type)
        values = [*_equated(item_ref, conjuncts(on), number), *_constants(column, leg.where)]
        if not values:
            raise _refused(
                f"a row of {leg.stream} is looked up by all of its KEY, and nothing before it"
                f" equals {label}",
                draft.span,
                f"add a condition such as {leg.stream}.{label} = value",
            )
        key = values[0]
        alike = key.type == column.type
        keys.append(key if alike else call(Op.CAST, (key,), column.type))
    return replace(leg, as_of=AsOf(draft.instant, tuple(keys), draft.row, draft.stream))


def _equated(column: ColumnRef, conditions: Sequence[Expression], number: int) -> list[Expression]:
    """Return the expressions over items before a column's own that conditions equate the column
    with."""
    values = []
    for condition in conditions:
        if isinstance(condition, Call) and condition.op is Op.EQ and column in condition.args:
            lhs, rhs = condition.args
            values.append(rhs if lhs == column else lhs)
    return [
        value
        for value in values
        if all(item < number for item in items_of(value)) and not uses_now(value)
    ]


def _constants(column: ColumnRef, where: Expression) -> list[Expression]:
    """Return the constants that the predicate of a leg equates a column with."""
    return [
        factor.args[1]
        for factor in conjuncts(where)
        if isinstance(factor, Call)
        and factor.op is Op.EQ
        and factor.args[0] == column
        and isinstance(factor.args[1], Literal)
    ]
