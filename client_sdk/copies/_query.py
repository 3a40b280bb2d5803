"""SQL over the copies, offline: SQLite's own, read-only, every copy a table of its name."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from client_sdk._exceptions import LocalQueryProblem
from client_sdk._wire.values import Column, utc
from client_sdk.copies import _tables
from client_sdk.copies._answering import ORDER, answer_at, answer_columns, version_of, visible
from client_sdk.copies._encoding import quoted, shown, stored
from client_sdk.copies._shelf import Record

Parameters = Sequence[Any] | Mapping[str, Any]

_READS = frozenset(
    {
        sqlite3.SQLITE_SELECT,
        sqlite3.SQLITE_READ,
        sqlite3.SQLITE_FUNCTION,
        sqlite3.SQLITE_RECURSIVE,
    }
)


def run_query(
    connection: sqlite3.Connection,
    sql: str,
    parameters: Parameters,
    copies: Iterable[tuple[Record, int | None]],
) -> list[dict[str, Any]]:
    """`copies` are those that have been synced, each with its NOW. Raises LocalQueryProblem."""
    with _views(connection, copies), _read_only(connection):
        try:
            cursor = connection.execute(sql, _adapted(parameters))
            names = [column[0] for column in cursor.description or ()]
            rows = cursor.fetchall()
        except (sqlite3.Error, sqlite3.Warning, OverflowError) as error:
            raise LocalQueryProblem(f"{error}") from error
    return [dict(zip(names, row, strict=True)) for row in rows]


@contextmanager
def _views(
    connection: sqlite3.Connection, copies: Iterable[tuple[Record, int | None]]
) -> Iterator[None]:
    made: list[str] = []
    try:
        for record, now in copies:
            made.append(f"VIEW temp.{quoted(record.name)}")
            select = _select(record, now)
            if record.declaration.base_rows:
                made.append(f"TABLE temp.{_computed_table(record)}")
                select = _select_computed(connection, record, now)
            connection.execute(f"CREATE TEMP VIEW {quoted(record.name)} AS {select}")
        yield
    finally:
        for one in made:
            connection.execute(f"DROP {one.replace(' ', ' IF EXISTS ', 1)}")


def _select(record: Record, now: int | None) -> str:
    version = version_of(record)
    values = _values(version.shape.columns)
    return f"SELECT {values} FROM main.{version.table} WHERE {visible(now)} ORDER BY {ORDER}"


def _select_computed(connection: sqlite3.Connection, record: Record, now: int | None) -> str:
    """The answer that is computed from base rows, as a table for as long as it is asked."""
    columns, table = answer_columns(connection, record), _computed_table(record)
    answer = answer_at(connection, record, now).combine_chunks()
    series = (
        [
            stored(array, column)
            for array, column in zip(answer.to_batches()[0].columns, columns, strict=True)
        ]
        if answer.num_rows
        else [[] for _ in columns]
    )
    names = _tables.value_names(columns)
    connection.execute(f"CREATE TEMP TABLE {table} ({', '.join(names)})")
    places = ", ".join("?" * len(names))
    connection.executemany(f"INSERT INTO temp.{table} VALUES ({places})", zip(*series, strict=True))
    return f"SELECT {_values(columns)} FROM temp.{table} ORDER BY rowid"


def _computed_table(record: Record) -> str:
    return f"_psoup_computed_{record.copy_id}"


def _values(columns: Sequence[Column]) -> str:
    names = zip(_tables.value_names(columns), columns, _distinct(columns), strict=True)
    return ", ".join(f"{shown(place, one)} AS {quoted(name)}" for place, one, name in names)


def _distinct(columns: Sequence[Column]) -> list[str]:
    """Names that SQLite tells apart: it does not look at case."""
    made: list[str] = []
    for column in columns:
        name, number = column.name, 2
        while name.lower() in {one.lower() for one in made}:
            name, number = f"{column.name}_{number}", number + 1
        made.append(name)
    return made


@contextmanager
def _read_only(connection: sqlite3.Connection) -> Iterator[None]:
    connection.set_authorizer(_authorize)
    try:
        yield
    finally:
        connection.set_authorizer(None)


def _authorize(action: int, *_: str | None) -> int:
    return sqlite3.SQLITE_OK if action in _READS else sqlite3.SQLITE_DENY


def _adapted(parameters: Parameters) -> Any:
    if isinstance(parameters, Mapping):
        return {name: _value(value) for name, value in parameters.items()}
    return [_value(value) for value in parameters]


def _value(value: Any) -> Any:
    """As a query sees such a value in a copy."""
    if isinstance(value, datetime):
        return utc(value).strftime("%Y-%m-%d %H:%M:%S.%f").rjust(26, "0")
    if isinstance(value, date):
        return value.isoformat()
    return float(value) if isinstance(value, Decimal) else value
