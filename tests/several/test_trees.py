"""Trees over streams of any types, with any conditions between them: the oracle and the vectorised
parts agree, however the tree is written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from datastem.types import BOOLEAN
from querystem.expressions import TRUE, Call, ColumnRef, Expression, Op
from querystem.legs import Leg
from querystem.query import Output, Query
from querystem.sources import From, SetOperation, SetOperator, item_column
from tests.oracle.clocks import Known
from tests.oracle.comparing import Values, difference
from tests.oracle.drawn_trees import (
    all_of,
    bag,
    columns_beside,
    drawn_conditions,
    drawn_legs,
    prefixed,
    shown,
    streams,
)
from tests.oracle.expressions import conditions
from tests.oracle.queries import LAST_TS, windows
from tests.oracle.trees import World
from tests.support.several import pure_answer

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
_FEW = settings(max_examples=settings().max_examples // 3, suppress_health_check=_SLOW)


@st.composite
def cases(draw: DrawFn) -> tuple[World, Query]:
    """Two or three items: streams, one of them maybe twice."""
    world = World({name: draw(streams(name)) for name in ("a", "b")}, LAST_TS)
    count = draw(st.integers(2, 3))
    drawn = [draw(st.sampled_from([*world.streams.values()])) for _ in range(count)]
    legs = [draw(drawn_legs(stream.schema)) for stream in drawn]
    columns = columns_beside(*(stream.schema for stream in drawn))
    return world, Query(From(tuple(legs), draw(drawn_conditions(columns))), shown(columns))


def _checked_answer(world: World, query: Query) -> list[Values]:
    answer = pure_answer(query, world)
    problem = difference(world.answer(query), answer)
    assert not problem, problem
    return answer


@settings(suppress_health_check=_SLOW)
@given(case=cases())
def test_oracle_trees(case: tuple[World, Query]) -> None:
    _checked_answer(*case)


# ---- laws


@_FEW
@given(case=cases(), data=st.data())
def test_law_joins_commute_and_associate(case: tuple[World, Query], data: Any) -> None:
    """The items in another order give the same rows in some order."""
    world, query = case
    assert isinstance(query.source, From)
    order = data.draw(st.permutations(range(len(query.source.items))))
    places = {old: new for new, old in enumerate(order)}
    moved = From(tuple(query.source.items[old] for old in order), _renamed(query.source.on, places))
    outputs = tuple(
        replace(output, expression=_renamed(output.expression, places)) for output in query.outputs
    )
    moved_answer = _checked_answer(world, replace(query, source=moved, outputs=outputs))
    assert bag(moved_answer) == bag(_checked_answer(world, query))


@_FEW
@given(case=cases())
def test_law_selection_is_pushed_or_not(case: tuple[World, Query]) -> None:
    """Conditions on one leg choose before the join or in it: windows have chosen before both."""
    world, query = case
    assert isinstance(query.source, From)
    legs = [item for item in query.source.items if isinstance(item, Leg)]
    local = [prefixed(leg.where, number) for number, leg in enumerate(legs) if leg.where != TRUE]
    late = From(tuple(replace(leg, where=TRUE) for leg in legs), all_of([query.source.on, *local]))
    assert not difference(
        _checked_answer(world, query), _checked_answer(world, replace(query, source=late))
    )


@_FEW
@given(stream=streams("a"), data=st.data())
def test_law_union_all_of_a_partition_is_the_stream(stream: Known, data: Any) -> None:
    """Rows for which a condition is true, false or unknown are all rows, each once."""
    world, schema = World({"a": stream}, LAST_TS), stream.schema
    condition, window = data.draw(conditions(schema.types, 2)), data.draw(windows(schema))
    wheres = [condition, *(Call(op, (condition,), BOOLEAN) for op in (Op.NOT, Op.IS_NULL))]
    outputs = tuple(Output(name, ColumnRef(name, type_)) for name, type_ in schema.types.items())
    branches = tuple(Query(Leg("a", where, window), outputs) for where in wheres)
    united = From((SetOperation(SetOperator.UNION_ALL, branches),))
    united_answer = _checked_answer(world, Query(united, shown(columns_beside(schema))))
    assert bag(united_answer) == bag(_checked_answer(world, Query(Leg("a", TRUE, window), outputs)))


def _renamed(expression: Expression, places: dict[int, int]) -> Expression:
    match expression:
        case ColumnRef(name, type_):
            number, _, column = name.partition(".")
            return ColumnRef(item_column(places[int(number)], column), type_)
        case Call(op, args, type_):
            return Call(op, tuple(_renamed(arg, places) for arg in args), type_)
    return expression
