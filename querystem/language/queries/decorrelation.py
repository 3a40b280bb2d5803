"""Queries that read columns of a query around them, as queries that read none.

The columns of the query around become rows: a query of their different values is one more item of
FROM, and the columns of that item take their place. So the inner query is answered once for all of
these values. It shows them in hidden outputs, and a row of the query around goes with the answer's
rows that have its values.

A column of a query around is named with a mark before its name: OUTER, once for each query out.
Conditions of SubQueries name such columns as those of item 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal

from datastem.instants import from_micros
from datastem.types import BOOLEAN, Kind, Type
from querystem.expressions import TRUE, ColumnRef, Expression, Literal, Op, Scalar, references_of
from querystem.grouping import Grouping, key_name
from querystem.language.errors import NotYet, Span
from querystem.language.expressions.bind import OUTER
from querystem.language.normal_form.normal import call
from querystem.language.normal_form.rewrite import all_of, has_subquery, substituted
from querystem.language.queries.drafts import is_limited
from querystem.language.queries.sets import BoundBlock
from querystem.legs import Leg
from querystem.query import Item, Output, Query
from querystem.sources import From, LeftJoin, SetOperation, SubQuery, SubQueryKind, item_column

# A LIMIT that cuts nothing: the rows stay in their order.
EVERY_ROW = 1 << 62
# A column of item 0 that is one of a query around.
_OF_ITEM = item_column(0, OUTER)


@dataclass(frozen=True)
class OuterRows:
    """The different values of some columns of a query around, as a query. `names` are those of the
    columns there, in the order of the outputs."""

    query: Query
    names: tuple[str, ...]
    span: Span

    def columns(self, number: int) -> list[ColumnRef]:
        """Return the values as columns of item `number`."""
        return [ColumnRef(item_column(number, c.name), c.type) for c in self.query.columns]

    def hidden(self, mark: str) -> list[ColumnRef]:
        """Return the values as hidden outputs of a query."""
        columns = enumerate(self.query.columns)
        return [ColumnRef(_hidden(mark, at), column.type) for at, column in columns]


def outer_columns(query: Query, mark: str = OUTER) -> dict[str, ColumnRef]:
    """Return the columns with a mark that are read anywhere in a query, by their names without
    it."""
    columns: dict[str, ColumnRef] = {}
    for expression, its_mark in _expressions(query, mark):
        for column in references_of(expression):
            name = _name_around(column.name, its_mark)
            if name is not None:
                columns[name] = ColumnRef(name, column.type)
    return columns


def _name_around(name: str, mark: str) -> str | None:
    marked = name.removeprefix(item_column(0, "")) if name.startswith(_OF_ITEM) else name
    plain = marked.removeprefix(mark)
    return None if plain == marked or plain.startswith(OUTER) else plain


def _reads_around(expressions: Iterable[Expression], mark: str) -> bool:
    names = (column.name for part in expressions for column in references_of(part))
    return any(_name_around(name, mark) is not None for name in names)


def _expressions(part: Query | Item | From, mark: str) -> Iterator[tuple[Expression, str]]:
    """Yield the expressions anywhere in a part, each with the mark that it has there."""
    match part:
        case Leg():
            yield part.where, mark
            if part.as_of is not None:
                yield part.as_of.instant, mark
        case SetOperation():
            for query in part.queries:
                yield from _expressions(query, mark)
        case LeftJoin():
            yield part.on, mark
            yield from _expressions(part.left, mark)
            yield from _expressions(part.right, mark)
        case From():
            yield part.on, mark
            yield part.where, mark
            for item in part.items:
                yield from _expressions(item, mark)
            for subquery in part.subqueries:
                for expression in subquery.expressions:
                    yield expression, mark
                yield from _expressions(subquery.query, mark + OUTER)
        case Query():
            for expression in clauses_of(part):
                yield expression, mark
            yield from _expressions(part.source, mark)


def clauses_of(query: Query) -> Iterator[Expression]:
    """Yield the expressions of a query, but not those of its source."""
    yield from (output.expression for output in query.outputs)
    yield from (key.expression for key in query.order_by)
    yield query.having
    if query.grouping is not None:
        yield from query.grouping.expressions


# ---- conditions that were set apart


def whole(block: BoundBlock) -> BoundBlock:
    """Return a block with its correlated conditions among those of its query."""
    if not block.correlated:
        return block
    query, conditions = block.query, block.correlated
    values = block.values
    if isinstance(query.source, Leg):
        query, conditions = over_items(query), [_of_item(part) for part in conditions]
        values = [replace(value, node=_of_item(value.node)) for value in values]
    source = query.source
    assert isinstance(source, From)
    on = [source.on, *(part for part in conditions if not has_subquery(part))]
    where = [source.where, *(part for part in conditions if has_subquery(part))]
    source = replace(source, on=all_of(on), where=all_of(where))
    return BoundBlock(replace(query, source=source), values)


def over_items(query: Query) -> Query:
    """Return a query over one stream as a query over FROM with one item."""
    if isinstance(query.source, From):
        return query
    return replace(query.mapped(_of_item), source=From((query.source,)))


def _of_item(expression: Expression) -> Expression:
    """Return an expression over a stream with the columns of item 0. Keys, aggregates and columns
    of queries around keep their names."""
    columns = {
        column.name: ColumnRef(item_column(0, column.name), column.type)
        for column in references_of(expression)
        if not column.name.startswith(("$", OUTER))
    }
    return substituted(expression, columns)


# ---- columns of a query around as rows


def uncut(kind: SubQueryKind, query: Query) -> Query:
    """Return a query inside an expression without a LIMIT that the values of outer columns make no
    difference to: EXISTS asks for one row, and a value is that of the first."""
    if query.offset or not query.limit:
        return query
    if kind is SubQueryKind.SCALAR and query.limit == 1:
        return replace(query, limit=EVERY_ROW)
    return replace(query, limit=None) if kind is SubQueryKind.EXISTS else query


def projection(query: Query) -> Query:
    """Return a query of the rows of another."""
    outputs = [
        Output(column.name, ColumnRef(item_column(0, column.name), column.type))
        for column in query.columns
    ]
    return Query(From((query,)), tuple(outputs))


def decorrelated(query: Query, mark: str, rows: OuterRows) -> Query:
    """Return a query that reads the `rows` instead of the columns of the query around with this
    mark, and has their values as hidden outputs. Raise NotYet."""
    if query.limit == EVERY_ROW:
        return replace(decorrelated(replace(query, limit=None), mark, rows), limit=EVERY_ROW)
    if is_limited(query):
        raise NotYet(
            "LIMIT in a query with columns of an outer one",
            rows.span,
            hint="as a value write LIMIT 1 alone; else select an aggregate such as max(price)",
        )
    if query.grouping is not None and not query.grouping.keys:
        return _one_group(query, mark, rows)
    query = over_items(query)
    source = query.source
    assert isinstance(source, From)
    number = len(source.items)
    query = replace(query, source=_from(source, mark, rows))
    if query.grouping is None:
        columns = _places(mark, rows, rows.columns(number))
        query = query.mapped(lambda part: substituted(part, columns))
        return _with_hidden(query, mark, rows, number)
    return _groups(query, query.grouping, mark, rows, number)


def _from(source: From, mark: str, rows: OuterRows) -> From:
    """Return a FROM with the rows as its last item, which it reads."""
    number = len(source.items)
    columns = _places(mark, rows, rows.columns(number))
    items, on = [], [substituted(source.on, columns)]
    for place, item in enumerate(source.items):
        changed, values = _item(item, mark, rows)
        items.append(changed)
        sides = [ColumnRef(item_column(place, value.name), value.type) for value in values]
        on += _equal(sides, rows.columns(number)) if sides else []
    return From(
        (*items, rows.query),
        all_of(on),
        tuple(_subquery(subquery, mark, rows, number) for subquery in source.subqueries),
        substituted(source.where, columns),
    )


def _places(mark: str, rows: OuterRows, values: Sequence[ColumnRef]) -> dict[str, Expression]:
    """Return what takes the place of the columns with a mark, in clauses and in conditions of
    SubQueries."""
    named = list(zip(rows.names, values, strict=True))
    plain: dict[str, Expression] = {mark + name: value for name, value in named}
    inside = {
        item_column(0, mark + name): ColumnRef(item_column(0, value.name), value.type)
        for name, value in named
    }
    return plain | inside


def _with_hidden(query: Query, mark: str, rows: OuterRows, number: int) -> Query:
    """Return a query with the values of item `number`, which are the rows, as hidden outputs."""
    hidden = [Output(_hidden(mark, at), column) for at, column in enumerate(rows.columns(number))]
    return replace(query, outputs=(*query.outputs, *hidden))


def _groups(query: Query, grouping: Grouping, mark: str, rows: OuterRows, number: int) -> Query:
    """Return a query that groups, also by the values of the rows."""
    values, first = rows.columns(number), len(grouping.keys)
    keys = [ColumnRef(key_name(first + at), value.type) for at, value in enumerate(values)]
    of_rows, of_groups = _places(mark, rows, values), _places(mark, rows, keys)
    grouping = grouping.mapped(lambda part: substituted(part, of_rows))
    whole = replace(query, grouping=None).mapped(lambda part: substituted(part, of_groups))
    hidden = [Output(_hidden(mark, at), key) for at, key in enumerate(keys)]
    return replace(
        whole,
        grouping=replace(grouping, keys=(*grouping.keys, *values)),
        outputs=(*whole.outputs, *hidden),
    )


def _one_group(query: Query, mark: str, rows: OuterRows) -> Query:
    """Return aggregates without GROUP BY for each of the rows: over no rows they have a value, too.
    So the rows are joined with those that are aggregated, if any."""
    grouping = query.grouping
    assert grouping is not None
    arguments = [aggregate.argument for aggregate in grouping.aggregates]
    outputs = [Output(_argument(n), a) for n, a in enumerate(arguments) if a is not None]
    plain = replace(query, outputs=(*outputs, Output(_IS_ROW, TRUE)), grouping=None, having=TRUE)
    inner = decorrelated(replace(plain, order_by=(), distinct=False), mark, rows)
    sides = [ColumnRef(item_column(0, column.name), column.type) for column in rows.columns(0)]
    joined = LeftJoin(From((rows.query,)), inner, all_of(_equal(_of_side_1(rows, mark), sides)))
    aggregates = tuple(
        replace(aggregate, argument=_joined(1, _IS_ROW, BOOLEAN))
        if aggregate.argument is None
        else replace(aggregate, argument=_joined(1, _argument(n), aggregate.argument.type))
        for n, aggregate in enumerate(grouping.aggregates)
    )
    by_row = replace(query, source=From((joined,)), grouping=Grouping((), aggregates))
    values = [_joined(0, column.name, column.type) for column in rows.columns(0)]
    keys = [ColumnRef(key_name(at), value.type) for at, value in enumerate(values)]
    places = _places(mark, rows, keys)
    changed = replace(by_row, grouping=None).mapped(lambda part: substituted(part, places))
    hidden = [Output(_hidden(mark, at), key) for at, key in enumerate(keys)]
    return replace(
        changed,
        grouping=Grouping(tuple(values), aggregates),
        outputs=(*changed.outputs, *hidden),
    )


_IS_ROW = "$is_row"


def _argument(number: int) -> str:
    return f"$argument{number}"


def _joined(side: int, name: str, type_: Type) -> ColumnRef:
    """Return a column of a side of a LEFT JOIN that is the only item."""
    return ColumnRef(item_column(0, item_column(side, name)), type_)


def _item(item: Item, mark: str, rows: OuterRows) -> tuple[Item, list[ColumnRef]]:
    """Return an item of FROM, and its columns with the values of the rows: none, if it reads no
    columns with the mark."""
    if not any(_reads_around([part], its_mark) for part, its_mark in _expressions(item, mark)):
        return item, []
    match item:
        case LeftJoin():
            return _left_join(item, mark, rows)
        case Query() if item.over is None and item.refresh is None:
            return decorrelated(item, mark, rows), rows.hidden(mark)
        case SetOperation():
            queries = tuple(decorrelated(query, mark, rows) for query in item.queries)
            return replace(item, queries=queries), rows.hidden(mark)
    raise NotYet(
        "columns of an outer query in a query with a WINDOW or a REFRESH of its own",
        rows.span,
        hint="write the window at the streams inside",
    )


def _left_join(item: LeftJoin, mark: str, rows: OuterRows) -> tuple[LeftJoin, list[ColumnRef]]:
    """Return a LEFT JOIN with the rows on its left side, and the columns with their values."""
    values = [
        ColumnRef(item_column(0, column.name), column.type)
        for column in rows.columns(len(item.left.items))
    ]
    right, right_values = _item(item.right, mark, rows)
    sides = [ColumnRef(item_column(1, value.name), value.type) for value in right_values]
    on = [substituted(item.on, _places(mark, rows, values))]
    on += _equal(sides, values) if sides else []
    return LeftJoin(_from(item.left, mark, rows), right, all_of(on)), values


def _subquery(subquery: SubQuery, mark: str, rows: OuterRows, number: int) -> SubQuery:
    """Return a query inside an expression of a query whose item `number` are the rows."""
    columns, query = _places(mark, rows, rows.columns(number)), subquery.query
    changed = subquery.mapped(lambda part: substituted(part, columns))
    on = changed.on
    if outer_columns(query, mark + OUTER):
        is_value = subquery.kind is SubQueryKind.SCALAR and query.grouping is not None
        query = decorrelated(uncut(subquery.kind, query), mark + OUTER, rows)
        if is_value and subquery.on == TRUE and query.limit is None:
            # Every value has a group, or HAVING has dropped it: then it is NULL.
            query = projection(query)
        sides = [ColumnRef(item_column(0, c.name), c.type) for c in rows.columns(number)]
        on = all_of([on, *_equal(_of_side_1(rows, mark + OUTER), sides)])
    return replace(changed, query=query, on=on)


# ---- rows that go together


def _hidden(mark: str, number: int) -> str:
    return f"$around{len(mark)}_{number}"


def _of_side_1(rows: OuterRows, mark: str) -> list[ColumnRef]:
    return [ColumnRef(item_column(1, value.name), value.type) for value in rows.hidden(mark)]


def equal_to_hidden(rows: OuterRows, values: Sequence[Expression]) -> list[Expression]:
    """Return the conditions under which a row, whose columns have these values, goes with one of
    item 1, which has the hidden outputs."""
    return _equal(_of_side_1(rows, OUTER), values)


def _equal(lhs: Sequence[Expression], rhs: Sequence[Expression]) -> list[Expression]:
    """Return conditions that values are equal, or both NULL: as equalities, which joins look up."""
    conditions = []
    for lhs_value, rhs_value in zip(lhs, rhs, strict=True):
        pair = (lhs_value, rhs_value)
        zero = Literal(_ZEROS[lhs_value.type.kind], lhs_value.type)
        sides = [call(Op.COALESCE, (side, zero), lhs_value.type) for side in pair]
        nulls = [call(Op.IS_NULL, (side,), BOOLEAN) for side in pair]
        conditions += [call(Op.EQ, (*sides,), BOOLEAN), call(Op.EQ, (*nulls,), BOOLEAN)]
    return conditions


_ZEROS: dict[Kind, Scalar] = {
    Kind.BOOLEAN: False,
    Kind.BIGINT: 0,
    Kind.DOUBLE: 0.0,
    Kind.DECIMAL: Decimal(0),
    Kind.TEXT: "",
    Kind.TIMESTAMP: from_micros(0),
    Kind.DATE: date(1970, 1, 1),
}
