"""Implication is sound: what implies another predicate matches no row that the other does not."""

from __future__ import annotations

import itertools
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from datastem.schema import Column, StreamSchema
from datastem.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    TEXT,
    TIMESTAMP,
    Type,
    decimal_type,
)
from querystem.expressions import Call, ColumnRef, Expression, Literal, Op
from querystem.implication import Conjunction, ImplicationIndex
from querystem.kernel import matches
from querystem.language import bind_query
from querystem.language.normal_form.normal import normal
from tests.oracle.expressions import conditions
from tests.oracle.strategies import rows, schemas, to_batch

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
MONEY = decimal_type(6, 2)
SCHEMA = StreamSchema(
    "s",
    (
        Column("a", BIGINT),
        Column("d", DOUBLE),
        Column("m", MONEY),
        Column("t", TEXT),
        Column("at", TIMESTAMP),
        Column("day", DATE),
        Column("flag", BOOLEAN),
    ),
)
# Constants of a comparison, of any numeric type, and values of rows, with what is between them.
NUMBERS: list[tuple[Any, Type]] = [
    (-1, BIGINT), (0, BIGINT), (1, BIGINT), (2, BIGINT), (2**53, BIGINT), (2**53 + 1, BIGINT),
    (0.0, DOUBLE), (0.5, DOUBLE), (1.0, DOUBLE), (1.5, DOUBLE), (float(2**53), DOUBLE),
    (float("nan"), DOUBLE), (float("inf"), DOUBLE), (float("-inf"), DOUBLE), (5e-324, DOUBLE),
    (Decimal("0.5"), decimal_type(2, 1)), (Decimal("1.00"), decimal_type(3, 2)),
]  # fmt: skip
TEXTS = ["", "a", "ab", "abc", "abcd", "b", "A", "a%", "a\\"]
PATTERNS = ["%", "a%", "ab%", "abc%", "abc", "a_%", "%b%", "a\\%%", "ab%c", "%c", "a\\\\%"]
MOMENTS = [datetime(2026, 1, 1, hour, tzinfo=UTC) for hour in range(4)]
DAYS = [date(2026, 1, day) for day in range(1, 5)]
VALUES: dict[str, list[Any]] = {
    "a": [None, -2, -1, 0, 1, 2, 3, 2**53, 2**53 + 1, 2**53 + 2, 2**63 - 1, -(2**63)],
    "d": [None, -0.0, 0.0, 5e-324, 0.5, 1.0, 1.5, 2.0, 2.0**53, float("nan"), float("inf"),
          float("-inf"), -1.0],
    "m": [None, *(Decimal(n) / 4 for n in range(-4, 9))],
    "t": [None, *TEXTS, "abd", "ac", "%"],
    "at": [None, *MOMENTS],
    "day": [None, *DAYS],
    "flag": [None, True, False],
}  # fmt: skip


def batch(seed: int, count: int) -> pa.RecordBatch:
    chance = random.Random(seed)
    columns = {
        column.name: pa.array(
            [chance.choice(VALUES[column.name]) for _ in range(count)], column.type.arrow
        )
        for column in SCHEMA.columns
    }
    return pa.record_batch(columns)


