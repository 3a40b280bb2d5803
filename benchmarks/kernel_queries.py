"""Rows and predicates of the kernel's benchmark, as columns: for the index, numpy and DuckDB."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from intervaltree import IntervalTree

from datastem.types import BIGINT, BOOLEAN, DOUBLE
from querystem.expressions import Call, ColumnRef, Expression, Literal, Op, predicate_key
from querystem.index import QueryStem
from querystem.language.normal_form.normal import normal, sort_key

Ints = npt.NDArray[np.int64]

ROWS = 1 << 16
NAMES = ("a", "b", "c", "d")
PAIRS = tuple(combinations(range(4), 2))
LANES = 8


@dataclass(frozen=True)
class Intervals:
    """Conjunctions of two intervals of 0..255 on two of four columns, as in the PSoup paper."""

    pair: Ints
    lo: Ints
    hi: Ints

    @classmethod
    def make(cls, count: int, first: int = 0) -> Intervals:
        """Bounds are `first` and up."""
        random = np.random.default_rng(count)
        ends = np.sort(random.integers(first, first + 256, (count, 2, 2)), axis=2)
        return cls(random.integers(0, len(PAIRS), count), ends[:, :, 0], ends[:, :, 1])

    def wheres(self) -> list[Expression]:
        return [self._where(n) for n in range(len(self.pair))]

    def stem(self) -> QueryStem:
        stem = QueryStem()
        stem.insert_texts(np.arange(len(self.pair)), self.texts())
        return stem

    def texts(self) -> pa.Array:
        """Return the queries as the predicates table holds them."""
        return pa.array([predicate_key(where) for where in self.wheres()])

    def _where(self, number: int) -> Expression:
        parts = []
        for place, column in enumerate(PAIRS[self.pair[number]]):
            operand = ColumnRef(NAMES[column], BIGINT)
            parts.append(compare(Op.GE, operand, int(self.lo[number, place])))
            parts.append(compare(Op.LE, operand, int(self.hi[number, place])))
        return Call(Op.AND, tuple(parts), BOOLEAN)

    def rows(self) -> pa.RecordBatch:
        random = np.random.default_rng(1)
        return pa.record_batch({name: random.integers(0, 256, ROWS) for name in NAMES})

    def tables(self) -> dict[tuple[int, int], pa.Table]:
        """The queries on each pair of columns."""
        return {
            columns: pa.table(
                {
                    "id": np.flatnonzero(self.pair == pair),
                    **{f"lo{n}": self.lo[self.pair == pair, n] for n in (0, 1)},
                    **{f"hi{n}": self.hi[self.pair == pair, n] for n in (0, 1)},
                }
            )
            for pair, columns in enumerate(PAIRS)
        }

    def trees(self) -> list[IntervalTree]:
        """One for each column, with the number of the query of each interval."""
        trees = [IntervalTree() for _ in NAMES]
        for number, (pair, los, his) in enumerate(zip(self.pair, self.lo, self.hi, strict=True)):
            for column, lo, hi in zip(PAIRS[pair], los.tolist(), his.tolist(), strict=True):
                trees[column].addi(lo, hi + 1, number)
        return trees


@dataclass(frozen=True)
class Stations:
    """`lane = ? AND station = ? AND speed > ?`: of n queries, n / (16 * stations) match a row."""

    lane: Ints
    station: Ints
    speed: npt.NDArray[np.float64]
    stations: int

    @classmethod
    def make(cls, count: int, stations: int, first: int = 0) -> Stations:
        """Stations are numbered from `first` on."""
        random = np.random.default_rng(count)
        return cls(
            random.integers(1, LANES + 1, count),
            random.integers(first, first + stations, count),
            random.integers(0, 100, count).astype(np.float64),
            stations,
        )

    def texts(self) -> pa.Array:
        """As the predicates table keeps them."""
        parts = [
            compare(Op.EQ, ColumnRef("lane", BIGINT), 1111),
            compare(Op.EQ, ColumnRef("station", BIGINT), 2222),
            compare(Op.GT, ColumnRef("speed", DOUBLE), 3333.0),
        ]
        form = sort_key(normal(Call(Op.AND, tuple(parts), BOOLEAN)))
        form = form.replace("1111", "{}").replace("2222", "{}").replace("3333.0", "{}")
        columns = self.lane.tolist(), self.station.tolist(), self.speed.tolist()
        return pa.array([form.format(*row) for row in zip(*columns, strict=True)])

    def stem(self) -> QueryStem:
        stem = QueryStem()
        stem.insert_texts(np.arange(len(self.lane)), self.texts())
        return stem

    def rows(self) -> pa.RecordBatch:
        random = np.random.default_rng(1)
        return pa.record_batch(
            {
                "lane": random.integers(1, LANES + 1, ROWS),
                "station": random.integers(0, self.stations, ROWS),
                "speed": np.round(random.uniform(0, 100, ROWS) * 4) / 4,
            }
        )

    def table(self) -> pa.Table:
        columns = {"lane": self.lane, "station": self.station, "least": self.speed}
        return pa.table({"id": np.arange(len(self.lane)), **columns})


def compare(op: Op, operand: ColumnRef, value: Any) -> Call:
    return Call(op, (operand, Literal(value, operand.type)), BOOLEAN)
