"""Random items and conditions, and the join by nested loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from datastem.types import BOOLEAN, Type
from querystem.expressions import TRUE, Call, ColumnRef, Expression, Op
from querystem.join import Joined
from querystem.sources import item_column
from tests.oracle import evaluate_row
from tests.oracle.expressions import conditions, expressions
from tests.oracle.strategies import nullable, types

Rows = list[dict[str, Any]]
INEQUALITIES = (Op.LT, Op.LE, Op.GT, Op.GE)


def batch(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, Type]) -> pa.RecordBatch:
    arrays = [pa.array([row[name] for row in rows], type_.arrow) for name, type_ in columns.items()]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def column(number: int, name: str, type_: Type) -> ColumnRef:
    return ColumnRef(item_column(number, name), type_)


def call(op: Op, *args: Expression) -> Call:
    return Call(op, args, BOOLEAN)


def nested_loops(items: Sequence[Rows], on: Expression) -> list[tuple[int, ...]]:
    """Return the places of all combinations for which `on` is true, in order."""
    numbered = [list(enumerate(rows)) for rows in items]
    combinations = []
    for combination in product(*numbered):
        row = {name: value for _, part in combination for name, value in part.items()}
        if evaluate_row(on, row) is True:
            combinations.append(tuple(place for place, _ in combination))
    return combinations


def places_of(joined: Joined) -> list[tuple[int, ...]]:
    """Return the places of all combinations, in order."""
    return sorted(zip(*[places.tolist() for places in joined.places], strict=True))


Columns = list[dict[str, Type]]


@st.composite
def item_columns(draw: DrawFn, least: int = 2, most: int = 5) -> Columns:
    """Draw the columns of some items, which have most of their types in common."""
    common = draw(st.lists(types(), min_size=1, max_size=2))
    any_type = st.one_of(st.sampled_from(common), st.sampled_from(common), types())
    kinds = draw(
        st.lists(st.lists(any_type, min_size=1, max_size=3), min_size=least, max_size=most)
    )
    return [
        {item_column(n, f"c{m}"): type_ for m, type_ in enumerate(found)}
        for n, found in enumerate(kinds)
    ]


@st.composite
def item_rows(draw: DrawFn, columns: Columns) -> list[Rows]:
    """Few rows of each item, the fewer the more items there are."""
    size = {2: 9, 3: 5, 4: 4, 5: 3}.get(len(columns), 8)
    return [
        draw(
            st.lists(
                st.fixed_dictionaries(
                    {name: nullable(type_) for name, type_ in item_kinds.items()}
                ),
                max_size=size,
            )
        )
        for item_kinds in columns
    ]


@st.composite
def join_conditions(draw: DrawFn, columns: Columns) -> Expression:
    """Draw a conjunction of equalities, inequalities, bands and whatever else a condition may
    be."""
    every = {name: kind for item_kinds in columns for name, kind in item_kinds.items()}
    any_conditions = conditions(every, depth=2)
    equalities = _comparisons(columns, (Op.EQ,))
    ranges = st.one_of(_comparisons(columns, INEQUALITIES), _bands(columns))
    several = st.one_of(equalities, equalities, ranges, ranges, any_conditions)
    factors = draw(st.lists(several if len(columns) > 1 else any_conditions, max_size=3))
    if len(factors) < 2:
        return factors[0] if factors else TRUE
    return call(Op.AND, *factors)


@st.composite
def _comparisons(draw: DrawFn, columns: Columns, ops: tuple[Op, ...]) -> Expression:
    """Draw a comparison of a value of one item with a value of others."""
    return _compared(draw, columns, [draw(st.sampled_from(ops))])


@st.composite
def _bands(draw: DrawFn, columns: Columns) -> Expression:
    lower = draw(st.sampled_from((Op.GE, Op.GT)))
    return _compared(draw, columns, [lower, draw(st.sampled_from((Op.LE, Op.LT)))])


def _compared(draw: DrawFn, columns: Columns, ops: list[Op]) -> Expression:
    one = draw(st.integers(0, len(columns) - 1))
    other_items = [kinds for number, kinds in enumerate(columns) if number != one]
    if draw(st.booleans()):
        other_items = [draw(st.sampled_from(other_items))]
    visible = {name: kind for kinds in other_items for name, kind in kinds.items()}
    value = _value(draw, columns[one], draw(st.sampled_from(list(columns[one].values()))))
    comparisons = []
    for op in ops:
        near = [kind for kind in visible.values() if _comparable(kind, value.type)]
        beside = draw(st.sampled_from(near)) if near else value.type
        comparisons.append(call(op, value, _value(draw, visible, beside)))
    return comparisons[0] if len(comparisons) == 1 else call(Op.AND, *comparisons)


def _value(draw: DrawFn, columns: Mapping[str, Type], type_: Type) -> Expression:
    """Return a column, or sometimes another expression."""
    named = [ColumnRef(name, kind) for name, kind in columns.items() if kind == type_]
    if named and draw(st.sampled_from((True, True, False))):
        name: ColumnRef = draw(st.sampled_from(named))
        return name
    return draw(expressions(columns, type_, depth=1))


def _comparable(first: Type, second: Type) -> bool:
    return first == second or (first.is_numeric and second.is_numeric)
