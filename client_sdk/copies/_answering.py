"""From the rows of a copy to the answer at an instant: the one place where that is done."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence

import pyarrow as pa

from client_sdk._exceptions import FileDamaged, NotSynced
from client_sdk._wire.values import Column, from_micros, schema_of
from client_sdk.copies import _tables
from client_sdk.copies._bases import computation_of
from client_sdk.copies._computing import ROW_ID
from client_sdk.copies._encoding import restored
from client_sdk.copies._records import Version
from client_sdk.copies._shelf import Record

_ROWS = 65_536
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
    batches = batches_at(connection, record, now, _ROWS)
    return pa.Table.from_batches(batches, schema_of(answer_columns(connection, record)))


def batches_at(
    connection: sqlite3.Connection, record: Record, now: int | None, rows: int
) -> Iterator[pa.RecordBatch]:
    """The same, so many rows at a time."""
    columns = version_of(record).shape.columns
    stored = _tables.value_names(columns)
    computation = computation_of(connection, record.declaration)
    if computation is None:
        yield from _rows_at(connection, record, now, columns, stored, rows)
        return
    columns = (Column(ROW_ID, "BIGINT"), *columns)
    base = _rows_at(connection, record, now, columns, ["row_id", *stored], rows)
    moment = None if now is None else from_micros(now)
    answer = computation.answer(pa.Table.from_batches(base, schema_of(columns)), moment)
    yield from answer.to_batches(max_chunksize=rows)


def _rows_at(
    connection: sqlite3.Connection,
    record: Record,
    now: int | None,
    columns: tuple[Column, ...],
    stored: Sequence[str],
    rows: int,
) -> Iterator[pa.RecordBatch]:
    names, table = ", ".join(stored), version_of(record).table
    cursor = connection.execute(
        f"SELECT {names} FROM {table} WHERE {visible(now)} ORDER BY {ORDER}"
    )
    while found := cursor.fetchmany(rows):
        series = zip(*found, strict=True)
        try:
            arrays = [restored(values, one) for values, one in zip(series, columns, strict=True)]
        except (ValueError, TypeError, ArithmeticError, OverflowError) as error:
            raise FileDamaged(
                f"{record.name} holds values that are none: {error}. The next sync repairs it"
            ) from error
        yield pa.RecordBatch.from_arrays(arrays, schema=schema_of(columns))
