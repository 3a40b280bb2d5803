"""Random streams, legs and conditions between them, for trees that are put together by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from datastem.schema import StreamSchema
from datastem.types import BOOLEAN, Type
from querystem.expressions import TRUE, Call, ColumnRef, Expression, Op
from querystem.legs import Leg
from querystem.query import Output
from querystem.sources import item_column
from results.window import UNBOUNDED
from tests.oracle.clocks import Known
from tests.oracle.comparing import Values
from tests.oracle.expressions import conditions
from tests.oracle.grouping import identity
from tests.oracle.queries import LAST_TS, timelines, windows
from tests.oracle.strategies import schemas

_COMPARISONS = (Op.EQ, Op.EQ, Op.EQ, Op.LT, Op.LE, Op.GT, Op.GE, Op.NE, Op.IS_DISTINCT)


@st.composite
def streams(draw: DrawFn, name: str) -> Known:
    """Draw a stream of any columns with a few rows."""
    schema = replace(draw(schemas()), name=name)
    return Known(schema, draw(timelines(schema, 6)), LAST_TS)


@st.composite
def drawn_legs(draw: DrawFn, schema: StreamSchema) -> Leg:
    """Draw a reference to a stream, with any window and maybe a predicate."""
    where = draw(st.one_of(st.just(TRUE), st.just(TRUE), conditions(schema.types, 1)))
    window = draw(st.one_of(st.just(UNBOUNDED), windows(schema)))
    return Leg(schema.name, where, window)


@st.composite
def factors(draw: DrawFn, columns: Mapping[str, Type]) -> Expression:
    """Draw a comparison of columns, of two items if possible."""
    first = draw(st.sampled_from([*columns]))
    comparable = [
        name
        for name, type_ in columns.items()
        if type_ == columns[first] or (type_.is_numeric and columns[first].is_numeric)
    ]
    of_other_items = [name for name in comparable if name[0] != first[0]]
    second = draw(st.sampled_from(of_other_items or comparable))
    args = (ColumnRef(first, columns[first]), ColumnRef(second, columns[second]))
    return Call(draw(st.sampled_from(_COMPARISONS)), args, BOOLEAN)


def drawn_conditions(columns: Mapping[str, Type]) -> st.SearchStrategy[Expression]:
    """Up to three conditions between items, all of which have to be true."""
    return st.lists(st.one_of(factors(columns), conditions(columns, 2)), max_size=3).map(all_of)


def all_of(conjuncts: Sequence[Expression]) -> Expression:
    if len(conjuncts) < 2:
        return conjuncts[0] if conjuncts else TRUE
    return Call(Op.AND, tuple(conjuncts), BOOLEAN)


def columns_beside(*schemas: StreamSchema) -> dict[str, Type]:
    """Return the columns of streams that are items of a FROM, in this order."""
    return {
        item_column(number, name): type_
        for number, schema in enumerate(schemas)
        for name, type_ in schema.types.items()
    }


def shown(columns: Mapping[str, Type]) -> tuple[Output, ...]:
    """Return an output for each column, called `o0`, `o1` and so on."""
    return tuple(
        Output(f"o{place}", ColumnRef(name, type_))
        for place, (name, type_) in enumerate(columns.items())
    )


def prefixed(expression: Expression, number: int) -> Expression:
    """Return an expression over the rows of an item, as it is written over the FROM."""
    match expression:
        case ColumnRef(name, type_):
            return ColumnRef(item_column(number, name), type_)
        case Call(op, args, type_):
            return Call(op, tuple(prefixed(arg, number) for arg in args), type_)
    return expression


def bag(rows: Sequence[Values]) -> Counter[Any]:
    """Return rows in no order: equal if answers have the same rows equally often."""
    return Counter(tuple(identity(value) for value in row) for row in rows)
