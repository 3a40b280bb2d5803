"""A program that keeps no answers runs the query again: DuckDB in this process."""

from __future__ import annotations

import warnings
from datetime import datetime
from typing import Any

import duckdb
import pyarrow as pa

from benchmarks import workload


class Rerun:
    """Over the rows themselves, one thread; answers are Arrow, as ours are."""

    def __init__(self, rows: pa.Table) -> None:
        self._database = duckdb.connect()
        self._database.execute("SET threads = 1")
        self._database.execute("SET TimeZone = 'UTC'")
        self._database.register("given", rows)
        self._database.execute("CREATE TABLE traffic AS SELECT * FROM given")
        self.now: datetime = rows["at"][-1].as_py()

    def pair(self, number: int, outputs: str = 'lane, station, speed, "at"') -> int:
        """The answer of `workload.pair_query`; how many rows it has."""
        since = self.now - workload.WINDOW_ROWS * workload.EVERY
        return self.select(outputs, "lane = ? AND station = ?", since, workload.pair(number))

    def select(self, outputs: str, where: str, since: datetime, values: tuple[Any, ...]) -> int:
        """Runs a query over the rows after `since`; gives how many it found."""
        text = f'SELECT {outputs} FROM traffic WHERE {where} AND "at" > ? AND "at" <= ?'
        with warnings.catch_warnings():
            # That this copies the rows once more; the other way takes longer.
            warnings.simplefilter("ignore")
            rows = self._database.execute(text, [*values, since, self.now]).to_arrow_table()
        return 0 if rows is None else len(rows)
