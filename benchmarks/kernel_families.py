"""Families of queries for the kernel's benchmark, and what else finds their matches.

Every opponent returns the rows of each query, as the index does: a column of queries in ascending
order, and one of their rows, ascending for each query.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.kernel_queries import Intervals, compare
from datastem.types import BOOLEAN, DOUBLE, TEXT
from querystem.expressions import Call, ColumnRef, Op
from querystem.language.normal_form.normal import normal, sort_key

# In the extra "benchmarks", for nothing else needs it.
try:
    import shapely
except ImportError:
    shapely = None

Ints = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]
# The queries and the rows of all matches.
Pairs = tuple[npt.NDArray[Any], npt.NDArray[Any]]
Opponent = Callable[[pa.RecordBatch], Pairs]

ROWS = 1 << 16
_ZIPF_EXPONENT = 1.0


class QueryFamily(Protocol):
    """Queries of one shape, rows to match them with, and opponents by their name."""

    def texts(self) -> pa.Array:
        """Return the queries as the predicates table holds them."""

    def rows(self) -> pa.RecordBatch: ...

    def opponents(self) -> Mapping[str, Opponent]: ...


def by_query(ids: npt.NDArray[Any], rows: npt.NDArray[Any]) -> Pairs:
    """Bring pairs that are in the order of rows into that of queries, as fast as numpy can: it
    sorts 16 bits by radix."""
    order = np.argsort((ids & 0xFFFF).astype(np.uint16), kind="stable")
    if len(ids) and ids.max() > 0xFFFF:
        order = order[np.argsort((ids[order] >> 16).astype(np.uint16), kind="stable")]
    return ids[order], rows[order]


def _texts(operands: list[tuple[Op, ColumnRef]], columns: list[list[Any]]) -> pa.Array:
    """The predicates of one template as the predicates table keeps them."""
    marks = [1111.5 + n if c.type == DOUBLE else f"mark{n}" for n, (_, c) in enumerate(operands)]
    parts = [compare(op, c, mark) for (op, c), mark in zip(operands, marks, strict=True)]
    form = sort_key(normal(Call(Op.AND, tuple(parts), BOOLEAN)))
    form = form.replace("{", "{{").replace("}", "}}")
    for number, mark in enumerate(marks):
        form = form.replace(str(mark), f"{{{number}}}")
    return pa.array([form.format(*row) for row in zip(*columns, strict=True)])


def duckdb_join(table: pa.Table, sql: str) -> Opponent:
    """Return DuckDB's join of rows, which come as Arrow, with a table of the queries; it has one
    thread."""
    connection = duckdb.connect(config={"threads": 1})
    connection.register("given_queries", table)
    connection.execute("CREATE TABLE queries AS SELECT * FROM given_queries")

    def join(rows: pa.RecordBatch) -> Pairs:
        numbers = pa.array(np.arange(rows.num_rows))
        connection.register("rows", pa.Table.from_batches([rows]).append_column("row", numbers))
        pairs = connection.sql(sql).to_arrow_table()
        ids, matched = pairs["id"].to_numpy(), pairs["row"].to_numpy()
        order = np.lexsort((matched, ids))
        return ids[order], matched[order]

    return join


# ---- thresholds


@dataclass(frozen=True)
class Thresholds:
    """`symbol = ? AND price < ?`."""

    symbol: Ints
    most: Doubles
    chances: Doubles

    @classmethod
    def make(cls, count: int, symbols: int, highest: float, zipf: bool = False) -> Thresholds:
        """Prices are below 100, and thresholds below `highest`. Symbols are equally likely in
        queries and rows, or the n-th of them as 1 / n."""
        random = np.random.default_rng(count)
        chances = np.arange(1, symbols + 1) ** -_ZIPF_EXPONENT if zipf else np.ones(symbols)
        chances /= chances.sum()
        symbol = random.choice(symbols, count, p=chances)
        return cls(symbol, np.round(random.uniform(0, highest, count), 3), chances)

    def texts(self) -> pa.Array:
        operands = [(Op.EQ, ColumnRef("symbol", TEXT)), (Op.LT, ColumnRef("price", DOUBLE))]
        return _texts(operands, [self._names()[self.symbol].tolist(), self.most.tolist()])

    def _names(self) -> npt.NDArray[Any]:
        return np.array([f"S{number:05}" for number in range(len(self.chances))], object)

    def rows(self) -> pa.RecordBatch:
        random = np.random.default_rng(1)
        symbols = random.choice(len(self.chances), ROWS, p=self.chances)
        prices = np.round(random.uniform(0, 100, ROWS), 2)
        return pa.record_batch({"symbol": pa.array(self._names()[symbols]), "price": prices})

    def opponents(self) -> Mapping[str, Opponent]:
        names = self._names()[self.symbol]
        table = pa.table({"id": np.arange(len(names)), "symbol": names, "most": self.most})
        sql = "SELECT id, row FROM rows JOIN queries USING (symbol) WHERE price < most"
        search = self._search()
        return {
            "sorted thresholds in numpy": lambda rows: by_query(*search(rows)),
            "DuckDB": duckdb_join(table, sql),
        }

    def rowwise(self) -> Opponent:
        """Sorted thresholds again, as pairs that stay in the order of rows."""
        return self._search()

    def _search(self) -> Opponent:
        """The queries of each symbol, whose thresholds descend, one symbol after the other."""
        order = np.lexsort((-self.most, self.symbol))
        # A row's place in this order is found by its symbol's number and its price in one number.
        keys = self.symbol[order] * 1000.0 - self.most[order]
        begins = np.searchsorted(self.symbol[order], np.arange(len(self.chances)))
        symbols = pa.array(self._names())

        def search(rows: pa.RecordBatch) -> Pairs:
            codes = pc.index_in(rows["symbol"], value_set=symbols).to_numpy()
            ends = np.searchsorted(keys, codes * 1000.0 - rows["price"].to_numpy())
            counts = ends - begins[codes]
            matched = np.repeat(np.arange(len(codes)), counts)
            places = np.repeat(begins[codes] - np.cumsum(counts) + counts, counts)
            return order[places + np.arange(len(places))], matched

        return search


# ---- boxes


@dataclass(frozen=True)
class Boxes:
    """`x >= ? AND x < ? AND y >= ? AND y < ?`, for points of the unit square."""

    low: Doubles
    high: Doubles

    @classmethod
    def make(cls, count: int, side: float) -> Boxes:
        """Sides are up to twice as long as `side`."""
        random = np.random.default_rng(count)
        low = random.uniform(0, 1, (count, 2))
        return cls(low, low + random.uniform(0, 2 * side, (count, 2)))

    def texts(self) -> pa.Array:
        x, y = ColumnRef("x", DOUBLE), ColumnRef("y", DOUBLE)
        operands = [(Op.GE, x), (Op.LT, x), (Op.GE, y), (Op.LT, y)]
        columns = [self.low[:, 0], self.high[:, 0], self.low[:, 1], self.high[:, 1]]
        return _texts(operands, [column.tolist() for column in columns])

    def rows(self) -> pa.RecordBatch:
        random = np.random.default_rng(1)
        return pa.record_batch({name: random.uniform(0, 1, ROWS) for name in ("x", "y")})

    def opponents(self) -> Mapping[str, Opponent]:
        x0, y0, x1, y1 = *self.low.T, *self.high.T
        table = pa.table({"id": np.arange(len(x0)), "x0": x0, "y0": y0, "x1": x1, "y1": y1})
        sql = "SELECT id, row FROM rows JOIN queries ON x >= x0 AND x < x1 AND y >= y0 AND y < y1"
        trees = {} if shapely is None else {"an R-tree (shapely)": self._tree()}
        return trees | {"DuckDB": duckdb_join(table, sql)}

    def _tree(self) -> Opponent:
        tree = shapely.STRtree(shapely.box(*self.low.T, *self.high.T))

        def search(rows: pa.RecordBatch) -> Pairs:
            x, y = rows["x"].to_numpy(), rows["y"].to_numpy()
            matched, ids = tree.query(shapely.points(x, y))
            inside = (x[matched] < self.high[ids, 0]) & (y[matched] < self.high[ids, 1])
            return by_query(ids[inside], matched[inside])

        return search


# ---- intervals


@dataclass(frozen=True)
class PaperIntervals:
    """The two intervals of the PSoup paper."""

    queries: Intervals

    def texts(self) -> pa.Array:
        return self.queries.texts()

    def rows(self) -> pa.RecordBatch:
        return self.queries.rows()

    def opponents(self) -> Mapping[str, Opponent]:
        return {"numpy, query by query": self._compared()}

    def _compared(self) -> Opponent:
        tables = self.queries.tables()
        bounds = {
            columns: [table[name].to_pylist() for name in ("id", "lo0", "hi0", "lo1", "hi1")]
            for columns, table in tables.items()
        }

        def search(rows: pa.RecordBatch) -> Pairs:
            columns = [column.to_numpy() for column in rows.columns]
            rows_of: dict[int, npt.NDArray[Any]] = {}
            for (x, y), queries in bounds.items():
                for id_, lo0, hi0, lo1, hi1 in zip(*queries, strict=True):
                    mask = (columns[x] >= lo0) & (columns[x] <= hi0)
                    mask &= (columns[y] >= lo1) & (columns[y] <= hi1)
                    rows_of[id_] = np.flatnonzero(mask)
            lists = [rows_of[id_] for id_ in sorted(rows_of)]
            counts = [len(matched) for matched in lists]
            return np.repeat(np.array(sorted(rows_of)), counts), np.concatenate(lists)

        return search
