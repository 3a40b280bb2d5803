"""The operators of a query, for people: a tree from the answer down to the streams, with the update
pattern of what comes out of each.

A text has aliases and a tree has none: a column stands beside the name of its stream, with a number
if the query refers to the stream several times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from querystem.combine import JoiningPart
from querystem.expressions import TRUE, Call, ColumnRef, Expression
from querystem.grouping import Aggregate, Grouping, aggregate_name, key_name
from querystem.labels import labelled_leg, labelled_refresh
from querystem.language.normal_form.rewrite import all_of
from querystem.language.normal_form.texts import (
    expression_text,
    leg_window_text,
    refresh_text,
    window_text,
)
from querystem.language.tokens.names import write_name
from querystem.legs import Leg
from querystem.patterns import Pattern, Schemas, pattern_of, source_pattern
from querystem.query import Item, Query, SortKey, Source
from querystem.sources import From, LeftJoin, SetOperation, SubQuery, subquery_column

# The name of an operator that looks up rows of a keyed stream as of other rows.
LOOK_UP = "look up"
_ALL_GROUPS = "all rows"


@dataclass(frozen=True)
class Operator:
    """An operator: what it does, to what (`detail`), and the pattern of its rows.

    `leg` is the number of a stream among the legs of the query. `part` is the part of the query's
    tree that an operator joins.
    """

    name: str
    detail: str
    pattern: Pattern
    inputs: tuple[Operator, ...] = ()
    leg: int | None = None
    part: JoiningPart | None = None


def operators_of(query: Query, schemas: Schemas) -> Operator:
    """Return the operators of a query; `schemas` returns the schema of a stream by its name."""
    return _TreeMaker(schemas, iter(enumerate(leg_labels(query.legs)))).query(query, True)


# How a column of an operator's rows is shown.
Names: TypeAlias = Callable[[str], str]
_Named: TypeAlias = tuple[Operator, Names]


@dataclass(frozen=True)
class _TreeMaker:
    """Makes the operators of one query; `legs` gives the number and the label of each leg, in the
    order of the text."""

    schemas: Schemas
    legs: Iterator[tuple[int, str]]

    def query(self, query: Query, whole: bool = False) -> Operator:
        """Return the clauses of a query over its source, in the order they apply. The REFRESH of
        the `whole` query is not among its operators."""
        rows = replace(query, having=TRUE, distinct=False, order_by=(), limit=None, offset=0)
        operator, names = self._source(query.source)
        if query.grouping is not None:
            detail = _grouping_text(query.grouping, names)
            operator = self._above(operator, "group", detail, rows)
            names = _group_names(query.grouping, names)
        if query.having != TRUE:
            operator = self._above(operator, "having", _text(query.having, names), rows)
        outputs = ", ".join(output.name for output in query.outputs)
        operator = self._above(operator, "select", outputs, rows)
        if query.distinct:
            rows = replace(rows, distinct=True)
            operator = self._above(operator, "distinct", "", rows)
        if query.order_by:
            operator = self._above(operator, "sort", _order_text(query.order_by, names), rows)
        if query.limit is not None or query.offset:
            operator = self._above(operator, "limit", _limit_text(query), query)
        operator = _of_view(operator, query.view)
        if query.refresh is not None and not whole:
            text = refresh_text(labelled_refresh(query.refresh, self.schemas))
            operator = self._above(operator, "refresh", text.removeprefix("REFRESH "), query)
        if query.over is not None:
            pattern = source_pattern(query, self.schemas)
            operator = Operator("window", window_text(query.over), pattern, (operator,))
        return operator

    def _above(self, below: Operator, name: str, detail: str, query: Query) -> Operator:
        """Return an operator over another; `query` ends with it."""
        return Operator(name, detail, pattern_of(query, self.schemas), (below,))

    def _source(self, source: Source) -> _Named:
        if isinstance(source, Leg):
            schema = self.schemas(source.stream)
            return self._leg(source)[0], lambda name: write_name(schema.label(name))
        return self._from(source)

    def _from(self, source: From) -> _Named:
        items = [self._item(item) for item in source.items]
        names = _item_names([names for _, names in items], len(source.subqueries))
        pattern = source_pattern(From(source.items, source.on), self.schemas)
        inputs = self._looked_up([operator for operator, _ in items], source.items, names)
        if not inputs:
            operator = _filtered(Operator("one row", "", pattern, ()), source.on, names, pattern)
        elif len(inputs) > 1:
            operator = Operator("join", _condition(source.on, names), pattern, inputs, part=source)
        else:
            operator = _filtered(inputs[0], source.on, names, pattern)
        for number, subquery in enumerate(source.subqueries):
            operator = self._subquery(source, number, subquery, (operator, names))
        return _filtered(operator, source.where, names, source_pattern(source, self.schemas)), names

    def _subquery(self, source: From, number: int, subquery: SubQuery, outer: _Named) -> Operator:
        """Return a query inside an expression, beside the combinations that it has a value for."""
        inner, (operator, names) = self.query(subquery.query), outer
        so_far = replace(source, subqueries=source.subqueries[: number + 1])
        detail = _condition(subquery.on, _item_names([names, _output_name]))
        if subquery.operand is not None and subquery.op is not None:
            operand = _text(subquery.operand, _item_names([names]))
            compared = f"{operand} {subquery.op.value} {subquery.query.outputs[0].name}"
            detail = f"{compared} AND {detail}" if detail else compared
        pattern, inputs = source_pattern(so_far, self.schemas), (operator, inner)
        if subquery.grouping is not None:
            both = _item_names([names, _output_name])
            parts = [detail, *(_aggregate_text(a, both) for a in subquery.grouping.aggregates)]
            detail = ", ".join(filter(None, parts))
        label = f"{names(subquery_column(number))}: {detail}".removesuffix(": ")
        return Operator(subquery.kind.value, label, pattern, inputs, part=subquery)

    def _item(self, item: Item) -> _Named:
        match item:
            case Leg():
                return self._leg(item)
            case Query():
                return self.query(item), _output_name
            case SetOperation(operator, queries):
                inputs = tuple(self.query(query) for query in queries)
                pattern = source_pattern(item, self.schemas)
                operation = Operator(operator.value, "", pattern, inputs)
                return _of_view(operation, item.view), _output_name
            case LeftJoin(left_side, right_side, on):
                sides = self._from(left_side), self._item(right_side)
                names = _item_names([names for _, names in sides])
                operators, items = [side for side, _ in sides], (left_side, right_side)
                inputs = self._looked_up(operators, items, names)
                pattern = source_pattern(item, self.schemas)
                return Operator("left join", _text(on, names), pattern, inputs, part=item), names

    def _leg(self, leg: Leg) -> _Named:
        schema, shown = self.schemas(leg.stream), labelled_leg(leg, self.schemas)
        detail = f"{write_name(leg.stream)} WINDOW({leg_window_text(shown)}){_where_text(shown)}"
        number, label = next(self.legs)
        operator = Operator("stream", detail, source_pattern(leg, self.schemas), leg=number)

        def column_label(name: str) -> str:
            return f"{label}.{write_name(schema.label(name))}"

        return _of_view(operator, leg.view), column_label

    def _looked_up(
        self, inputs: Sequence[Operator], items: Sequence[Item | From], names: Names
    ) -> tuple[Operator, ...]:
        """Return the inputs of a join; those that are looked up as of others' rows are shown as
        such."""
        operators = []
        for operator, item in zip(inputs, items, strict=True):
            if isinstance(item, Leg) and item.as_of is not None:
                word = "AS OF" if item.as_of.row is None else "AS KNOWN AT"
                instant = _text(item.as_of.row or item.as_of.instant, names)
                where = _where_text(labelled_leg(item, self.schemas))
                detail = f"{write_name(item.stream)} {word} {instant}{where}"
                operator = replace(operator, name=LOOK_UP, detail=detail)
            operators.append(operator)
        return tuple(operators)


def _of_view(operator: Operator, view: str) -> Operator:
    """Return the operator of a view, if there is one, over what the view is."""
    return Operator("view", write_name(view), operator.pattern, (operator,)) if view else operator


def _filtered(below: Operator, condition: Expression, names: Names, pattern: Pattern) -> Operator:
    """Return the operator that keeps rows for which a condition is true; `below` if it keeps
    all."""
    if condition == TRUE:
        return below
    return Operator("where", _text(condition, names), pattern, (below,))


# ---- names of columns


def leg_labels(legs: Sequence[Leg]) -> list[str]:
    """Return a name for each leg: that of its stream, with a number if several refer to it."""
    totals, counts, labels = Counter(leg.stream for leg in legs), Counter[str](), []
    for leg in legs:
        counts[leg.stream] += 1
        number = f"#{counts[leg.stream]}" if totals[leg.stream] > 1 else ""
        labels.append(f"{write_name(leg.stream)}{number}")
    return labels


def _item_names(items: Sequence[Names], subqueries: int = 0) -> Names:
    """Return how columns of several items are shown: each is named by its item, as `item_column`
    does; and the values of queries inside expressions."""
    values = {subquery_column(number): f"query {number + 1}" for number in range(subqueries)}

    def column_label(name: str) -> str:
        number, dot, column = name.partition(".")
        return items[int(number)](column) if dot else values.get(name, name)

    return column_label


def _output_name(name: str) -> str:
    return f"query.{write_name(name)}"


def _group_names(grouping: Grouping, names: Names) -> Names:
    """Return how keys and aggregates are shown, over rows whose columns `names` shows."""
    labels = {key_name(n): _text(key, names) for n, key in enumerate(grouping.keys)}
    aggregates = enumerate(grouping.aggregates)
    labels |= {aggregate_name(n): _aggregate_text(aggregate, names) for n, aggregate in aggregates}
    return lambda name: labels.get(name, name)


# ---- texts


def _grouping_text(grouping: Grouping, names: Names) -> str:
    keys = ", ".join(_text(key, names) for key in grouping.keys) or _ALL_GROUPS
    aggregates = ", ".join(_aggregate_text(aggregate, names) for aggregate in grouping.aggregates)
    return f"{keys}: {aggregates}" if aggregates else keys


def _aggregate_text(aggregate: Aggregate, names: Names) -> str:
    if aggregate.argument is None:
        return aggregate.function.value
    distinct = "DISTINCT " if aggregate.distinct else ""
    fraction = "" if aggregate.fraction is None else f", {aggregate.fraction!r}"
    argument = _text(aggregate.argument, names)
    return f"{aggregate.function.value}({distinct}{argument}{fraction})"


def _where_text(leg: Leg) -> str:
    conditions = [part for part in (leg.where, leg.moment) if part != TRUE]
    return f" WHERE {expression_text(all_of(conditions))}" if conditions else ""


def _order_text(keys: Sequence[SortKey], names: Names) -> str:
    return ", ".join(
        _text(key.expression, names) + (" DESC" if key.descending else "") for key in keys
    )


def _limit_text(query: Query) -> str:
    limit = [] if query.limit is None else [str(query.limit)]
    return " ".join([*limit, *([f"OFFSET {query.offset}"] if query.offset else [])])


def _condition(condition: Expression, names: Names) -> str:
    return "" if condition == TRUE else _text(condition, names)


def _text(expression: Expression, names: Names) -> str:
    return expression_text(_named(expression, names))


def _named(expression: Expression, names: Names) -> Expression:
    """Return the expression with its columns as they are shown."""
    match expression:
        case ColumnRef(name, type_):
            return ColumnRef(names(name), type_)
        case Call(op, args, type_):
            return Call(op, tuple(_named(arg, names) for arg in args), type_)
    return expression
