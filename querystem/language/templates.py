"""A template: a text bound once, whose `:name` parameters are filled in many times.

Filling is compiled: the parts of a query that hold no parameter are not touched again. Many rows of
values are filled into one WHERE as the texts of the predicates: each factor is filled once for each
different combination of its values, by the code that fills a single query, and only AND and OR are
put together row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import repeat
from typing import Any, TypeVar

from datastem.schema import Column
from datastem.types import BOOLEAN, TEXT, Kind, Type
from querystem.expressions import Call, Expression, Literal, Op, Parameter, Scalar
from querystem.grouping import Aggregate, Grouping
from querystem.language.clauses import count_of
from querystem.language.drafts import LimitedQuery, with_counts
from querystem.language.errors import Span, UnknownParameter, located
from querystem.language.literals import Typed, decimal_literal, infer, scalar
from querystem.language.normal import call, sort_key
from querystem.language.parse import Parsed, parse_query
from querystem.language.push import pushed_down
from querystem.language.scan import MAX_TEXT
from querystem.language.select import BoundSelect, bind_select
from querystem.language.sources import Lookup, Names
from querystem.query import (
    AsOf,
    From,
    Item,
    LeftJoin,
    Leg,
    Output,
    Query,
    SetOperation,
    SortKey,
    Source,
    SubQuery,
)
from querystem.refresh import Refresh, RefreshOn

_T = TypeVar("_T")
# A part of a query, compiled to a function of the constants in the place of its parameters.
Filler = Callable[[Mapping[str, Literal]], _T]

_CONNECTIVES = (Op.AND, Op.OR)
_COMPARISONS = (Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE, Op.IS_DISTINCT, Op.IN)
# Equal values of these kinds may be written differently: 0.0 and -0.0, 1.5 and 1.50.
_WRITTEN = {float, Decimal}


@dataclass(frozen=True)
class Template:
    """A bound query that may still hold parameters; `prepare` makes it.

    With parameters, `query` has neither LIMIT, OFFSET, window nor REFRESH EVERY yet; `fill` sets
    them. `_beside_where` is the query with all of these where only its WHERE holds parameters, else
    None. With `_any_decimal` a DECIMAL keeps the type of its value.
    """

    text: str
    query: Query
    parameters: Mapping[str, Type | None]
    _places: Mapping[str, Span]
    _fill: Filler[Query]
    _beside_where: Query | None
    _any_decimal: bool = False

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.query.columns

    def fill(self, values: Mapping[str, Scalar]) -> Query:
        """The query with these values, which equals that of a text in which they stand.

        Raises QueryError where a value is missing, unknown, or not of its parameter's type.
        """
        if not self.parameters and not values:
            return self.query
        with located(self.text):
            self._check_names(values)
            return self._fill({name: self._literal(name, values[name]) for name in self.parameters})

    def fill_constants(self, constants: Mapping[str, Literal]) -> Query:
        """The query with a constant, of the parameter's type, for each parameter."""
        return self._fill(constants)

    def fill_many(self, columns: Mapping[str, Sequence[Scalar]]) -> tuple[str, list[str]] | None:
        """The `form` that the queries of all rows share, and each one's `predicate_key`.

        None where rows differ in more than their factors, or there are none: they are then filled
        one by one. Raises QueryError as `fill` does.
        """
        count = len(next(iter(columns.values()), ()))
        if not count or self._beside_where is None:
            return None
        with located(self.text):
            self._check_names(columns)
            try:
                keys = _predicate_texts(self.query.leg.where, columns, self._literal, count)
            except _Unfit:
                return None
        return self._beside_where.form, keys

    def for_any_decimal(self) -> Template | None:
        """The template for DECIMALs of every precision and scale.

        None where each of them may need its own, because the type of a DECIMAL is part of other
        types: it stands elsewhere than in a comparison under WHERE.
        """
        decimals = {
            n for n, type_ in self.parameters.items() if type_ and type_.kind is Kind.DECIMAL
        }
        if self._beside_where is None or decimals & _computed_with(self.query.leg.where):
            return None
        return replace(self, _any_decimal=True)

    def _check_names(self, values: Mapping[str, Any]) -> None:
        for name in values:
            if name not in self.parameters:
                raise UnknownParameter(f"the text has no :{name}", hint="leave the value out")
        for name in self.parameters:
            if name not in values:
                raise UnknownParameter(f":{name} has no value", self._places[name])

    def _literal(self, name: str, value: Scalar) -> Literal:
        place = self._places[name]
        if self._any_decimal and isinstance(value, Decimal):
            return decimal_literal(value, place)
        return _literal(name, value, self.parameters[name], place)


