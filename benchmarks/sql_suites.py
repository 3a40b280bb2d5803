"""Queries in the shapes of public SQL test suites, as they are written there, beside DuckDB.

The files of those suites are not part of this project, and were not run here. The shapes below were
written by hand after what their queries look like, and texts are drawn from them. So the shares are
those of our texts: a query of the files that has another shape is not counted. `select1` to
`select3` ask one table of five numbers, with CASE, BETWEEN, abs and correlated counts; `select4`
asks nine tables, with set operations; `select5` joins up to 64 tables in chains; `evidence` tries
one part of the language each; `random` has signs before everything, NULLIF, COALESCE, aggregates
inside of expressions, and cross joins. Answers are compared as bags of rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from benchmarks.report import Report
from datastem.schema import Column, StreamSchema
from datastem.types import BIGINT, TEXT
from querystem.combine import Combining, leg_reads
from querystem.evaluate import answer_of
from querystem.join import TooManyPairs
from querystem.kernel import matches
from querystem.language import QueryError, bind_query

AIM = 0.95
# The limit that a server has unless it is told otherwise.
_PAIRS = 20_000_000
_MEMORY_BYTES = 2 << 30
_LETTERS = "abcde"

Rows = Mapping[str, pa.Table]


class Draw:
    """Random choices of parts of texts."""

    def __init__(self, random: np.random.Generator) -> None:
        self.random = random

    def pick(self, *choices: str) -> str:
        return str(choices[self.random.integers(len(choices))])

    def some(self, least: int, most: int, of: Callable[[], str]) -> list[str]:
        """Return between `least` and `most` different texts."""
        count = int(self.random.integers(least, most + 1))
        texts: dict[str, None] = {}
        while len(texts) < count:
            texts[of()] = None
        return list(texts)

    def number(self, begin: int, end: int) -> str:
        return str(self.random.integers(begin, end))


# ---- select1 to select3: one table


class OneTable(Draw):
    """Queries over t1(a, b, c, d, e)."""

    def __init__(self, random: np.random.Generator, numbers: tuple[int, int]) -> None:
        super().__init__(random)
        self._numbers = numbers

    def text(self) -> str:
        outputs = self.some(1, 7, self._output)
        conditions = self.some(0, 3, self._condition)
        joined = self.pick("\n   AND ", "\n    OR ").join(conditions)
        where = f"\n WHERE {joined}" if conditions else ""
        order = self.random.permutation(len(outputs)) + 1
        by = f"\n ORDER BY {','.join(map(str, order))}" if self.random.random() < 0.8 else ""
        listed = ",\n       ".join(outputs)
        return f"SELECT {listed}\n  FROM t1{where}{by}"

    def _output(self) -> str:
        x, y = self.random.permutation(list(_LETTERS))[:2]
        mean = self.pick("c", "a", "e")
        return self.pick(
            *_LETTERS,
            "a+b*2",
            "a+b*2+c*3",
            "a+b*2+c*3+d*4",
            "a+b*2+c*3+d*4+e*5",
            "(a+b+c+d+e)/5",
            f"{x}-{y}",
            f"abs({x}-{y})",
            f"abs({x})",
            f"CASE WHEN {mean}>(SELECT avg({mean}) FROM t1) THEN a*2 ELSE b*10 END",
            "CASE WHEN a<b-3 THEN 111 WHEN a<=b THEN 222 WHEN a<b+3 THEN 333 ELSE 444 END",
            "CASE a+1 WHEN b THEN 111 WHEN c THEN 222 WHEN d THEN 333 WHEN e THEN 444 ELSE 555 END",
            "(SELECT count(*) FROM t1 AS x WHERE x.b<t1.b)",
            "(SELECT count(*) FROM t1 AS x WHERE x.c>t1.c AND x.d<t1.d)",
        )

    def _condition(self) -> str:
        x, y, z = self.random.permutation(list(_LETTERS))[:3]
        low, high = sorted(int(self.number(*self._numbers)) for _ in range(2))
        return self.pick(
            f"{x}>{y}",
            f"({x}>{y}-2 AND {x}<{y}+2)",
            f"({x}>{z} OR {z}>{y})",
            f"{x} BETWEEN {y}-2 AND {z}+2",
            f"{x} NOT BETWEEN {low} AND {high}",
            f"({x}<={y} OR {x}>={z})",
            f"{x} IS NULL",
            f"{x} IS NOT NULL",
            "EXISTS(SELECT 1 FROM t1 AS x WHERE x.b<t1.b)",
            f"coalesce({x},{y},{z})<>0",
            "(e>a AND e<b)",
            f"{x} IN ({low},{high})",
        )


# ---- select4 and select5: many tables


class NineTables(Draw):
    """Queries over t1(a1, b1, c1, d1, e1, x1) to t9."""

    def text(self) -> str:
        return self.pick(*[self._joined() for _ in range(2)], self._combined())

    def _combined(self) -> str:
        """Return a chain of set operations over one table each."""
        count = int(self.random.integers(2, 8))
        kind = self.pick("x", *_LETTERS)
        parts = [self._of_one(int(n), kind) for n in self.random.integers(1, 10, count)]
        text = parts[0]
        for part in parts[1:]:
            text += f"\n{self.pick('UNION', 'UNION ALL', 'EXCEPT', 'INTERSECT')}\n{part}"
        return f"{text}\nORDER BY 1"

    def _of_one(self, table: int, kind: str) -> str:
        joined = self.pick(" AND ", " OR ").join(self.some(1, 4, lambda: self._condition(table)))
        return f"SELECT {kind}{table} FROM t{table} WHERE {joined}"

    def _condition(self, table: int) -> str:
        column = f"{self.pick(*_LETTERS)}{table}"
        values = ",".join(self.some(2, 6, lambda: self.number(0, 1000)))
        return self.pick(
            f"{column} in ({values})",
            f"{column}={self.number(0, 1000)}",
            f"{self.number(0, 1000)}={column}",
            f"NOT ({column}={self.number(0, 1000)})",
            f"({column}>{self.number(0, 1000)} AND {column}<{self.number(0, 1000)})",
            f"NOT ({column} in ({values}))",
        )

    def _joined(self) -> str:
        """Return a join of three to nine tables, each related to one before or to a constant."""
        count = int(self.random.integers(3, 10))
        tables = [int(number) for number in self.random.permutation(9)[:count] + 1]
        links = []
        for at, table in enumerate(tables[1:], 1):
            partner = tables[self.random.integers(at)]
            # Columns a to e of a table are permutations of the same numbers.
            sides = [f"{self.pick(*_LETTERS)}{table}", f"{self.pick(*_LETTERS)}{partner}"]
            links.append("=".join(self.random.permutation(sides)))
        links += self.some(1, 3, lambda: self._condition(tables[self.random.integers(count)]))
        kinds = self.some(1, count, lambda: f"x{tables[self.random.integers(count)]}")
        wider = [f"{self.pick(*_LETTERS)}{tables[0]}*{self.number(2, 999)}"]
        where = "\n   AND ".join(self.random.permutation(links))
        return (
            f"SELECT {', '.join([*kinds, *wider])}\n"
            f"  FROM {', '.join(f't{table}' for table in tables)}\n WHERE {where}"
        )


class Chains(Draw):
    """Joins of 4 to 64 tables t1(a1, b1, x1) to t64, each related to the next in the chain."""

    def __init__(self, random: np.random.Generator, least: int = 4, most: int = 64) -> None:
        super().__init__(random)
        self._sizes = least, most

    def text(self) -> str:
        count = int(self.random.integers(self._sizes[0], self._sizes[1] + 1))
        chain = [int(number) for number in self.random.permutation(64)[:count] + 1]
        links = [
            "=".join(self.random.permutation([f"a{lhs}", f"b{rhs}"]))
            for lhs, rhs in zip(chain, chain[1:], strict=False)
        ]
        links.append(f"a{self.random.choice(chain)}={self.number(1, 11)}")
        tables = ",".join(f"t{n}" for n in self.random.permutation(chain))
        outputs = ",".join(f"x{n}" for n in self.random.permutation(chain))
        where = "\n   AND ".join(self.random.permutation(links))
        return f"SELECT {outputs}\n  FROM {tables}\n WHERE {where}"


class Evidence(Draw):
    """Short queries, each about one part of the language."""

    def text(self) -> str:
        column, low, high = self.pick(*_LETTERS), self.number(100, 110), self.number(110, 130)
        function = self.pick("count", "sum", "avg", "min", "max")
        return self.pick(
            f"SELECT {function}({column}) FROM t1",
            f"SELECT {function}(DISTINCT {column}) FROM t1",
            f"SELECT count(*), count(DISTINCT {column}) FROM t1 WHERE {column}>{high}",
            f"SELECT {column} IN ({low},{high}) FROM t1",
            f"SELECT {column} NOT IN ({low},NULL) FROM t1",
            f"SELECT a FROM t1 WHERE {column} IN (SELECT {column} FROM t2)",
            f"SELECT a FROM t1 WHERE {column} NOT IN (SELECT {column} FROM t2 WHERE a>{low})",
            f"SELECT a FROM t1 WHERE NULL IN (SELECT {column} FROM t2)",
            f"SELECT {column}, count(*) FROM t1 GROUP BY {column} HAVING count(*)>1",
            f"SELECT * FROM t1 WHERE {column} BETWEEN {low} AND {high} ORDER BY a, b, c, d, e",
            f"SELECT DISTINCT {column} FROM t1 ORDER BY 1 LIMIT 3",
            f"SELECT x.a, y.b FROM t1 AS x LEFT JOIN t2 AS y ON x.{column}=y.{column}",
            f"SELECT a FROM t1 WHERE {column}=(SELECT max({column}) FROM t1 AS y WHERE y.a=t1.a)",
            f"SELECT {column} FROM t1 WHERE {column} IN ()",
            f"SELECT 1 IN ({low},2)",
            f"SELECT 1 NOT IN ({low},NULL)",
            f"SELECT count(*) FROM t1 WHERE {column} NOT IN ()",
            f"SELECT count(*), sum({column}), avg({column}) FROM t1 WHERE {column}<0",
            f"SELECT {function}({column}) FROM t1 WHERE {column}<0 GROUP BY a",
            f"SELECT a FROM t1 WHERE {column} IN (SELECT {column} FROM t2 WHERE FALSE)",
            f"SELECT {column} FROM t1 WHERE a>{low} UNION SELECT {column} FROM t2",
            f"SELECT * FROM (SELECT {column} AS v FROM t1 UNION SELECT a FROM t2) AS x WHERE v>9",
        )


class Signed(Draw):
    """Expressions with signs before everything, as a generator of random texts makes them."""

    def text(self) -> str:
        distinct, table = self.pick("", "ALL ", "DISTINCT "), self.pick("t1", "t2", "t1 AS cor0")
        value, other = self._value(), self._value()
        condition = self.pick(
            f"NOT {value} IS NULL",
            f"NOT ({value}) BETWEEN {other} AND NULL",
            f"{value} NOT IN ({other}, - {self.number(1, 99)})",
            f"NOT NULL IN ({value})",
            f"{value} >= {other} OR NOT {other} <> {value}",
        )
        return self.pick(
            f"SELECT {distinct}{value} AS col0, {other} FROM {table} WHERE {condition}",
            f"SELECT {distinct}{self._total()} AS col0 FROM {table}",
            f"SELECT {distinct}- COUNT( * ) FROM t1 AS cor0 CROSS JOIN t2 AS cor1",
            f"SELECT {distinct}- a AS col2 FROM {table} GROUP BY a HAVING {self._total()} > - 1",
            f"SELECT {distinct}{self.number(1, 99)} * + {self.number(1, 99)}",
        )

    def _value(self) -> str:
        sign, letter, number = (
            self.pick("- ", "+ ", "", "- - "),
            self.pick(*_LETTERS),
            self.number(1, 99),
        )
        return self.pick(
            f"{sign}{letter} * - {number}",
            f"{sign}NULLIF ( {letter}, {number} ) + + {letter}",
            f"{sign}COALESCE ( NULL, {letter}, - {number} )",
            f"{sign}CASE {letter} WHEN {number} THEN NULL ELSE - {letter} END",
            f"{sign}CAST ( {letter} AS BIGINT ) - {number}",
            f"{sign}{number}",
        )

    def _total(self) -> str:
        function = self.pick("COUNT", "SUM", "MIN", "MAX")
        total = f"{function} ( {self.pick('', 'DISTINCT ')}{self.pick(*_LETTERS)} )"
        return self.pick(
            f"- {total}", f"{total} * + {self.number(1, 99)}", f"- COUNT( * ) + {total}"
        )


# ---- the suites


@dataclass(frozen=True)
class Suite:
    """Texts to try, and the tables that they ask."""

    name: str
    text: Callable[[], str]
    tables: Rows
    count: int


@dataclass
class Outcome:
    """How many texts were answered, those whose answers differ; `refused` counts reasons."""

    answered: int = 0
    wrong: list[str] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)


def suites(seed: int, count: int) -> list[Suite]:
    random = np.random.default_rng(seed)
    full, gaps = _numbers(random, 30, 0.0), _numbers(random, 30, 0.1)
    one_table = {"t1": full, "t2": _numbers(random, 20, 0.0)}
    nine = {f"t{n}": _wide(random, n) for n in range(1, 10)}
    chain = {f"t{n}": _narrow(random, n) for n in range(1, 65)}
    return [
        Suite("select1", OneTable(random, (100, 130)).text, one_table, count),
        Suite("select2", OneTable(random, (100, 130)).text, {"t1": gaps}, count),
        Suite("select3", OneTable(random, (100, 130)).text, {"t1": gaps}, count),
        Suite("select4", NineTables(random).text, nine, count),
        Suite("select5", Chains(random).text, chain, count),
        Suite("select5, up to 32", Chains(random, 4, 32).text, chain, count),
        Suite("evidence", Evidence(random).text, one_table, count),
        Suite("random", Signed(random).text, one_table, count),
    ]


def _numbers(random: np.random.Generator, count: int, nulls: float) -> pa.Table:
    values = random.permutation(count * 5).reshape(5, count) + 100
    columns = [pa.array(column, mask=random.random(count) < nulls) for column in values]
    return pa.table(dict(zip(_LETTERS, columns, strict=True)))


def _wide(random: np.random.Generator, number: int) -> pa.Table:
    columns: dict[str, Any] = {
        f"{letter}{number}": random.choice(1000, 100, replace=False) for letter in _LETTERS
    }
    texts = [f"table tn{number} row {row}" for row in range(1, 101)]
    return pa.table(columns | {f"x{number}": texts})


def _narrow(random: np.random.Generator, number: int) -> pa.Table:
    order = random.permutation(10) + 1
    texts = [f"table t{number} row {row}" for row in order]
    return pa.table(
        {f"a{number}": order, f"b{number}": random.permutation(10) + 1, f"x{number}": texts}
    )


def tried(suite: Suite) -> Outcome:
    """Return how the texts of a suite fare."""
    schemas = {name: _schema(name, rows) for name, rows in suite.tables.items()}
    stems = {name: _stem(rows) for name, rows in suite.tables.items()}
    outcome = Outcome()
    with duckdb.connect(":memory:", config={"threads": 1}) as duck:
        # Division of integers is that of integers here and there in these suites, not in ours.
        for name, rows in suite.tables.items():
            duck.register(f"{name}_rows", rows)
            duck.execute(f"CREATE TABLE {name} AS SELECT * FROM {name}_rows")
        for _ in range(suite.count):
            text = suite.text()
            try:
                ours = _answer(text, schemas, stems)
            except (QueryError, TooManyPairs, MemoryError) as problem:
                reason = getattr(problem, "reason", type(problem).__name__)
                outcome.refused[f"{reason}: {str(problem).splitlines()[0][:90]}"] += 1
                continue
            outcome.answered += 1
            # DuckDB has no list of no values, which SQLite's suites ask for.
            duck_text = text.replace("IN ()", "IN (SELECT 1 WHERE FALSE)")
            if Counter(ours) != Counter(_rows(duck.execute(duck_text).fetchall())):
                outcome.wrong.append(text)
    return outcome


def _answer(
    text: str, schemas: Mapping[str, StreamSchema], stems: Mapping[str, pa.RecordBatch]
) -> list[tuple[Any, ...]]:
    query = bind_query(text, schemas.get)
    legs = [
        part.filter(pa.array(matches(leg.where, part))).select(sorted(reads))
        for leg, reads in zip(query.legs, leg_reads(query), strict=True)
        for part in (stems[leg.stream],)
    ]
    source = Combining(_MEMORY_BYTES, _PAIRS, []).source_rows(query, legs)
    return _rows([tuple(row.values()) for row in answer_of(query, [source]).to_pylist()])


def _rows(rows: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Return rows that are equal if their values are, whatever type a number has."""
    return [
        tuple(
            value if value is None or isinstance(value, str) else round(float(value), 6)
            for value in row
        )
        for row in rows
    ]


