"""A parsed query becomes a bound Query, whose parameters may still be without values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from datastem.schema import StreamSchema
from datastem.types import TIMESTAMP, Type
from querystem.expressions import Expression
from querystem.language.bind import identifier
from querystem.language.clauses import (
    Count,
    OutputItem,
    bind_condition,
    bind_count,
    bind_order,
    check_distinct,
    group_binder,
    placed,
    read_items,
)
from querystem.language.coerce import need_type, unify
from querystem.language.errors import (
    NotYet,
    RefreshProblem,
    Span,
    TypeProblem,
    UnknownParameter,
)
from querystem.language.literals import Typed
from querystem.language.parse import Parsed, ParsedRefresh
from querystem.language.references import (
    Lookup,
    Names,
    Place,
    TextBinding,
    item_name,
    references,
)
from querystem.language.rewrite import all_of, mapped
from querystem.language.scope import Scope, ScopeItem
from querystem.language.sources import Sources, check_plain
from querystem.language.tails import Tail
from querystem.language.tree import consume, node_span
from querystem.query import From, Output, Query, SetOperation, SetOperator, Source, item_column
from querystem.refresh import RefreshOn


@dataclass(frozen=True, slots=True)
class BoundSelect:
    """A query that may still hold parameters, as its LIMIT, OFFSET, windows and REFRESH may.

    `places` says where each parameter first stands. The query's own limit and offset, its windows
    and its period are not set yet, and conditions over several streams are not pushed down.
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
    """Binds a query in a text of length `end`; `names` lists the streams, to suggest one."""
    text = TextBinding(lookup, names, parameters)
    node = parsed.query
    place = replace(Place().within(node), own=False)
    query = _QueryBinder(text).whole(node, place)
    if parsed.refresh is not None:
        query = replace(query, refresh=_trigger(parsed.refresh, text))
    base = text.binder(Scope(()))
    while isinstance(node, exp.Subquery):
        node = node.this
    limit = bind_count(node.args.get("limit"), "LIMIT", replace(base, clause="LIMIT"))
    offset = bind_count(node.args.get("offset"), "OFFSET", replace(base, clause="OFFSET"))
    refresh = parsed.refresh
    period, span = (refresh.period, refresh.span) if refresh else ((), None)
    tail = Tail.of(text.legs, text.overs, period, span, end)
    for name, spot in tail.names.items():
        base.use(name, spot)
    _check_used(parameters, text.used)
    return BoundSelect(query, limit, offset, tail, text.used)


_CLAUSES = ("group", "having", "order", "limit", "offset", "frame", "ctes")


@dataclass(frozen=True, slots=True)
class _Block:
    """A bound SELECT; `values` are its outputs while their types may still be settled."""

    query: Query
    values: Sequence[Typed]


class _QueryBinder:
    def __init__(self, text: TextBinding) -> None:
        self._text = text

    def whole(self, node: exp.Expr, place: Place) -> Query:
        """A query with its own window and names in `place` already."""
        if isinstance(node, exp.Select):
            query = self._block(node, place).query
        elif isinstance(node, exp.Subquery):
            query = self._bracketed(node, place)
        else:
            query = self._union(node, place)
        self._text.check_reached(node)
        return query

    def inner(self, node: exp.Expr, place: Place) -> Query:
        return self.whole(node, place.within(node))

    # ---- one block

    def _block(self, select: exp.Expr, place: Place, branch: bool = False) -> _Block:
        """A SELECT. As a branch of a set operation it takes the types of its outputs from the
        others."""
        consume(select, "expressions", "distinct", "from_", "joins", "where", *_CLAUSES)
        items = references(select)
        table = items[0][0]
        several = len(items) > 1 or not isinstance(table, exp.Table)
        if several or identifier(table.this) in place.named:
            return self._over_several(select, place, branch)
        leg, schema = self._text.leg(table, place)
        scope = Scope((stream_item(item_name(table), schema),))
        return self._clauses(select, scope, lambda where: replace(leg, where=where), branch)

    def _over_several(self, select: exp.Expr, place: Place, branch: bool) -> _Block:
        sources = Sources(self._text, self.inner)
        scope = sources.scope(select, place)

        def resolved(expression: Expression) -> Expression:
            return sources.resolved(expression, node_span(select))

        def source(where: Expression) -> From:
            return From(sources.items, all_of([*sources.conditions, resolved(where)]))

        block = self._clauses(select, scope, source, branch)
        values = [replace(one, node=resolved(one.node)) for one in block.values]
        return _Block(mapped(block.query, resolved), values)

    def _clauses(
        self,
        select: exp.Expr,
        scope: Scope,
        source: Callable[[Expression], Source],
        branch: bool,
    ) -> _Block:
        """All but the FROM of a SELECT; `source` takes its WHERE."""
        base = self._text.binder(scope)
        items = read_items(select, scope)
        base = replace(base, outputs=[item.name for item in items if item.renamed])
        groups = group_binder(select, items, base)
        binder = groups or base
        order = select.args.get("order")
        values = [binder.bind(item.node) for item in items]
        if not branch:
            values = [need_type(value) for value in values]
        outputs = tuple(map(_output, items, values))
        where = bind_condition(select.args.get("where"), replace(base, clause="WHERE"))
        having = bind_condition(select.args.get("having"), replace(binder, clause="HAVING"))
        order_by = bind_order(order, items, replace(binder, clause="ORDER BY"))
        distinct = _distinct(select)
        if distinct:
            check_distinct(order, order_by, outputs)
        grouping = groups.grouping if groups else None
        query = Query(source(where), outputs, grouping, having, distinct, order_by)
        return _Block(query, values)

    # ---- set operations

    def _bracketed(self, node: exp.Expr, place: Place) -> Query:
        """A query in parentheses, with nothing but a window after it."""
        consume(node, "this", *_CLAUSES)
        for clause in ("order", "limit", "offset"):
            if (found := node.args.get(clause)) is not None:
                raise NotYet(
                    "a clause after a query in parentheses",
                    node_span(found),
                    hint="write it inside, or leave the parentheses out",
                )
        return self.inner(node.this, place)

    def _union(self, node: exp.Expr, place: Place) -> Query:
        """UNION ALL as one item, with the ORDER BY of the whole over it."""
        blocks = [
            (select, self._block(select, inside, branch=True))
            for select, inside in self._branches(node, place)
        ]
        queries = _unified(blocks)
        columns = queries[0].columns
        item = ScopeItem(
            "the set operation",
            {"ts": TIMESTAMP, **{column.name: column.type for column in columns}},
            [column.name for column in columns],
            item_column(0, ""),
        )
        base = replace(self._text.binder(Scope((item,))), clause="ORDER BY")
        items = [OutputItem(one.name, placed(one.name, node_span(node))) for one in columns]
        outputs = tuple(Output(column.name, item.column(column.name)) for column in columns)
        order_by = bind_order(node.args.get("order"), items, base)
        source = From((SetOperation(SetOperator.UNION_ALL, queries),))
        return Query(source, outputs, order_by=order_by)

    def _branches(self, node: exp.Expr, place: Place) -> Iterator[tuple[exp.Expr, Place]]:
        """The blocks of UNION ALL, also of one inside the other, each with its place."""
        if isinstance(node, exp.Select):
            yield node, place
            return
        if isinstance(node, exp.Subquery):
            parts = [node.this]
            consume(node, "this", *_CLAUSES)
        else:
            _check_operator(node)
            parts = [node.this, node.args["expression"]]
        for part in parts:
            check_plain(part)
            yield from self._branches(part, place.within(part))
            self._text.check_reached(part)