def prepare(
    text: str,
    lookup: Lookup,
    parameter_types: Mapping[str, Type | None],
    *,
    max_text: int = MAX_TEXT,
    names: Names | None = None,
) -> Template:
    """The template of a text, which is parsed and bound once. A type of None is that of a parameter
    that is always NULL.

    `names` lists the streams that `lookup` knows; a misspelled one is then met with the nearest.
    Raises QueryError; also for a parameter that the text does not use.
    """
    with located(text):
        parsed = parse_query(text, max_text)
    return bind_template(text, parsed, lookup, parameter_types, names)


def bind_template(
    text: str,
    parsed: Parsed,
    lookup: Lookup,
    parameter_types: Mapping[str, Type | None],
    names: Names | None = None,
) -> Template:
    """The template that `prepare` gives, for a text that is parsed already; raises QueryError."""
    with located(text):
        draft = bind_select(parsed, len(text), lookup, parameter_types, names)
        if not parameter_types:
            query = pushed_down(draft.tail.fill(draft.query, {}))
            return Template(text, query, {}, {}, lambda _: query, None)
        beside_where = _beside_where(draft)
        fill = _query_filler(draft) if beside_where is None else _where_filler(beside_where)
    return Template(text, draft.query, dict(parameter_types), draft.places, fill, beside_where)


def bind_query(
    text: str,
    lookup: Lookup,
    parameters: Mapping[str, Scalar] | None = None,
    *,
    max_text: int = MAX_TEXT,
    names: Names | None = None,
) -> Query:
    """The query of one text with its values, whose types are those of the parameters."""
    values = parameters or {}
    with located(text):
        types = {name: infer(value, name) for name, value in values.items()}
    return prepare(text, lookup, types, max_text=max_text, names=names).fill(values)


def _literal(name: str, value: Scalar, type_: Type | None, place: Span) -> Literal:
    if type_ is None:
        if value is not None:
            raise UnknownParameter(f":{name} was declared without a type, for NULL only", place)
        return Literal(None, TEXT)
    return scalar(value, type_, name, place)


# ---- filling in one row of values


def _beside_where(draft: BoundSelect) -> Query | None:
    """The query over one stream, complete but for its WHERE; None where anything else holds a
    parameter."""
    if not isinstance(draft.query.source, Leg):
        return None
    if draft.tail.names or isinstance(draft.query, LimitedQuery):
        return None
    query = draft.tail.fill(draft.query, {})
    return None if '["par",' in query.form else query


def _where_filler(query: Query) -> Filler[Query]:
    where = _expression_filler(query.leg.where)
    return lambda literals: query.with_where(where(literals))


def _query_filler(draft: BoundSelect) -> Filler[Query]:
    """Windows are read before conditions are pushed down: they tell how far."""
    tail = draft.tail
    clauses = _clauses_filler(draft.query if tail.names else tail.fill(draft.query, {}))

    def fill(literals: Mapping[str, Literal]) -> Query:
        filled = clauses(literals)
        return pushed_down(tail.fill(filled, literals) if tail.names else filled)

    return fill


def _clauses_filler(query: Query) -> Filler[Query]:
    """A query, or one inside another."""
    source, having = _source_filler(query.source), _expression_filler(query.having)
    outputs = _tuple_filler(query.outputs, _output_filler)
    order_by = _tuple_filler(query.order_by, _sort_key_filler)
    grouping, refresh = _grouping_filler(query.grouping), _refresh_filler(query.refresh)
    counts = _counts_filler(query)
    return lambda literals: replace(
        counts(literals),
        source=source(literals),
        outputs=outputs(literals),
        grouping=grouping(literals),
        having=having(literals),
        order_by=order_by(literals),
        refresh=refresh(literals),
    )