def _schema(name: str, rows: pa.Table) -> StreamSchema:
    types = {
        field.name: TEXT if pa.types.is_string(field.type) else BIGINT for field in rows.schema
    }
    return StreamSchema(name, tuple(Column(column, type_) for column, type_ in types.items()))


def _stem(rows: pa.Table) -> pa.RecordBatch:
    count = np.arange(rows.num_rows)
    times = pa.array(count, pa.timestamp("us", "UTC"))
    whole = rows.append_column("ts", times).append_column("row_id", pa.array(count))
    (batch,) = whole.combine_chunks().to_batches()
    return batch


def run(folder: Path, quick: bool) -> Report:
    count = 40 if quick else 400
    report = Report("sql_suites", f"{count} random texts of each shape, answers beside DuckDB's")
    for suite in suites(5, count):
        outcome = tried(suite)
        share = outcome.answered / suite.count
        report.add(
            f"{suite.name}, answered", share * 100, "%", aim=f"≥ {AIM:.0%}", met=share >= AIM
        )
        wrong = len(outcome.wrong)
        report.add(f"{suite.name}, wrong", wrong, "texts", aim="0", met=not wrong)
        for text in outcome.wrong[:3]:
            print(f"{suite.name}: another answer than DuckDB's:\n{text}\n")
        for reason, refusals in outcome.refused.most_common(5):
            print(f"{suite.name}: refused {refusals}: {reason}")
    return report