def _check_operator(node: exp.Expr) -> None:
    consume(node, "this", "expression", "distinct", *_CLAUSES)
    word = type(node).__name__.upper()
    if word != "UNION" or node.args.get("distinct"):
        all_ = "" if node.args.get("distinct") else " ALL"
        raise NotYet(f"{word}{all_}", node_span(node), hint="UNION ALL is supported")


def _unified(blocks: Sequence[tuple[exp.Expr, _Block]]) -> tuple[Query, ...]:
    """The queries of a set operation with outputs of one type each, named as the first one's."""
    names = [output.name for output in blocks[0][1].query.outputs]
    for select, block in blocks[1:]:
        if len(block.values) != len(names):
            raise TypeProblem(
                f"the first SELECT has {_counted(len(names))}, this one {len(block.values)}",
                node_span(select),
                hint="all parts of a set operation have equally many",
            )
    columns = []
    for values in zip(*(block.values for _, block in blocks), strict=True):
        columns.append(unify(values, values[0].span)[0])
    return tuple(
        replace(block.query, outputs=tuple(map(Output, names, [one.node for one in row])))
        for (_, block), row in zip(blocks, zip(*columns, strict=True), strict=True)
    )


def _counted(outputs: int) -> str:
    return "1 output" if outputs == 1 else f"{outputs} outputs"


def stream_item(name: str, schema: StreamSchema) -> ScopeItem:
    """A stream that is a whole FROM: its columns have their own names."""
    return ScopeItem(name, schema.types, [column.name for column in schema.columns])


def _output(item: OutputItem, value: Typed) -> Output:
    return Output(item.name, value.node)


def _distinct(select: exp.Expr) -> bool:
    distinct = select.args.get("distinct")
    if distinct is None:
        return False
    consume(distinct)
    return True


def _check_used(parameters: Mapping[str, Type | None], used: Mapping[str, Span]) -> None:
    for name in parameters:
        if name not in used:
            raise UnknownParameter(f"the text has no :{name}", hint="leave the value out")


def _trigger(parsed: ParsedRefresh, text: TextBinding) -> RefreshOn | None:
    """The REFRESH ON clause of a text that is bound but for it; None for REFRESH EVERY."""
    if len(text.legs) > 1 or text.overs:
        raise NotYet(
            "REFRESH over several streams", parsed.span, hint="the answer is fresh without it"
        )
    if parsed.rows is None:
        return None
    table, schema = references(parsed.rows)[0][0], text.legs[0].schema
    consume(table, "this", "alias")
    rows = text.stream(table)
    if schema.ordered_by is not None and rows.ordered_by is None:
        raise RefreshProblem(
            f"{schema.name} has event time and {rows.name} arrival time: their clocks can't be"
            " compared",
            parsed.span,
            hint="REFRESH ON a stream with ORDERED BY, or REFRESH EVERY duration",
        )
    binder = text.binder(Scope((stream_item(item_name(table), rows),)))
    where = bind_condition(parsed.rows.args.get("where"), replace(binder, clause="REFRESH ON"))
    return RefreshOn(rows.name, where)