def _counts_filler(query: Query) -> Filler[Query]:
    """The query with its LIMIT and OFFSET."""
    if not isinstance(query, LimitedQuery):
        return lambda _: query
    limit = _count_filler(query.limit_from, "LIMIT")
    offset = _count_filler(query.offset_from, "OFFSET")
    return lambda literals: with_counts(query, limit(literals), offset(literals) or 0)


def _source_filler(source: Source) -> Filler[Source]:
    return _leg_filler(source) if isinstance(source, Leg) else _from_filler(source)


def _from_filler(source: From) -> Filler[From]:
    items, on = _tuple_filler(source.items, _item_filler), _expression_filler(source.on)
    subqueries = _tuple_filler(source.subqueries, _subquery_filler)
    where = _expression_filler(source.where)
    return lambda literals: From(
        items(literals), on(literals), subqueries(literals), where(literals)
    )


def _subquery_filler(subquery: SubQuery) -> Filler[SubQuery]:
    query, on = _clauses_filler(subquery.query), _expression_filler(subquery.on)
    operand = None if subquery.operand is None else _expression_filler(subquery.operand)
    return lambda literals: replace(
        subquery,
        query=query(literals),
        on=on(literals),
        operand=None if operand is None else operand(literals),
    )


def _item_filler(item: Item) -> Filler[Item]:
    match item:
        case Leg():
            return _leg_filler(item)
        case Query():
            return _clauses_filler(item)
        case SetOperation(operator, parts):
            queries = _tuple_filler(parts, _clauses_filler)
            return lambda literals: SetOperation(operator, queries(literals))
        case LeftJoin(left, right, on):
            sides, condition = (_from_filler(left), _item_filler(right)), _expression_filler(on)
            return lambda literals: LeftJoin(
                sides[0](literals), sides[1](literals), condition(literals)
            )


def _leg_filler(leg: Leg) -> Filler[Leg]:
    where, as_of = _expression_filler(leg.where), _as_of_filler(leg.as_of)
    return lambda literals: replace(leg, where=where(literals), as_of=as_of(literals))


def _as_of_filler(as_of: AsOf | None) -> Filler[AsOf | None]:
    if as_of is None:
        return lambda _: None
    keys = _tuple_filler(as_of.keys, _expression_filler)
    return lambda literals: replace(as_of, keys=keys(literals))


def _expression_filler(expression: Expression) -> Filler[Expression]:
    if isinstance(expression, Parameter):
        name = expression.name
        return lambda literals: literals[name]
    if not isinstance(expression, Call) or not _has_parameter(expression):
        return lambda _: expression
    op, type_ = expression.op, expression.type
    args = _tuple_filler(expression.args, _expression_filler)
    return lambda literals: call(op, args(literals), type_)


def _has_parameter(expression: Expression) -> bool:
    if isinstance(expression, Call):
        return any(_has_parameter(arg) for arg in expression.args)
    return isinstance(expression, Parameter)


def _tuple_filler(
    parts: Iterable[_T], filler_of: Callable[[_T], Filler[_T]]
) -> Filler[tuple[_T, ...]]:
    fillers = [filler_of(part) for part in parts]
    return lambda literals: tuple([filler(literals) for filler in fillers])


def _output_filler(output: Output) -> Filler[Output]:
    filler, name = _expression_filler(output.expression), output.name
    return lambda literals: Output(name, filler(literals))


def _sort_key_filler(key: SortKey) -> Filler[SortKey]:
    filler = _expression_filler(key.expression)
    return lambda literals: SortKey(filler(literals), key.descending, key.nulls_first)


def _grouping_filler(grouping: Grouping | None) -> Filler[Grouping | None]:
    if grouping is None:
        return lambda _: None
    keys = _tuple_filler(grouping.keys, _expression_filler)
    aggregates = _tuple_filler(grouping.aggregates, _aggregate_filler)
    return lambda literals: Grouping(keys(literals), aggregates(literals))


