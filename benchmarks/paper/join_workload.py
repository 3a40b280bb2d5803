"""Joins of two tables as section 5 of the paper describes them, generated from a seed.

A query has one inequality between the tables, `r.a > s.b + 7`, and others about one of them. The
paper's have local predicates that pass half of the rows; `selective` ones pass a hundredth.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from benchmarks.paper.workload import COLUMNS, TOP, Array, Factor, Random, constant
from querystem.expressions import Expression
from querystem.language import CreateStream, bind_query, parse_statement
from querystem.language.normal_form.rewrite import all_of, as_item
from querystem.sources import From, item_column

TABLES = ("r", "s")


@dataclass(frozen=True, slots=True)
class JoinQuery:
    """`r.left < s.right + plus`, or `>` if `above`; `local` has the other factors of each table.

    With a `band`, which needs `above`, `r.left` is also at most `s.right + plus + band`. `where` is
    all of it as the product's language reads its text, over both tables' columns.
    """

    left: str
    right: str
    above: bool
    plus: int
    local: tuple[tuple[Factor, ...], tuple[Factor, ...]]
    where: Expression
    band: int | None = None


@dataclass(frozen=True, slots=True)
class JoinWorkload:
    """The rows of both tables, of which one of each comes at a time."""

    rows: tuple[pa.RecordBatch, pa.RecordBatch]
    queries: list[JoinQuery]


@lru_cache(maxsize=8)
def joins(rows: int, queries: int, count: int | None = None) -> JoinWorkload:
    """Queries of one to four factors, or of `count`, one of which joins."""
    random = np.random.default_rng(8)
    tables = _tables(random, rows)
    generated = [_query(random, count or int(random.integers(1, 5))) for _ in range(queries)]
    return JoinWorkload(tables, generated)


@lru_cache(maxsize=2)
def selective(rows: int, queries: int, band: int | None) -> JoinWorkload:
    """Queries that share `r.a > s.b`, or the band `r.a > s.b AND r.a <= s.b + band`. Each has an
    interval of three values of 256 on a column of each table: a hundredth of its rows."""
    random = np.random.default_rng(8)
    tables = _tables(random, rows)
    return JoinWorkload(tables, [_selective_query(random, band) for _ in range(queries)])


def _tables(random: Random, rows: int) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    first, second = (
        pa.record_batch({name: random.integers(0, TOP + 1, rows) for name in COLUMNS})
        for _ in TABLES
    )
    return first, second


def _selective_query(random: Random, band: int | None) -> JoinQuery:
    factors = [_narrow(random, column) for column in ("c", "d")]
    texts = ["r.a > s.b", *(f"{t}.{f.text}" for t, f in zip(TABLES, factors, strict=True))]
    if band is not None:
        texts.append(f"r.a <= s.b + {band}")
    local = (factors[0],), (factors[1],)
    return JoinQuery("a", "b", True, 0, local, _bound(" AND ".join(texts)), band)


def _narrow(random: Random, column: str) -> Factor:
    value = int(random.integers(0, TOP - 1))
    return Factor(column, value, value + 3, f"{column} BETWEEN {value} AND {value + 2}")


def _query(random: Random, count: int) -> JoinQuery:
    r_column, s_column = (str(random.choice(COLUMNS)) for _ in TABLES)
    above, plus = bool(random.integers(2)), constant(random) * int(random.choice([-1, 1]))
    columns = random.permutation([(table, name) for table in TABLES for name in COLUMNS])
    local = [(table, _compared(random, name)) for table, name in columns[: count - 1].tolist()]
    texts = [f"r.{r_column} {'>' if above else '<'} s.{s_column} + {plus}".replace("+ -", "- ")]
    texts += [f"{table}.{factor.text}" for table, factor in local]
    first, second = (tuple(f for table, f in local if table == name) for name in TABLES)
    return JoinQuery(r_column, s_column, above, plus, (first, second), _bound(" AND ".join(texts)))


def _compared(random: Random, column: str) -> Factor:
    value = constant(random)
    if random.random() < 0.5:
        return Factor(column, -np.inf, value, f"{column} < {value}")
    return Factor(column, value + 1, np.inf, f"{column} > {value}")


def _bound(where: str) -> Expression:
    """The condition over the columns of both, as those of a FROM are named."""
    schemas = {}
    for name in TABLES:
        columns = ", ".join(f"{column} BIGINT" for column in COLUMNS)
        statement = parse_statement(f"CREATE STREAM {name} ({columns})")
        assert isinstance(statement, CreateStream)
        schemas[name] = statement.schema
    query = bind_query(f"SELECT r.a AS a FROM r, s WHERE {where}", schemas.__getitem__)
    assert isinstance(query.source, From)
    legs = [as_item(leg.where, number) for number, leg in enumerate(query.legs)]
    return all_of([query.source.on, *legs])


def beside(tables: tuple[pa.RecordBatch, pa.RecordBatch], places: tuple[Array, Array]) -> pa.Table:
    """The columns of both tables' rows at these places, as those of a FROM are named."""
    return pa.Table.from_batches(
        [
            pa.RecordBatch.from_arrays(
                [
                    column.take(pa.array(chosen))
                    for rows, chosen in zip(tables, places, strict=True)
                    for column in rows.columns
                ],
                names=[item_column(number, name) for number in (0, 1) for name in COLUMNS],
            )
        ]
    )
