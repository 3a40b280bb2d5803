"""From the rows of a copy to the answer at an instant: the one place where that is done."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import pyarrow as pa

from client_sdk._columns import Column, schema_of
from client_sdk._exceptions import FileDamaged, NotSynced
from client_sdk._time import from_micros
from client_sdk.copies import _tables
from client_sdk.copies._bases import computation_of
from client_sdk.copies._computing import ROW_ID
from client_sdk.copies._encoding import restored
from client_sdk.copies._records import Version
from client_sdk.copies._shelf import Record

ORDER = "sort_key, visible_from, row_id"


def version_of(record: Record) -> Version:
    """Raises NotSynced."""
    if record.version is None:
        raise NotSynced(f"{record.name} has not been synced yet, or its state is damaged: sync")
    return record.version


def visible(now: int | None) -> str:
    """The condition on rows of the answer at that instant; without one no row that has a begin."""
    if now is None:
        return "visible_from IS NULL"
    begun = f"(visible_from IS NULL OR visible_from <= {now})"
    return f"{begun} AND (visible_until IS NULL OR visible_until > {now})"


def answer_columns(connection: sqlite3.Connection, record: Record) -> tuple[Column, ...]:
    computation = computation_of(connection, record.declaration)
    return version_of(record).shape.columns if computation is None else computation.columns


def answer_at(connection: sqlite3.Connection, record: Record, now: int | None) -> pa.Table:
    """In the order of the answer; of base rows it is computed."""
    columns = version_of(record).shape.columns
    computation = computation_of(connection, record.declaration)
    if computation is None:
        return _rows_at(connection, record, now, columns, _tables.value_names(columns))
    names = ["row_id", *_tables.value_names(columns)]
    columns = (Column(ROW_ID, "BIGINT"), *columns)
    rows = _rows_at(connection, record, now, columns, names)
    return computation.answer(rows, None if now is None else from_micros(now))


def _rows_at(
    connection: sqlite3.Connection,
    record: Record,
    now: int | None,
    columns: Sequence[Column],
    stored: Sequence[str],
) -> pa.Table:
    names, table = ", ".join(stored), version_of(record).table
    rows = connection.execute(
        f"SELECT {names} FROM {table} WHERE {visible(now)} ORDER BY {ORDER}"
    ).fetchall()
    series = list(zip(*rows, strict=True)) if rows else [() for _ in columns]
    try:
        arrays = [restored(values, one) for values, one in zip(series, columns, strict=True)]
    except (ValueError, TypeError, ArithmeticError, OverflowError) as error:
        raise FileDamaged(
            f"{record.name} holds values that are none: {error}. The next sync repairs it"
        ) from error
    return pa.Table.from_arrays(arrays, schema=schema_of(tuple(columns)))