def _aggregate_filler(aggregate: Aggregate) -> Filler[Aggregate]:
    if aggregate.argument is None:
        return lambda _: aggregate
    filler = _expression_filler(aggregate.argument)
    return lambda literals: replace(aggregate, argument=filler(literals))


def _refresh_filler(refresh: Refresh | None) -> Filler[Refresh | None]:
    if not isinstance(refresh, RefreshOn):
        return lambda _: refresh
    stream, where = refresh.stream, _expression_filler(refresh.where)
    return lambda literals: RefreshOn(stream, where(literals))


def _count_filler(count: Typed | None, word: str) -> Filler[int | None]:
    if count is None:
        return lambda _: None
    filler, place = _expression_filler(count.node), count.span

    def number(literals: Mapping[str, Literal]) -> int:
        literal = filler(literals)
        assert isinstance(literal, Literal)
        return count_of(literal, word, place)

    return number


# ---- filling in many rows of values


class _Unfit(Exception):
    """Filling in simplifies more than one factor: the rows are taken one by one."""


def _computed_with(expression: Expression, compared: bool = False) -> set[str]:
    """The parameters that stand elsewhere than beside a comparison, unless the expression itself is
    `compared`."""
    match expression:
        case Parameter(name, _):
            return set() if compared else {name}
        case Call(op, args, _):
            return {name for arg in args for name in _computed_with(arg, op in _COMPARISONS)}
    return set()


def _predicate_texts(
    where: Expression,
    values: Mapping[str, Sequence[Any]],
    literal: Callable[[str, Any], Literal],
    count: int,
) -> list[str]:
    """The `predicate_key` of each of the `count` rows; raises _Unfit, and what `literal` raises."""
    return list(_PredicateTexts(values, literal, count).texts(where, top=True))


class _PredicateTexts:
    def __init__(
        self,
        values: Mapping[str, Sequence[Any]],
        literal: Callable[[str, Any], Literal],
        count: int,
    ) -> None:
        self._values = values
        self._literal = literal
        self._count = count
        self._marks = {name: marks_of(column) for name, column in values.items()}

    def texts(self, expression: Expression, top: bool = False) -> Iterable[str]:
        names = sorted(set(_parameters(expression)))
        if not names:
            return repeat(sort_key(expression), self._count)
        if isinstance(expression, Call) and expression.op in _CONNECTIVES:
            return self._connected(expression, top)
        return self._factor(expression, names)

    def _connected(self, expression: Call, top: bool) -> list[str]:
        head = sort_key(Call(expression.op, (), BOOLEAN))[:-1]
        found = []
        for row in zip(*(self.texts(arg) for arg in expression.args), strict=True):
            parts = sorted(set(row))
            if len(parts) > 1:
                found.append(f"{head},{','.join(parts)}]")
            elif top:
                found.append(parts[0])
            else:
                raise _Unfit
        return found

    def _factor(self, factor: Expression, names: Sequence[str]) -> list[str]:
        fill = _expression_filler(factor)
        known: dict[tuple[Any, ...], str] = {}
        found = []
        columns = [self._values[name] for name in names]
        for marks, *values in zip(
            zip(*(self._marks[n] for n in names), strict=True), *columns, strict=True
        ):
            text = known.get(marks)
            if text is None:
                given = {n: self._literal(n, v) for n, v in zip(names, values, strict=True)}
                text = known[marks] = _factor_text(fill(given))
            found.append(text)
        return found


def marks_of(values: Sequence[Any]) -> Sequence[Any]:
    """The values, or texts of them, that are equal only for values that are the same in every way:
    0.0 is not -0.0, nor is 1 TRUE."""
    kinds = set(map(type, values)) - {type(None)}
    alike = len(kinds) <= 1 and not kinds & _WRITTEN
    return values if alike else [repr(value) for value in values]


def _factor_text(filled: Expression) -> str:
    if isinstance(filled, Literal) or (isinstance(filled, Call) and filled.op in _CONNECTIVES):
        raise _Unfit
    return sort_key(filled)


def _parameters(expression: Expression) -> Iterable[str]:
    match expression:
        case Parameter(name, _):
            yield name
        case Call(_, args, _):
            for arg in args:
                yield from _parameters(arg)
