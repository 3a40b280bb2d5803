"""Trees over streams of any types, with any conditions between them: the oracle and the vectorised
parts agree, however the tree is written."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from datastem.schema import StreamSchema
from datastem.types import BOOLEAN, Type
from querystem.expressions import TRUE, Call, ColumnRef, Expression, Op
from querystem.query import From, Leg, Output, Query, SetOperation, SetOperator, item_column
from results.window import UNBOUNDED
from tests.oracle.clocks import Known
from tests.oracle.comparing import Values, difference
from tests.oracle.expressions import conditions
from tests.oracle.grouping import identity
from tests.oracle.queries import LAST_TS, timelines, windows
from tests.oracle.strategies import schemas
from tests.oracle.trees import World
from tests.support.several import pure_answer

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
_FEW = settings(max_examples=settings().max_examples // 3, suppress_health_check=_SLOW)
_COMPARISONS = (Op.EQ, Op.EQ, Op.EQ, Op.LT, Op.LE, Op.GT, Op.GE, Op.NE, Op.IS_DISTINCT)


@st.composite
def streams(draw: DrawFn, name: str) -> Known:
    schema = replace(draw(schemas()), name=name)
    return Known(schema, draw(timelines(schema, 6)), LAST_TS)


@st.composite
def cases(draw: DrawFn) -> tuple[World, Query]:
    """Two or three items: streams, one of them maybe twice."""
    world = World({name: draw(streams(name)) for name in ("a", "b")}, LAST_TS)
    count = draw(st.integers(2, 3))
    legs = [
        draw(_legs(draw(st.sampled_from([*world.streams.values()])).schema)) for _ in range(count)
    ]
    columns = {
        item_column(number, name): type_
        for number, leg in enumerate(legs)
        for name, type_ in world.streams[leg.stream].schema.types.items()
    }
    conjuncts = draw(st.lists(st.one_of(_factors(columns), conditions(columns, 2)), max_size=3))
    shown = tuple(
        Output(f"o{place}", ColumnRef(name, type_))
        for place, (name, type_) in enumerate(columns.items())
    )
    return world, Query(From(tuple(legs), _all_of(conjuncts)), shown)


@st.composite
def _legs(draw: DrawFn, schema: StreamSchema) -> Leg:
    where = draw(st.one_of(st.just(TRUE), st.just(TRUE), conditions(schema.types, 1)))
    window = draw(st.one_of(st.just(UNBOUNDED), windows(schema)))
    return Leg(schema.name, where, window)


@st.composite
def _factors(draw: DrawFn, columns: dict[str, Type]) -> Expression:
    """A comparison of columns, of two items where there are such."""
    left = draw(st.sampled_from([*columns]))
    comparable = [
        name
        for name, type_ in columns.items()
        if type_ == columns[left] or (type_.is_numeric and columns[left].is_numeric)
    ]
    others = [name for name in comparable if name[0] != left[0]]
    right = draw(st.sampled_from(others or comparable))
    args = (ColumnRef(left, columns[left]), ColumnRef(right, columns[right]))
    return Call(draw(st.sampled_from(_COMPARISONS)), args, BOOLEAN)


def _all_of(conjuncts: list[Expression]) -> Expression:
    if len(conjuncts) < 2:
        return conjuncts[0] if conjuncts else TRUE
    return Call(Op.AND, tuple(conjuncts), BOOLEAN)


def _asked(world: World, query: Query) -> list[Values]:
    answer = pure_answer(query, world)
    problem = difference(world.answer(query), answer)
    assert not problem, problem
    return answer


@settings(suppress_health_check=_SLOW)
@given(case=cases())
def test_oracle_trees(case: tuple[World, Query]) -> None:
    _asked(*case)


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
    found = _asked(world, replace(query, source=moved, outputs=outputs))
    assert _bag(found) == _bag(_asked(world, query))


@_FEW
@given(case=cases())
def test_law_selection_is_pushed_or_not(case: tuple[World, Query]) -> None:
    """Conditions on one leg choose before the join or in it: windows have chosen before both."""
    world, query = case
    assert isinstance(query.source, From)
    legs = [item for item in query.source.items if isinstance(item, Leg)]
    local = [_prefixed(leg.where, number) for number, leg in enumerate(legs) if leg.where != TRUE]
    late = From(tuple(replace(leg, where=TRUE) for leg in legs), _all_of([query.source.on, *local]))
    assert not difference(_asked(world, query), _asked(world, replace(query, source=late)))


@_FEW
@given(known=streams("a"), data=st.data())
def test_law_union_all_of_a_partition_is_the_stream(known: Known, data: Any) -> None:
    """Rows for which a condition is true, false or unknown are all rows, each once."""
    world, schema = World({"a": known}, LAST_TS), known.schema
    condition, window = data.draw(conditions(schema.types, 2)), data.draw(windows(schema))
    wheres = [condition, *(Call(op, (condition,), BOOLEAN) for op in (Op.NOT, Op.IS_NULL))]
    outputs = tuple(Output(name, ColumnRef(name, type_)) for name, type_ in schema.types.items())
    branches = tuple(Query(Leg("a", where, window), outputs) for where in wheres)
    united = From((SetOperation(SetOperator.UNION_ALL, branches),))
    shown = tuple(
        Output(name, ColumnRef(item_column(0, name), type_)) for name, type_ in schema.types.items()
    )
    found = _asked(world, Query(united, shown))
    assert _bag(found) == _bag(_asked(world, Query(Leg("a", TRUE, window), outputs)))


def _renamed(expression: Expression, places: dict[int, int]) -> Expression:
    match expression:
        case ColumnRef(name, type_):
            number, _, rest = name.partition(".")
            return ColumnRef(item_column(places[int(number)], rest), type_)
        case Call(op, args, type_):
            return Call(op, tuple(_renamed(arg, places) for arg in args), type_)
    return expression


def _prefixed(expression: Expression, number: int) -> Expression:
    match expression:
        case ColumnRef(name, type_):
            return ColumnRef(item_column(number, name), type_)
        case Call(op, args, type_):
            return Call(op, tuple(_prefixed(arg, number) for arg in args), type_)
    return expression


def _bag(rows: list[Values]) -> Counter[Any]:
    return Counter(tuple(identity(value) for value in row) for row in rows)
