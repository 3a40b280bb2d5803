"""The normal form means what was written, and equal predicates have one."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastem.types import BIGINT, BOOLEAN, DOUBLE, TEXT, TIMESTAMP
from querystem.expressions import Call, ColumnRef, Expression, Literal, Op, Parameter
from querystem.kernel import evaluate
from querystem.language.normal_form.normal import normal
from tests.querystem.language.support import bind, show, where

SIZE, PRICE, OK = ColumnRef("size", BIGINT), ColumnRef("price", DOUBLE), ColumnRef("ok", BOOLEAN)
SYMBOL, AT = ColumnRef("symbol", TEXT), ColumnRef("at", TIMESTAMP)
COMPARISONS = [Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE, Op.IS_DISTINCT]
ROWS = pa.table(
    {
        column: values
        for column, values in zip(
            ["size", "price", "ok"],
            zip(
                *itertools.product(
                    [None, 0, 1, 2], [None, 0.0, 1.0, 1.5, float("nan")], [None, True, False]
                ),
                strict=True,
            ),
            strict=True,
        )
    },
    schema=pa.schema([("size", pa.int64()), ("price", pa.float64()), ("ok", pa.bool_())]),
)

numbers = st.sampled_from(
    [
        SIZE,
        PRICE,
        *(Literal(value, BIGINT) for value in (None, 0, 1, 2)),
        *(Literal(value, DOUBLE) for value in (None, 0.0, 1.0, 1.5, 2.0)),
    ]
)
constants = numbers.filter(lambda number: isinstance(number, Literal))


def boolean(op: Op, *args: Expression) -> Call:
    return Call(op, args, BOOLEAN)


leaves = st.one_of(
    st.just(OK),
    st.sampled_from([Literal(value, BOOLEAN) for value in (None, True, False)]),
    st.builds(boolean, st.sampled_from(COMPARISONS), numbers, numbers),
    st.builds(boolean, st.just(Op.IS_NULL), numbers),
    st.builds(
        lambda arg, values: boolean(Op.IN, arg, *values),
        st.sampled_from([SIZE, PRICE]),
        st.lists(constants, min_size=1, max_size=4),
    ),
)
conditions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(boolean, st.just(Op.NOT), inner),
        st.builds(
            lambda op, args: boolean(op, *args),
            st.sampled_from([Op.AND, Op.OR]),
            st.lists(inner, min_size=2, max_size=4),
        ),
        st.builds(lambda a, b: boolean(Op.COALESCE, a, b), inner, st.just(Literal(False, BOOLEAN))),
        st.builds(lambda a, b, c: boolean(Op.CASE, a, b, c), inner, inner, inner),
    ),
    max_leaves=8,
)


@given(conditions)
def test_the_normal_form_has_the_same_three_valued_meaning(condition: Expression) -> None:
    assert evaluate(normal(condition), ROWS).equals(evaluate(condition, ROWS))


@given(conditions)
def test_the_normal_form_is_a_fixed_point(condition: Expression) -> None:
    assert normal(normal(condition)) == normal(condition)


@given(conditions)
def test_a_normal_form_written_as_text_binds_to_itself(condition: Expression) -> None:
    form = normal(condition)
    bound = where(show(form))
    assert show(bound) == show(form) and bound == form


@given(conditions, st.randoms(use_true_random=False))
def test_the_order_of_arguments_does_not_matter(condition: Expression, random) -> None:
    assert normal(shuffled(condition, random)) == normal(condition)


def shuffled(expression: Expression, random) -> Expression:
    if not isinstance(expression, Call):
        return expression
    args = [shuffled(arg, random) for arg in expression.args]
    if expression.op in (Op.AND, Op.OR, Op.EQ, Op.NE, Op.IS_DISTINCT):
        random.shuffle(args)
    return Call(expression.op, tuple(args), expression.type)


@pytest.mark.parametrize(
    "texts",
    [
        ("5 < size", "size > 5", "NOT size <= 5", "NOT (5 >= size)", "size > 5.0", "size > +5"),
        (
            "size = 1 OR ok",
            "ok OR size = 1",
            "ok OR (size IN (1)) OR ok",
            "NOT (size<>1 AND NOT ok)",
        ),
        ("at > '2026-01-01'", "at > '2026-01-01 00:00:00Z'", "at > DATE '2026-01-01'"),
        ("amount = 1.5", "amount = 1.50", "1.5 = amount", "amount = CAST(1.5 AS DECIMAL(4,2))"),
        ("price BETWEEN 1 AND 2", "price >= 1.0 AND 2 >= price", "2 >= price AND price >= 1"),
        ("size NOT IN (1, 2)", "NOT size IN (2, 1, 1)", "NOT (size IN (1.0, 2))"),
        ("symbol LIKE 'a\\%'", "symbol LIKE 'a!%' ESCAPE '!'", "trades.symbol LIKE '\\a\\%'"),
        ("price < 2 AND TRUE", "price < 2 OR FALSE", "NOT NOT price < 2", "2 > price"),
    ],
)
def test_equal_predicates_share_a_key(texts: tuple[str, ...]) -> None:
    keys = {bind(f"SELECT * FROM trades WHERE {text}").leg.predicate_key for text in texts}
    assert len(keys) == 1, keys


def test_the_two_zeros_are_one() -> None:
    assert where("price = :p", p=-0.0) == where("price = 0") == where("price = -0.0")


def test_the_window_and_the_outputs_are_not_part_of_the_key() -> None:
    first = bind("SELECT size FROM trades WHERE ok RANGE 1 HOUR")
    second = bind("SELECT price, size + 1 AS x FROM trades t WHERE t.ok")
    assert first.leg.predicate_key == second.leg.predicate_key


def test_parameters_stand_where_constants_do() -> None:
    at = Literal(datetime(2026, 1, 1, tzinfo=UTC), TIMESTAMP)
    for constant, column in (
        (Parameter("p", BIGINT), SIZE),
        (at, AT),
        (Literal("a", TEXT), SYMBOL),
    ):
        assert normal(boolean(Op.LT, constant, column)) == boolean(Op.GT, column, constant)


operands = st.sampled_from(["size", "price", "1", "2", "0", "1.5"])


@st.composite
def flat_conditions(draw: st.DrawFn) -> str:
    """Conditions without parentheses, so that precedence decides."""
    terms = []
    for _ in range(draw(st.integers(1, 3))):
        number = " ".join(
            [draw(operands)]
            + [
                draw(st.sampled_from(["+", "-", "*"])) + " " + draw(st.sampled_from(["", "- "]))
                + draw(operands)
                for _ in range(draw(st.integers(0, 2)))
            ]
        )  # fmt: skip
        test = draw(
            st.sampled_from(
                ["= 1", "<> 2", "< 2", ">= price", "BETWEEN 0 AND 1 + 1", "NOT BETWEEN 1 AND 2",
                 "IN (1, 2)", "NOT IN (0, NULL)", "IS NULL", "IS NOT NULL",
                 "IS DISTINCT FROM 1 + 1", "IS NOT DISTINCT FROM price"]
            )
        )  # fmt: skip
        terms.append(draw(st.sampled_from(["", "NOT ", "NOT NOT "])) + f"{number} {test}")
    terms.append(draw(st.sampled_from(["ok", "NOT ok", "ok IS TRUE", "NOT ok IS NOT FALSE"])))
    words = [terms[0]]
    for term in terms[1:]:
        words += [draw(st.sampled_from(["AND", "OR"])), term]
    return " ".join(words)


@given(flat_conditions())
def test_differential_precedence(condition: str) -> None:
    """DuckDB reads a text without parentheses the same way."""
    rows = ROWS
    answer = duckdb.execute(f"SELECT {condition} FROM rows").fetchall()
    assert evaluate(where(condition), rows).to_pylist() == [value for (value,) in answer]
