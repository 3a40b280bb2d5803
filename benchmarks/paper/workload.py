"""Rows and queries as section 5 of the paper describes them, generated from a seed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from datastem.schema import StreamSchema
from querystem.expressions import Expression
from querystem.language import CreateStream, bind_query, parse_statement

SYNTHETIC = "CREATE STREAM data (a BIGINT, b BIGINT, c BIGINT, d BIGINT)"
COLUMNS = ("a", "b", "c", "d")
TOP = 255
TRAFFIC = "CREATE STREAM traffic (lane BIGINT, station BIGINT, speed DOUBLE)"
LANES, STATIONS = 8, 9

Random = np.random.Generator
Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Factor:
    """A column's value lies in `[begin, end)`; `text` is the same in SQL."""

    column: str
    begin: float
    end: float
    text: str

    def holds(self, values: Array) -> Array:
        """Return a mask of the values in the interval, with as few comparisons as possible."""
        if self.begin == -np.inf:
            return np.asarray(values < self.end)
        if self.end == np.inf:
            return np.asarray(values >= self.begin)
        if self.end == self.begin + 1:
            return np.asarray(values == self.begin)
        return np.asarray((values >= self.begin) & (values < self.end))


@dataclass(frozen=True, slots=True)
class Query:
    """A conjunction. `where` is what the product's language makes of its text."""

    factors: tuple[Factor, ...]
    where: Expression


@dataclass(frozen=True, slots=True)
class Workload:
    schema: StreamSchema
    rows: pa.RecordBatch
    queries: list[Query]


@lru_cache(maxsize=4)
def equality(rows: int, queries: int) -> Workload:
    """Figure 7a: one to four equalities, each on a column of its own."""
    random = np.random.default_rng(7)
    return _synthetic(
        random, rows, [_equal(random, _random_columns(random)) for _ in range(queries)]
    )


@lru_cache(maxsize=4)
def intervals(rows: int, queries: int, count: int | None = None) -> Workload:
    """Figure 7b: one to four intervals on columns of their own; Table 2: `count` of them."""
    random = np.random.default_rng(7)
    chosen = [_between(random, _random_columns(random, count)) for _ in range(queries)]
    return _synthetic(random, rows, chosen)


@lru_cache(maxsize=4)
def inequalities(rows: int, queries: int, count: int | None = None) -> Workload:
    """Figure 9: one to eight comparisons, or `count`; two on one column are an interval."""
    random = np.random.default_rng(9)
    chosen = [
        _compared(random, int(random.integers(1, 9)) if count is None else count)
        for _ in range(queries)
    ]
    return _synthetic(random, rows, chosen)


@lru_cache(maxsize=4)
def traffic(rows: int, queries: int) -> Workload:
    """Figures 12 and 13. Extreme speeds are rare, as the paper says of its trace."""
    random = np.random.default_rng(12)
    batch = pa.record_batch(
        {
            "lane": random.integers(1, LANES + 1, rows),
            "station": random.integers(1, STATIONS + 1, rows),
            "speed": np.clip(random.normal(60.0, 18.0, rows), 0.0, 100.0),
        }
    )
    return _workload(TRAFFIC, batch, [_on_traffic(random) for _ in range(queries)])


def _synthetic(random: Random, rows: int, queries: list[list[Factor]]) -> Workload:
    batch = pa.record_batch({name: random.integers(0, TOP + 1, rows) for name in COLUMNS})
    return _workload(SYNTHETIC, batch, queries)


def _workload(sql: str, rows: pa.RecordBatch, queries: list[list[Factor]]) -> Workload:
    statement = parse_statement(sql)
    assert isinstance(statement, CreateStream)
    return Workload(statement.schema, rows, [_bind(statement.schema, q) for q in queries])


def _bind(schema: StreamSchema, factors: list[Factor]) -> Query:
    where = " AND ".join(factor.text for factor in factors)
    bound = bind_query(f"SELECT * FROM {schema.name} WHERE {where}", lambda _: schema)
    return Query(tuple(factors), bound.leg.where)


def constant(random: Random) -> int:
    """A fifth of them are multiples of 32: some values interest more queries than others."""
    if random.random() < 0.2:
        return int(random.integers(0, 8)) * 32
    return int(random.integers(0, TOP + 1))


def _random_columns(random: Random, count: int | None = None) -> list[str]:
    size = int(random.integers(1, len(COLUMNS) + 1)) if count is None else count
    return [str(name) for name in random.choice(COLUMNS, size, replace=False)]


def _equal(random: Random, columns: list[str]) -> list[Factor]:
    constants = [(name, constant(random)) for name in columns]
    return [Factor(name, value, value + 1, f"{name} = {value}") for name, value in constants]


def _between(random: Random, columns: list[str]) -> list[Factor]:
    factors = []
    for name in columns:
        low = constant(random)
        high = low + int(random.integers(0, TOP + 1))
        factors.append(Factor(name, low, high + 1, f"{name} BETWEEN {low} AND {high}"))
    return factors


def _compared(random: Random, count: int) -> list[Factor]:
    columns = _random_columns(random, -(-count // 2))
    factors = _between(random, columns[: count // 2])
    if count % 2:
        name, value = columns[-1], constant(random)
        if random.random() < 0.5:
            factors.append(Factor(name, -np.inf, value, f"{name} < {value}"))
        else:
            factors.append(Factor(name, value + 1, np.inf, f"{name} > {value}"))
    return factors


def _on_traffic(random: Random) -> list[Factor]:
    lane, station = int(random.integers(1, LANES + 1)), int(random.integers(1, STATIONS + 1))
    speed = float(random.integers(0, 100))
    return [
        Factor("lane", lane, lane + 1, f"lane = {lane}"),
        Factor("station", station, station + 1, f"station = {station}"),
        Factor("speed", float(np.nextafter(speed, np.inf)), np.inf, f"speed > {speed}"),
    ]
