"""Laws of set operations, LEFT JOIN and queries inside expressions, over trees of any types; and
three-valued logic as DuckDB has it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import duckdb
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from datastem.schema import Column, StreamSchema
from datastem.types import BIGINT, BOOLEAN
from querystem.expressions import TRUE, Call, ColumnRef, Expression, Literal, Op
from querystem.legs import Leg
from querystem.query import Output, Query
from querystem.sources import (
    From,
    LeftJoin,
    SetOperation,
    SetOperator,
    SubQuery,
    SubQueryKind,
    item_column,
    subquery_column,
)
from results.window import UNBOUNDED
from tests.oracle.clocks import Known
from tests.oracle.comparing import Values, difference
from tests.oracle.drawn_trees import (
    all_of,
    bag,
    columns_beside,
    drawn_conditions,
    drawn_legs,
    shown,
    streams,
)
from tests.oracle.queries import LAST_TS
from tests.oracle.strategies import to_batch
from tests.oracle.trees import World
from tests.support.several import pure_answer

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
_FEW = settings(max_examples=settings().max_examples // 2, suppress_health_check=_SLOW)

_FALSE = Literal(False, BOOLEAN)
_VALUE = ColumnRef(subquery_column(0), BOOLEAN)
_NEGATED = {Op.EQ: Op.NE, Op.NE: Op.EQ, Op.LT: Op.GE, Op.GE: Op.LT, Op.GT: Op.LE, Op.LE: Op.GT}
_WRITTEN = {Op.EQ: "=", Op.NE: "<>", Op.LT: "<", Op.LE: "<=", Op.GT: ">", Op.GE: ">="}


@dataclass(frozen=True)
class Two:
    """References to two streams, or to one twice, and a condition between them."""

    world: World
    outer_leg: Leg
    inner_leg: Leg
    on: Expression

    @property
    def schemas(self) -> tuple[StreamSchema, StreamSchema]:
        streams = self.world.streams
        return streams[self.outer_leg.stream].schema, streams[self.inner_leg.stream].schema

    @property
    def inner(self) -> Query:
        return Query(
            From((self.outer_leg, self.inner_leg), self.on), shown(columns_beside(*self.schemas))
        )

    def outer(self, on: Expression = TRUE) -> Query:
        """The LEFT JOIN, and a condition on its rows."""
        item = LeftJoin(From((self.outer_leg,)), self.inner_leg, _nested(self.on))
        return Query(From((item,), on), _of_left_join(self.inner.outputs))

    def having(self, where: Expression, value: SubQuery) -> Query:
        """The left rows for which a condition on a query inside it is true; NULLs beside them."""
        source = From((self.outer_leg,), TRUE, (value,), where)
        return Query(source, tuple(map(_right_is_null, self.inner.outputs)))

    def exists(self, on: Expression) -> SubQuery:
        return SubQuery(SubQueryKind.EXISTS, self.rows_of_right, _nested(on))

    @property
    def rows_of_right(self) -> Query:
        types = self.schemas[1].types
        outputs = [Output(name, ColumnRef(name, type_)) for name, type_ in types.items()]
        return Query(self.inner_leg, tuple(outputs))


@st.composite
def twos(draw: DrawFn) -> Two:
    world = World({name: draw(streams(name)) for name in ("a", "b")}, LAST_TS)
    schemas = [draw(st.sampled_from([*world.streams.values()])).schema for _ in range(2)]
    outer, inner = (draw(drawn_legs(schema)) for schema in schemas)
    return Two(world, outer, inner, draw(drawn_conditions(columns_beside(*schemas))))


def _nested(expression: Expression) -> Expression:
    """An expression over two items, where the first is item 0 of a FROM that is item 0."""
    match expression:
        case ColumnRef(name, type_) if name.startswith("0."):
            return ColumnRef(item_column(0, name), type_)
        case Call(op, args, type_):
            return Call(op, tuple(map(_nested, args)), type_)
    return expression


def _of_left_join(outputs: tuple[Output, ...]) -> tuple[Output, ...]:
    """Outputs over two items, as they are written over their LEFT JOIN, which is item 0."""
    return tuple(
        replace(output, expression=_lifted(_nested(output.expression))) for output in outputs
    )


def _lifted(expression: Expression) -> Expression:
    assert isinstance(expression, ColumnRef)
    return ColumnRef(item_column(0, expression.name), expression.type)


def _right_is_null(output: Output) -> Output:
    column = output.expression
    assert isinstance(column, ColumnRef)
    return (
        output if column.name.startswith("0.") else Output(output.name, Literal(None, column.type))
    )


def _not(condition: Expression) -> Expression:
    return Call(Op.NOT, (condition,), BOOLEAN)


def _checked_answer(world: World, query: Query) -> list[Values]:
    """The answer, which oracle and vectorised parts agree on."""
    answer = pure_answer(query, world)
    problem = difference(world.answer(query), answer)
    assert not problem, problem
    return answer


# ---- LEFT JOIN


@_FEW
@given(two=twos())
def test_law_left_join_is_inner_and_unmatched(two: Two) -> None:
    inner = _checked_answer(two.world, two.inner)
    unmatched = _checked_answer(two.world, two.having(_not(_VALUE), two.exists(two.on)))
    assert bag(_checked_answer(two.world, two.outer())) == bag(inner) + bag(unmatched)


@_FEW
@given(two=twos())
def test_law_what_a_left_join_finds_nothing_for_is_unmatched(two: Two) -> None:
    """A row id is never NULL but where there is no row."""
    missing = Call(Op.IS_NULL, (ColumnRef("0.1.row_id", BIGINT),), BOOLEAN)
    unmatched = _checked_answer(two.world, two.having(_not(_VALUE), two.exists(two.on)))
    assert not difference(unmatched, _checked_answer(two.world, two.outer(missing)))


@_FEW
@given(two=twos(), data=st.data())
def test_oracle_a_left_join_is_joined_with_more(two: Two, data: Any) -> None:
    """NULLs of an unmatched row meet the conditions of an outer FROM."""
    third = two.world.streams[data.draw(st.sampled_from(["a", "b"]))].schema
    columns = {
        output.expression.name: output.expression.type
        for output in _of_left_join(two.inner.outputs)
        if isinstance(output.expression, ColumnRef)
    }
    columns |= {item_column(1, name): type_ for name, type_ in third.types.items()}
    item = LeftJoin(From((two.outer_leg,)), two.inner_leg, _nested(two.on))
    items = (item, data.draw(drawn_legs(third)))
    _checked_answer(
        two.world, Query(From(items, data.draw(drawn_conditions(columns))), shown(columns))
    )


# ---- EXISTS, ANY, ALL


@_FEW
@given(two=twos())
def test_law_rows_exist_or_not(two: Two) -> None:
    """EXISTS and NOT EXISTS part the rows; a row exists where it is joined at all."""
    value = two.exists(two.on)
    existing = _checked_answer(two.world, two.having(_VALUE, value))
    missing = _checked_answer(two.world, two.having(_not(_VALUE), value))
    every = _checked_answer(two.world, two.having(TRUE, value))
    assert bag(existing) + bag(missing) == bag(every)
    width = len(two.schemas[0].types)
    joined = bag([row[:width] for row in _checked_answer(two.world, two.inner)])
    assert set(bag([row[:width] for row in existing])) == set(joined)


@_FEW
@given(two=twos(), data=st.data())
def test_law_any_and_all_are_exists(two: Two, data: Any) -> None:
    """`x < ANY q` is true where a row exists for which it is; `x < ALL q`, which is not `x >= ANY
    q`, where none exists for which it is not true."""
    x, y = data.draw(_comparable(two))
    op = data.draw(st.sampled_from([*_NEGATED]))
    true = Call(op, (x, y), BOOLEAN)
    untrue = _not(Call(Op.COALESCE, (true, _FALSE), BOOLEAN))
    first = replace(two.rows_of_right, outputs=(Output("y", _bare(y)), *two.rows_of_right.outputs))

    def any_of(compare: Op) -> SubQuery:
        return SubQuery(SubQueryKind.ANY, first, _nested(two.on), _nested(x), compare)

    for where, value, condition, exists in (
        (_VALUE, any_of(op), _VALUE, all_of([two.on, true])),
        (_not(_VALUE), any_of(_NEGATED[op]), _not(_VALUE), all_of([two.on, untrue])),
    ):
        answer = _checked_answer(two.world, two.having(where, value))
        assert not difference(
            _checked_answer(two.world, two.having(condition, two.exists(exists))), answer
        )


@st.composite
def _comparable(draw: DrawFn, two: Two) -> tuple[ColumnRef, ColumnRef]:
    """A column of each side, of types that can be compared."""
    outer_types, inner_types = (schema.types for schema in two.schemas)
    pairs = [
        (ColumnRef(item_column(0, x), of_x), ColumnRef(item_column(1, y), of_y))
        for x, of_x in outer_types.items()
        for y, of_y in inner_types.items()
        if of_x == of_y or (of_x.is_numeric and of_y.is_numeric)
    ]
    return draw(st.sampled_from(pairs))


def _bare(column: ColumnRef) -> ColumnRef:
    return ColumnRef(column.name.partition(".")[2], column.type)


# ---- set operations


@_FEW
@given(stream=streams("a"), data=st.data())
def test_laws_of_set_operations(stream: Known, data: Any) -> None:
    """With itself EXCEPT ALL leaves nothing, INTERSECT ALL everything, UNION one row of each; and
    what another query takes away and what it leaves is all there was."""
    world, schema = World({"a": stream}, LAST_TS), stream.schema
    chosen_names = data.draw(st.lists(st.sampled_from([*schema.types]), min_size=1, unique=True))
    outputs = tuple(Output(name, ColumnRef(name, schema.types[name])) for name in chosen_names)
    minuend = Query(data.draw(drawn_legs(schema)), outputs)
    renamed = tuple(Output(f"x{n}", output.expression) for n, output in enumerate(outputs))
    subtrahend = Query(data.draw(drawn_legs(schema)), renamed)

    def operate(operator: SetOperator, first: Query, second: Query) -> Any:
        source = From((SetOperation(operator, (first, second)),))
        names = {item_column(0, column.name): column.type for column in first.columns}
        query = Query(source, shown(names))
        answer = pure_answer(query, world)
        assert bag(answer) == bag(world.answer(query))
        return bag(answer)

    every = bag(_checked_answer(world, minuend))
    assert not operate(SetOperator.EXCEPT_ALL, minuend, minuend)
    assert not operate(SetOperator.EXCEPT, minuend, minuend)
    assert operate(SetOperator.INTERSECT_ALL, minuend, minuend) == every
    assert set(operate(SetOperator.UNION, minuend, minuend).items()) == {(row, 1) for row in every}
    remaining = operate(SetOperator.EXCEPT_ALL, minuend, subtrahend)
    assert remaining + operate(SetOperator.INTERSECT_ALL, minuend, subtrahend) == every
    both = operate(SetOperator.UNION_ALL, minuend, subtrahend)
    assert (
        operate(SetOperator.EXCEPT_ALL, subtrahend, minuend) + every
        == operate(SetOperator.EXCEPT_ALL, minuend, subtrahend)
        + bag(_checked_answer(world, subtrahend))
        == both - operate(SetOperator.INTERSECT_ALL, minuend, subtrahend)
    )


# ---- three-valued logic


_SMALL = StreamSchema("a", (Column("k", BIGINT), Column("x", BIGINT)))


@st.composite
def small_streams(draw: DrawFn, name: str) -> Known:
    """A few rows of small numbers, many of them NULL."""
    number = st.sampled_from([None, None, 0, 1, 2])
    pairs = draw(st.lists(st.tuples(number, number), max_size=5))
    rows = [{"k": k, "x": x, "ts": n, "row_id": n} for n, (k, x) in enumerate(pairs)]
    return Known(replace(_SMALL, name=name), rows, LAST_TS)


@settings(suppress_health_check=_SLOW)
@given(outer=small_streams("a"), subquery=small_streams("b"), data=st.data())
def test_in_any_and_all_are_true_false_or_unknown_as_in_duckdb(
    duck: duckdb.DuckDBPyConnection, outer: Known, subquery: Known, data: Any
) -> None:
    """IN is = ANY, NOT IN is <> ALL; with and without a condition between the rows."""
    op, correlated = data.draw(st.sampled_from([*_WRITTEN])), data.draw(st.booleans())
    for name, stream in (("a", outer), ("b", subquery)):
        duck.register(name, to_batch(stream.schema, stream.rows).select(["k", "x", "row_id"]))
    where = "WHERE b.k = a.k" if correlated else ""
    inner = f"(SELECT x FROM b {where})"
    sql = f"a.x {_WRITTEN[op]} ANY {inner}, a.x {_WRITTEN[op]} ALL {inner}"
    sql += f", a.x IN {inner}, a.x NOT IN {inner}, EXISTS {inner}"
    expected = duck.execute(f"SELECT {sql} FROM a ORDER BY row_id").fetchall()
    on = Call(Op.EQ, (ColumnRef("0.0.k", BIGINT), ColumnRef("1.k", BIGINT)), BOOLEAN)
    query = _every_comparison(op, on if correlated else TRUE)
    assert _checked_answer(World({"a": outer, "b": subquery}, LAST_TS), query) == expected


def _every_comparison(op: Op, on: Expression) -> Query:
    x, k = ColumnRef("x", BIGINT), ColumnRef("k", BIGINT)
    inner = Query(Leg("b", TRUE, UNBOUNDED), (Output("x", x), Output("k", k)))
    operand = ColumnRef("0.0.x", BIGINT)
    subqueries = [
        SubQuery(SubQueryKind.ANY, inner, on, operand, compare)
        for compare in (op, _NEGATED[op], Op.EQ)
    ]
    values = [ColumnRef(subquery_column(number), BOOLEAN) for number in range(4)]
    any_value, all_value, equal, exists = values
    outputs = any_value, _not(all_value), equal, _not(equal), exists
    source = From(
        (Leg("a", TRUE, UNBOUNDED),),
        subqueries=(*subqueries, SubQuery(SubQueryKind.EXISTS, inner, on)),
    )
    return Query(source, tuple(Output(f"o{n}", output) for n, output in enumerate(outputs)))
