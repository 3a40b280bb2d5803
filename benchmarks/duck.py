"""DuckDB beside us: one thread, over tables of its own."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import duckdb
import pyarrow as pa


class Duck:
    """DuckDB that runs a query again over the same rows; gives how many rows it found."""

    def __init__(self, tables: Mapping[str, pa.Table], sql: str) -> None:
        self._database = duckdb.connect()
        self._database.execute("SET threads = 1")
        for name, rows in tables.items():
            self._database.register("given", _without_zone(rows))
            self._database.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
            self._database.unregister("given")
        self._sql = sql

    def __call__(self) -> int:
        with warnings.catch_warnings():
            # That this copies the rows once more; the other way takes longer.
            warnings.simplefilter("ignore")
            rows = self._database.execute(self._sql).to_arrow_table()
        return 0 if rows is None else len(rows)


def _without_zone(rows: pa.Table) -> pa.Table:
    """The rows with instants that have no zone, which DuckDB needs none of its calendars for."""
    fields = [
        field.with_type(pa.timestamp("us")) if pa.types.is_timestamp(field.type) else field
        for field in rows.schema
    ]
    return rows.cast(pa.schema(fields))
