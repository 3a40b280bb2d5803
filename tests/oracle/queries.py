"""Random queries over one stream: every window, aggregates, order and limits."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from datastem.schema import StreamSchema
from datastem.types import BIGINT, DOUBLE, DURATION, TEXT, Kind, Type, decimal_type
from querystem.expressions import TRUE, Call, ColumnRef, Expression, Literal, Op
from querystem.grouping import Aggregate, Function, Grouping, aggregate_name, key_name
from querystem.legs import Leg
from querystem.query import Output, Query, SortKey
from results.window import Bound, CountWindow, RowWindow, TimeWindow, Window
from tests.oracle.expressions import conditions, expressions
from tests.oracle.strategies import Row, nullable

# Rows stand at whole numbers from 0 to LAST_TS, so that many have the same ts.
LAST_TS = 24

WINDOW_KINDS = ("time", "row", "count", "partition")

_DOUBLES = (Function.STDDEV, Function.STDDEV_POP, Function.VARIANCE, Function.VAR_POP)
_NUMERIC = (Function.SUM, Function.AVG, *_DOUBLES, Function.PERCENTILE)
_FRACTIONS = (0.0, 0.05, 0.25, 0.5, 1 / 3, 0.95, 1.0)
_ANY = (Function.COUNT, Function.MIN, Function.MAX, Function.FIRST, Function.LAST)


@st.composite
def timelines(draw: DrawFn, schema: StreamSchema, max_size: int = 24) -> list[Row]:
    """Draw rows out of order and with equal ts, as the oracle takes them."""
    columns = {column.name: nullable(column.type) for column in schema.columns}
    fields = st.fixed_dictionaries({**columns, "ts": st.integers(0, LAST_TS)})
    drawn_rows: list[Row] = draw(st.lists(fields, max_size=max_size))
    return [{**row, "row_id": place} for place, row in enumerate(drawn_rows)]


@st.composite
def queries(draw: DrawFn, schema: StreamSchema, plain: bool = False) -> Query:
    """Draw a query; with `plain` it selects, groups and orders by columns alone."""
    where = draw(st.one_of(st.just(TRUE), conditions(schema.types, depth=2)))
    grouping = draw(st.one_of(st.none(), groupings(schema, plain)))
    columns = _visible_columns(schema, grouping)
    outputs = draw(st.lists(_outputs(columns, plain), min_size=1, max_size=3))
    return Query(
        Leg(schema.name, where, draw(windows(schema))),
        tuple(Output(f"o{number}", expression) for number, expression in enumerate(outputs)),
        grouping,
        draw(st.one_of(st.just(TRUE), conditions(columns, depth=1))) if grouping else TRUE,
        draw(st.booleans()),
        tuple(draw(st.lists(_sort_keys(columns, plain), max_size=3))),
        draw(st.one_of(st.none(), st.integers(0, 6))),
        draw(st.one_of(st.just(0), st.integers(0, 4))),
    )


def _visible_columns(schema: StreamSchema, grouping: Grouping | None) -> dict[str, Type]:
    """Return the columns that SELECT, HAVING and ORDER BY may use."""
    if grouping is None:
        return dict(schema.types)
    keys = {key_name(n): key.type for n, key in enumerate(grouping.keys)}
    aggregates = {
        aggregate_name(n): aggregate.type for n, aggregate in enumerate(grouping.aggregates)
    }
    return {**keys, **aggregates}


@st.composite
def _values(draw: DrawFn, columns: dict[str, Type], plain: bool) -> Expression:
    name = draw(st.sampled_from(sorted(columns)))
    if plain or draw(st.integers(0, 3)):
        return ColumnRef(name, columns[name])
    return draw(expressions(columns, columns[name], depth=1))


@st.composite
def _outputs(draw: DrawFn, columns: dict[str, Type], plain: bool) -> Expression:
    """Draw a value that a column may have: a duration is shown in seconds."""
    value = draw(_values(columns, plain))
    if value.type != DURATION:
        return value
    return Call(Op.EXTRACT, (Literal("second", TEXT), value), DOUBLE)


@st.composite
def _any_values(draw: DrawFn, columns: dict[str, Type], plain: bool) -> Expression:
    """Draw a value, now and then a duration."""
    if plain or draw(st.integers(0, 4)):
        return draw(_values(columns, plain))
    return draw(expressions(columns, DURATION, depth=1))


def _sort_keys(columns: dict[str, Type], plain: bool) -> SearchStrategy[SortKey]:
    return st.builds(SortKey, _any_values(columns, plain), st.booleans(), st.booleans())


@st.composite
def groupings(draw: DrawFn, schema: StreamSchema, plain: bool = False) -> Grouping:
    columns = dict(schema.types)
    keys = draw(st.lists(_values(columns, plain), max_size=2))
    drawn = draw(st.lists(aggregates(columns, plain), min_size=0 if keys else 1, max_size=4))
    return Grouping(tuple(keys), tuple(drawn))


@st.composite
def aggregates(draw: DrawFn, columns: dict[str, Type], plain: bool = False) -> Aggregate:
    argument = draw(_any_values(columns, plain))
    functions = [*_ANY, *(_NUMERIC if argument.type.is_numeric else ())]
    function = draw(st.sampled_from([Function.COUNT_ROWS, *functions]))
    if function is Function.COUNT_ROWS:
        return Aggregate(function, None, False, BIGINT)
    fraction = draw(st.sampled_from(_FRACTIONS)) if function is Function.PERCENTILE else None
    type_ = result(function, argument.type)
    return Aggregate(function, argument, draw(st.booleans()), type_, fraction)


def result(function: Function, type_: Type) -> Type:
    match function:
        case Function.COUNT | Function.COUNT_ROWS:
            return BIGINT
        case Function.PERCENTILE:
            return DOUBLE
        case _ if function in _DOUBLES:
            return DOUBLE
        case Function.SUM if type_.kind is Kind.DECIMAL:
            return decimal_type(38, type_.scale)
        case Function.AVG:
            scale = max(6, type_.scale)
            return decimal_type(38, scale) if type_.kind is Kind.DECIMAL else DOUBLE
    return type_


def windows(schema: StreamSchema) -> SearchStrategy[Window]:
    return st.sampled_from(WINDOW_KINDS).flatmap(lambda kind: windows_of(kind, schema))


def windows_of(kind: str, schema: StreamSchema) -> SearchStrategy[Window]:
    slides = st.one_of(st.none(), st.integers(1, 7))
    match kind:
        case "time":
            return st.builds(TimeWindow, _optional(_bounds()), _optional(_bounds()), slides)
        case "row":
            return st.builds(RowWindow, _bounds(), _bounds())
        case "count":
            return st.builds(CountWindow, st.integers(1, 8), slides)
    names = st.lists(st.sampled_from([column.name for column in schema.columns]), min_size=1)
    return st.builds(CountWindow, st.integers(1, 3), slides, names.map(lambda n: tuple(n[:2])))


def _bounds() -> SearchStrategy[Bound]:
    return st.one_of(
        st.builds(Bound, st.integers(0, LAST_TS), st.just(False)),
        st.builds(Bound, st.integers(-LAST_TS, 1), st.just(True)),
    )


def _optional(strategy: SearchStrategy[Any]) -> SearchStrategy[Any]:
    return st.one_of(st.none(), strategy)
