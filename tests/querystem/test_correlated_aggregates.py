"""Aggregates over the rows that go with each outer row: random texts over tables of five numbers,
beside DuckDB. Their shapes were written by hand, like those of public test suites; no text of one
is here.

If DuckDB disagrees, it is asked again without its optimiser, which has lost rows of such texts.
"""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from datastem.schema import Column, StreamSchema
from datastem.types import BIGINT
from querystem.combine import Combining, leg_reads
from querystem.evaluate import answer_of
from querystem.join import TooManyPairs
from querystem.kernel import matches
from querystem.language import bind_query
from querystem.query import Query
from querystem.query_json import query_from_json, query_to_json
from querystem.sources import From

_NAMES = ("a", "b", "c", "d", "e")
STREAMS = {
    name: StreamSchema(name, tuple(Column(column, BIGINT) for column in _NAMES))
    for name in ("t1", "t2")
}


def rows_of(random: np.random.Generator, count: int) -> pa.RecordBatch:
    columns: dict[str, Any] = {
        name: pa.array(random.integers(100, 130, count), mask=random.random(count) < 0.08)
        for name in _NAMES
    }
    columns["ts"] = pa.array(np.arange(count), pa.timestamp("us", "UTC"))
    columns["row_id"] = pa.array(np.arange(count))
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def answer(
    query: Query, rows: dict[str, pa.RecordBatch], most_pairs: int = 10**7
) -> list[tuple[Any, ...]]:
    legs = [
        part.filter(pa.array(matches(leg.where, part))).select(sorted(reads))
        for leg, reads in zip(query.legs, leg_reads(query), strict=True)
        for part in (rows[leg.stream],)
    ]
    source = Combining(10**9, most_pairs, []).source_rows(query, legs)
    return [tuple(row.values()) for row in answer_of(query, [source]).to_pylist()]


def duck_answer(text: str, rows: dict[str, pa.RecordBatch], optimised: bool) -> list[Any]:
    with duckdb.connect(":memory:", config={"threads": 1}) as duck:
        if not optimised:
            duck.execute("PRAGMA disable_optimizer")
        for name, batch in rows.items():
            duck.register(f"{name}_rows", pa.Table.from_batches([batch.select(list(_NAMES))]))
            duck.execute(f"CREATE TABLE {name} AS SELECT * FROM {name}_rows")
        return duck.execute(text).fetchall()


class Texts:
    """Random queries over one table of numbers, with correlated aggregates."""

    def __init__(self, random: np.random.Generator) -> None:
        self._random = random

    def pick(self, *choices: str) -> str:
        return str(choices[self._random.integers(len(choices))])

    def query(self) -> str:
        outputs = [self.value() for _ in range(self._random.integers(1, 5))]
        listed = ", ".join(f"{value} AS v{number}" for number, value in enumerate(outputs))
        conditions = [self.condition() for _ in range(self._random.integers(0, 3))]
        joined = self.pick(" AND ", " OR ").join(conditions)
        return f"SELECT {listed} FROM t1" + (f" WHERE {joined}" if conditions else "")

    def value(self) -> str:
        column, second = self.pick(*_NAMES), self.pick(*_NAMES)
        return self.pick(
            column,
            f"{column} - {second}",
            f"abs({column} - {second})",
            f"CASE WHEN {column} > {self.number()} THEN {second} * 2 ELSE {column} * 10 END",
            f"CASE {column} WHEN {second} THEN 111 WHEN {second} + 1 THEN 222 ELSE 333 END",
            self.aggregate(),
            f"{self.aggregate()} + {column}",
        )

    def number(self) -> str:
        return str(self._random.integers(100, 130))

    def aggregate(self) -> str:
        inner = self.pick("t1 AS x", "t2 AS x")
        value = self.pick("count(*)", "max(x.b)", "min(x.c)", "count(x.e)", "sum(x.d)")
        value = self.pick(value, value, "count(DISTINCT x.a)", "max(x.a) - min(x.b)")
        sign = self.pick("<", "<=", ">", ">=", "<>", "=")
        related = f"x.{self.pick(*_NAMES)} {sign} t1.{self.pick(*_NAMES)}"
        more = self.pick(
            "",
            "",
            f" AND x.{self.pick(*_NAMES)} > {self.number()}",
            f" AND x.{self.pick(*_NAMES)} = t1.{self.pick(*_NAMES)}",
            f" OR x.{self.pick(*_NAMES)} + t1.{self.pick(*_NAMES)} < 215",
        )
        return f"(SELECT {value} FROM {inner} WHERE {related}{more})"

    def condition(self) -> str:
        column = self.pick(*_NAMES)
        return self.pick(
            f"{column} > {self.number()}",
            f"{column} BETWEEN {self.number()} AND {self.number()}",
            f"{column} > (SELECT avg({self.pick(*_NAMES)}) FROM t1)",
            f"{self.aggregate()} > {self.pick('1', '5', '110')}",
            f"EXISTS (SELECT 1 AS one FROM t2 AS x WHERE x.{column} < t1.{column})",
            f"{column} IS NULL",
        )


