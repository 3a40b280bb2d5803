"""The answer of a copy at an instant, and which instant that is.

NOW of a copy that slides is the store's clock, as the client reckons it from its own: never behind
the store's at the last sync, and never backwards.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

import pyarrow as pa

from client_sdk._exceptions import FileDamaged, NotSynced
from client_sdk._wire.values import Column, from_micros, schema_of, to_micros
from client_sdk.copies._file import catalog, tables
from client_sdk.copies._file.catalog import Record
from client_sdk.copies._file.clock import DeviceClock
from client_sdk.copies._file.file import BUSY_SECONDS, CopyFile
from client_sdk.copies._file.records import Version
from client_sdk.copies._file.tables import restored
from client_sdk.copies._query.base_rows import ROW_ID, computation_of

_ROWS = 65_536
ORDER = "sort_key, visible_from, row_id"


def version_of(record: Record) -> Version:
    """Return the version that is seen. Raises NotSynced."""
    if record.version is None:
        raise NotSynced(f"{record.name} has not been synced yet, or its state is damaged: sync")
    return record.version


def visible(now: int | None) -> str:
    """Return the condition on rows of the answer at `now`; without a NOW no row is in it that has a
    begin.
    """
    if now is None:
        return "visible_from IS NULL"
    begun = f"(visible_from IS NULL OR visible_from <= {now})"
    return f"{begun} AND (visible_until IS NULL OR visible_until > {now})"


def answer_columns(connection: sqlite3.Connection, record: Record) -> tuple[Column, ...]:
    computation = computation_of(connection, record.declaration)
    return version_of(record).shape.columns if computation is None else computation.columns


def answer_at(connection: sqlite3.Connection, record: Record, now: int | None) -> pa.Table:
    """Make the answer at `now`, in its order; if the copy is of base rows, it is computed."""
    batches = batches_at(connection, record, now, _ROWS)
    return pa.Table.from_batches(batches, schema_of(answer_columns(connection, record)))


def batches_at(
    connection: sqlite3.Connection, record: Record, now: int | None, rows: int
) -> Iterator[pa.RecordBatch]:
    """Make the answer at `now`, so many `rows` at a time."""
    columns = version_of(record).shape.columns
    stored = tables.value_names(columns)
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


_SECOND = 1_000_000


class CopyClock:
    """Knows the NOW each copy was last seen at. The file is told every second, if it has time."""

    def __init__(self, file: CopyFile, clock: DeviceClock) -> None:
        self._file = file
        self._clock = clock
        self._seen: dict[tuple[int, bytes], int] = {}

    def now(self, record: Record, asked: datetime | None) -> int | None:
        """Return the NOW at which a copy is seen.

        Raises ValueError for an instant before the copy's own: rows of then may be gone.
        """
        version = version_of(record)
        if asked is not None:
            now = to_micros(asked)
            if version.now is not None and now < version.now:
                raise ValueError(
                    f"{record.name} is of {version.state.now}: rows of {asked} may be gone"
                )
            return now
        if not version.shape.slides:
            return version.now
        shown = max(record.shown or 0, self._seen.get(_key(record), 0))
        return max(self._clock.now(version.offset), version.now or 0, shown)

    def offset(self, record: Record) -> timedelta | None:
        """Return the store's clock less the device's; None if that is not known."""
        micros = self._clock.offset(version_of(record).offset)
        return None if micros is None else timedelta(microseconds=micros)

    def note(self, record: Record, now: int | None) -> None:
        """Note that the copy was seen at `now`, and is not to be seen at an earlier instant.

        A new version begins at the store's NOW, so that a clock that was wrong is put right.
        """
        if now is None or not version_of(record).shape.slides:
            return
        self._seen = {key: seen for key, seen in self._seen.items() if key[0] != record.copy_id}
        self._seen[_key(record)] = now
        if now >= (record.shown or 0) + _SECOND:
            self._tell(record.copy_id, now)

    def _tell(self, copy_id: int, now: int) -> None:
        with self._file.alone() as connection:
            connection.execute("PRAGMA busy_timeout = 0")
            try:
                catalog.put_shown(connection, copy_id, now)
            except sqlite3.OperationalError:
                pass
            finally:
                connection.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")


def _key(record: Record) -> tuple[int, bytes]:
    return record.copy_id, version_of(record).token
