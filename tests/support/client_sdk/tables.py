"""Answers of every type, made up, and read back from every format."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from hypothesis import strategies as st

from client_sdk import Column
from client_sdk.pulls._sinks import Output

COLUMNS = (
    Column("flag", "BOOLEAN"),
    Column("n", "BIGINT"),
    Column("x", "DOUBLE"),
    Column("fee", "DECIMAL(38,9)"),
    Column("small", "DECIMAL(4,0)"),
    Column("name", "TEXT"),
    Column("at", "TIMESTAMP"),
    Column("day", "DATE"),
)
SCHEMA = pa.schema([(column.name, column.arrow) for column in COLUMNS])
_ODD = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}

texts = st.text(st.characters(codec="utf-8"), max_size=8)
rows = st.fixed_dictionaries(
    {
        "flag": st.none() | st.booleans(),
        "n": st.none() | st.integers(-(2**63), 2**63 - 1),
        "x": st.none() | st.floats(),
        "fee": st.none() | st.decimals(-(10**28), 10**28, places=9),
        "small": st.none() | st.decimals(-9999, 9999, places=0),
        "name": st.none()
        | texts
        | st.sampled_from(["", "a\0b", 'a"b', "a,b", "a\r\nb", "NULL", "nan"]),
        "at": st.none() | st.datetimes(timezones=st.just(UTC)),
        "day": st.none() | st.dates(),
    }
)


def table_of(values: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(values, schema=SCHEMA)


def output_of(table: pa.Table, name: str = "dear", rows: int = 2) -> Output:
    columns = tuple(column for column in COLUMNS if column.name in table.column_names)
    return Output(
        name,
        columns,
        lambda: table.to_batches(max_chunksize=rows),
        datetime(2026, 11, 16, 9, tzinfo=UTC),
        b"\x01\x02",
    )


def same(first: pa.Table, second: pa.Table) -> bool:
    """Return True if the values are equal, bit by bit except for the payload of NaN."""
    return first.schema.equals(second.schema) and _row_texts(first) == _row_texts(second)


def holds(path: Path, form: str, table: pa.Table) -> bool:
    """Return True if the output reads back as this answer. A Delta table has no order; SQLite knows
    no -0.0."""
    written = _READERS[form](path)
    if not written.schema.equals(table.schema):
        return False
    if form == "delta":
        return sorted(_row_texts(written)) == sorted(_row_texts(table))
    if form == "sqlite":
        table = table_of(
            [
                {**row, "x": None if row["x"] is None else row["x"] + 0.0}
                for row in table.to_pylist()
            ]
        )
    return _row_texts(written) == _row_texts(table)


def _row_texts(table: pa.Table) -> list[str]:
    return [repr(row) for row in table.to_pylist()]


def _parquet(path: Path) -> pa.Table:
    return pyarrow.parquet.read_table(path).replace_schema_metadata()


def _csv(path: Path) -> pa.Table:
    options = pyarrow.csv.ConvertOptions(
        column_types=SCHEMA,
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    parse = pyarrow.csv.ParseOptions(newlines_in_values=True)
    return pyarrow.csv.read_csv(path, parse_options=parse, convert_options=options)


def _json(path: Path) -> pa.Table:
    document = json.loads(path.read_text("utf-8"))
    assert [Column(**column) for column in document["columns"]] == list(COLUMNS)
    return _plain(document["rows"])


def _jsonl(path: Path) -> pa.Table:
    return _plain([json.loads(line) for line in path.read_bytes().splitlines()])


def _sqlite(path: Path, name: str = "dear") -> pa.Table:
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        rows = [dict(row) for row in connection.execute(f'SELECT * FROM "{name}" ORDER BY rowid')]
    for row in rows:
        row["flag"] = None if row["flag"] is None else bool(row["flag"])
    return _plain(rows)


def read_sqlite(path: Path, name: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(f'SELECT * FROM "{name}"').fetchall()


def _delta(path: Path) -> pa.Table:
    from deltalake import DeltaTable

    return pa.table(DeltaTable(str(path)).to_pyarrow_dataset().to_table()).cast(SCHEMA)


def _plain(rows: list[dict[str, Any]]) -> pa.Table:
    parse: dict[str, Any] = {
        "x": lambda value: _ODD[value] if isinstance(value, str) else float(value),
        "fee": Decimal,
        "small": Decimal,
        "at": datetime.fromisoformat,
        "day": date.fromisoformat,
    }
    for row in rows:
        for name, value in row.items():
            if value is not None and name in parse:
                row[name] = parse[name](value)
    return table_of(rows)


_READERS = {
    "parquet": _parquet,
    "csv": _csv,
    "json": _json,
    "jsonl": _jsonl,
    "sqlite": _sqlite,
    "delta": _delta,
}