class Drawing:
    """Conjunctions of a few factors over few constants, so that many imply each other."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def predicate(self) -> Expression:
        parts = tuple(self._factor() for _ in range(self._chance.choice((1, 1, 2, 2, 3))))
        return normal(parts[0] if len(parts) == 1 else Call(Op.AND, parts, BOOLEAN))

    def _factor(self) -> Expression:
        kind = self._chance.random()
        if kind < 0.1:
            return Call(Op.OR, (self._plain(), self._plain()), BOOLEAN)
        factor = self._plain()
        return Call(Op.NOT, (factor,), BOOLEAN) if kind < 0.25 else factor

    def _plain(self) -> Expression:
        chance = self._chance
        column = chance.choice(SCHEMA.columns[:3] if chance.random() < 0.6 else SCHEMA.columns)
        operand: Expression = ColumnRef(column.name, column.type)
        if column.type is BOOLEAN:
            return operand
        if chance.random() < 0.15:
            return Call(Op.IS_NULL, (operand,), BOOLEAN)
        if column.type is TEXT and chance.random() < 0.5:
            pattern = Literal(chance.choice(PATTERNS), TEXT)
            return Call(Op.LIKE, (operand, pattern), BOOLEAN)
        if column.name in ("a", "d") and chance.random() < 0.1:
            step = Literal(0.5 if column.type is DOUBLE else 1, column.type)
            operand = Call(Op.ADD, (operand, step), column.type)
        if chance.random() < 0.25:
            return Call(Op.IN, (operand, *self._constants(column.type)), BOOLEAN)
        op = chance.choice((Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE, Op.GT, Op.LT, Op.IS_DISTINCT))
        return Call(op, (operand, self._constant(column.type)), BOOLEAN)

    def _constants(self, type_: Type) -> list[Expression]:
        constants = [self._constant(type_) for _ in range(self._chance.randint(1, 4))]
        return (
            [*constants, Literal(None, type_)] if self._chance.random() < 0.2 else list(constants)
        )

    def _constant(self, type_: Type) -> Literal:
        if type_ in (BIGINT, DOUBLE, MONEY):
            return Literal(*self._chance.choice(NUMBERS))
        choices: dict[Type, list[Any]] = {TEXT: TEXTS, TIMESTAMP: MOMENTS, DATE: DAYS}
        return Literal(self._chance.choice(choices[type_]), type_)


def check_pairs(count: int, seed: int) -> int:
    """Return every predicate against every other one; the number of pairs with an implication."""
    drawing, sample = Drawing(seed), batch(seed, 600)
    wheres = [drawing.predicate() for _ in range(count)]
    masks = [matches(where, sample) for where in wheres]
    all_of_them = [Conjunction(where) for where in wheres]
    implied = 0
    for first, second in itertools.product(range(count), repeat=2):
        if all_of_them[first].implies(all_of_them[second]):
            implied += 1
            wrong = masks[first] & ~masks[second]
            assert not wrong.any(), (wheres[first], wheres[second], sample.slice(wrong.argmax(), 1))
    return implied


@pytest.mark.parametrize("seed", range(4))
def test_oracle_pairs(seed: int) -> None:
    """Thousands of pairs; each implies itself, and some of the others."""
    assert check_pairs(60, seed) > 100


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4, 10))
def test_oracle_many_pairs(seed: int) -> None:
    assert check_pairs(320, seed) > 1000


@settings(suppress_health_check=_SLOW)
@given(st.data())
def test_oracle_conditions_of_any_shape(data: DataObject) -> None:
    schema = data.draw(schemas())
    first, second = (data.draw(conditions(schema.types)) for _ in range(2))
    both = Call(Op.AND, (first, second), BOOLEAN)
    sample = to_batch(schema, data.draw(rows(schema)))
    conjunctions = [Conjunction(where) for where in (first, second, both)]
    masks = [matches(where, sample) for where in (first, second, both)]
    for i, j in itertools.permutations(range(3), 2):
        if conjunctions[i].implies(conjunctions[j]):
            assert not (masks[i] & ~masks[j]).any()


def where(text: str) -> Expression:
    return bind_query(f"SELECT * FROM s WHERE {text}", {"s": SCHEMA}.get).leg.where


IMPLIED = [
    ("a > 100", "a > 80"),
    ("a > 80", "a >= 81"),
    ("a >= 81", "a > 80.5"),
    ("a > 80.5", "a >= 81"),
    ("d > 1", "d >= 1"),
    ("d = 1", "d >= 1.0 AND d < 2"),
    ("d > 0", "d > -0.0"),
    ("a BETWEEN 3 AND 5 AND t = 'x'", "a BETWEEN 2 AND 6"),
    ("a > 3 AND a < 5", "a = 4"),
    ("a = 4", "a IN (3, 4)"),
    ("a IN (3, 4)", "a IN (2, 3, 4, 5)"),
    ("a IN (3, 4)", "a > 2 AND a < 5"),
    ("a = 4", "a IS NOT NULL"),
    ("a <> 4", "a IS NOT NULL"),
    ("a > 5", "a <> 4"),
    ("t = 'x'", "t IN ('x', 'y')"),
    ("t IN ('abc', 'abd')", "t LIKE 'ab%'"),
    ("t LIKE 'abc%'", "t LIKE 'ab%'"),
    ("t LIKE 'abc_x'", "t LIKE 'abc%'"),
    ("t LIKE 'x%'", "t IS NOT NULL"),
    ("t < 'x'", "t IS NOT NULL"),
    ("a > 5 OR flag", "a > 5 OR flag"),
    ("a > 6", "a > 5 OR flag"),
    ("flag AND a > 6", "flag"),
    ("at > '2026-01-02' AND day = '2026-01-03'", "at >= '2026-01-01'"),
    ("m = 1.5", "m > 1"),
    ("a % 3 = 1 AND a > 5", "a % 3 = 1"),
    ("a % 3 = 1", "a % 3 > 0"),
    ("a > 1 AND a < 0", "t = 'x'"),
]


@pytest.mark.parametrize(("narrow", "wide"), IMPLIED)
def test_what_is_found(narrow: str, wide: str) -> None:
    assert Conjunction(where(narrow)).implies(Conjunction(where(wide)))


NOT_IMPLIED = [
    ("a > 80", "a > 100"),
    ("a >= 80", "a > 80"),
    ("a > 80", "d > 80"),
    ("a IN (3, 9)", "a IN (3, 4)"),
    ("a IS NOT NULL", "a > 0"),
    ("a IS NULL", "a IS NOT NULL"),
    ("t LIKE 'ab%'", "t LIKE 'abc%'"),
    ("t LIKE 'ab%'", "t LIKE 'ab'"),
    ("t LIKE 'a\\%'", "t LIKE 'a%b%'"),
    ("a > 5 OR flag", "a > 5"),
    ("d >= 1", "d < 1e308"),
    ("flag", "NOT flag"),
]


@pytest.mark.parametrize(("lhs", "rhs"), NOT_IMPLIED)
def test_what_is_not(lhs: str, rhs: str) -> None:
    assert not Conjunction(where(lhs)).implies(Conjunction(where(rhs)))


def test_a_zero_that_can_be_told_apart_is_not_compared() -> None:
    column, text = ColumnRef("d", DOUBLE), Literal("-0.0", TEXT)
    sums = [Call(Op.ADD, (column, Literal(zero, DOUBLE)), DOUBLE) for zero in (0.0, -0.0)]
    lhs, rhs = (Call(Op.EQ, (Call(Op.CAST, (total,), TEXT), text), BOOLEAN) for total in sums)
    assert lhs == rhs and not Conjunction(rhs).implies(Conjunction(lhs))


def test_oracle_the_index_finds_what_each_pair_tells() -> None:
    drawing, index = Drawing(99), ImplicationIndex()
    wheres = {id_: drawing.predicate() for id_ in range(200)}
    for id_, predicate in wheres.items():
        index.insert(id_, predicate)
    for removed_id in range(0, 200, 3):
        index.remove(removed_id)
        del wheres[removed_id]
    index._check()
    assert len(index) == len(wheres)
    count = 0
    for drawn in (Drawing(seed).predicate() for seed in range(100)):
        implied = list(index.implied(drawn, 60))
        assert len(implied) == len(set(implied))
        conjunction = Conjunction(drawn)
        expected = {
            id_ for id_, predicate in wheres.items() if conjunction.implies(Conjunction(predicate))
        }
        assert set(implied) <= expected
        count += len(implied)
    assert count > 100


def test_the_index_stops_when_its_time_is_over() -> None:
    index = ImplicationIndex()
    for id_ in range(100):
        index.insert(id_, where(f"a > {id_}"))
    assert list(index.implied(where("a > 50"), 60)) == list(range(50, -1, -1))
    assert not list(index.implied(where("a > 50"), -1.0))
    with pytest.raises(ValueError, match="already"):
        index.insert(7, where("a > 1"))
    with pytest.raises(KeyError):
        index.remove(100)


def test_predicates_that_tell_nothing_are_not_found() -> None:
    index = ImplicationIndex()
    index.insert(1, where("TRUE"))
    index.insert(2, where("a > 1 AND NULL"))
    assert not list(index.implied(where("a > 5"), 60)) and 1 in index and len(index) == 2
    assert np.array_equal(matches(where("a > 1 AND NULL"), batch(1, 50)), np.zeros(50, np.bool_))