def check(random: np.random.Generator, texts: int) -> None:
    rows = {"t1": rows_of(random, 30), "t2": rows_of(random, 20)}
    source = Texts(random)
    for _ in range(texts):
        text = source.query()
        query = bind_query(text, STREAMS.get)
        again = query_from_json(query_to_json(query))
        ours = sorted(map(repr, answer(again, rows)))
        expected = sorted(map(repr, duck_answer(text, rows, True)))
        if ours != expected:
            expected = sorted(map(repr, duck_answer(text, rows, False)))
        assert ours == expected, text


@pytest.mark.parametrize("seed", range(3))
def test_differential_correlated_aggregates(seed: int) -> None:
    check(np.random.default_rng(seed), 25)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 140))
def test_differential_correlated_aggregates_long(seed: int) -> None:
    check(np.random.default_rng(seed), 100)


def test_equalities_stay_groups_and_other_conditions_are_pairs() -> None:
    equal = bind_query(
        "SELECT a FROM t1 WHERE b > (SELECT max(x.b) FROM t2 AS x WHERE x.a = t1.a)", STREAMS.get
    )
    less = bind_query(
        "SELECT a FROM t1 WHERE b > (SELECT max(x.b) FROM t2 AS x WHERE x.a < t1.a)", STREAMS.get
    )
    assert isinstance(equal.source, From) and isinstance(less.source, From)
    assert equal.source.subqueries[0].grouping is None
    assert less.source.subqueries[0].grouping is not None


def test_pairs_are_bounded() -> None:
    random = np.random.default_rng(1)
    rows = {"t1": rows_of(random, 500), "t2": rows_of(random, 500)}
    text = "SELECT (SELECT count(*) FROM t2 AS x WHERE x.a > t1.a) AS n FROM t1"
    with pytest.raises(TooManyPairs):
        answer(bind_query(text, STREAMS.get), rows, most_pairs=1000)


@pytest.mark.parametrize("count", [9, 20, 32])
def test_differential_long_chains_of_joins(count: int) -> None:
    """Chains of equalities over many references, in an order that the text does not give away."""
    random = np.random.default_rng(count)
    rows = {"t1": rows_of(random, 12), "t2": rows_of(random, 12)}
    names = [f"r{number}" for number in random.permutation(count)]
    tables = ", ".join(f"{'t1' if number % 2 else 't2'} AS {n}" for number, n in enumerate(names))
    # Keys that are nearly unique, so that the answer stays small.
    keyed = {
        name: batch.set_column(0, "a", pa.array(np.arange(12))) for name, batch in rows.items()
    }
    links = [f"r{number}.a = r{number + 1}.a" for number in range(count - 1)]
    random.shuffle(links)
    where = " AND ".join([*links, "r3.b > 105", "r5.c <= 128"])
    text = f"SELECT r0.a AS x, r{count - 1}.d AS y FROM {tables} WHERE {where}"
    ours = sorted(map(repr, answer(bind_query(text, STREAMS.get), keyed)))
    assert ours == sorted(map(repr, duck_answer(text, keyed, True)))
    assert ours
