"""The first read of a table: all of its rows at the point at which its slot begins."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg2

from client_sdk import Client, Stream
from psoup.source.connectors.current_rows import pages_of_keys
from psoup.source.connectors.postgres.catalog import TableMapping
from psoup.source.connectors.postgres.changes import ChangeMaker
from psoup.source.connectors.postgres.session import connect, first_line
from psoup.source.errors import PlaceLost, SourceAway
from psoup.source.feeding.piece import Mark, Piece

_CHUNK_ROWS = 10_000


def create_slot(connection: Any, slot: str) -> tuple[str, str]:
    """Create a slot; return the position at which it begins, and the name of a snapshot of that
    moment, which ends with the connection. Raises SourceAway."""
    cursor = connection.cursor()
    try:
        cursor.create_replication_slot(slot, output_plugin="wal2json")
    except psycopg2.errors.UndefinedFile:
        raise PlaceLost(
            "the server has no wal2json: install postgresql-15-wal2json there"
        ) from None
    except psycopg2.Error as error:
        raise SourceAway(f"slot {slot}: {first_line(error)}") from None
    _, lsn, snapshot, _ = cursor.fetchone()
    return lsn, snapshot


def snapshot_mark(slot: str) -> Mark:
    """Return the mark of a snapshot, at whatever row: it can't be continued."""
    return {"phase": "snapshot", "slot": slot}


class TableSnapshot:
    """Pieces of a table as a slot's snapshot has it, all with one mark.

    It can't be continued: a source that is interrupted begins again with another slot. Rows that
    were published are updates to equal values then. `time` is that of the rows, which is not before
    the given one.
    """

    def __init__(
        self, dsn_file: Path, mapping: TableMapping, mark: Mark, lsn: str, name: str, time: str
    ) -> None:
        self._mapping, self._mark, self._lsn = mapping, mark, lsn
        self._maker = ChangeMaker(mapping)
        self._connection = connect(dsn_file)
        cursor = self._connection.cursor()
        cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        cursor.execute("SET TRANSACTION SNAPSHOT %s", (name,))
        cursor.execute("SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')")
        self.time = max(time, f"{cursor.fetchone()[0]}Z")

    def close(self) -> None:
        self._connection.close()

    def pieces(self) -> Iterator[Piece]:
        """Yield all rows."""
        names, query = self._mapping.select()
        with self._connection.cursor(name="psoup_snapshot") as cursor:
            cursor.itersize = _CHUNK_ROWS
            cursor.execute(query)
            while rows := cursor.fetchmany(_CHUNK_ROWS):
                fields = (dict(zip(names, row, strict=True)) for row in rows)
                changes = [self._maker.row(row, self._lsn, self.time) for row in fields]
                # The place has the position, by which the tries of a snapshot differ.
                piece = Piece.of(self._maker.chunk(changes), where=f"snapshot {self._lsn}, ")
                yield Piece(piece.table, piece.bad, self._mark, lambda record: self._mark)


def current_keys(client: Client, stream: Stream, last: int) -> Iterator[list[dict[str, str]]]:
    """Yield the keys of a stream's current rows up to a row id as texts, page by page."""
    for keys in pages_of_keys(client, stream, last):
        yield [{name: _text(value) for name, value in key.items()} for key in keys]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat(sep=" ") if isinstance(value, datetime) else str(value)
