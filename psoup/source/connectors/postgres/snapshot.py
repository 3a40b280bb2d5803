"""The first read of a table: all of its rows at the point at which its slot begins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg2

from client_sdk import Client
from psoup.source.connectors.postgres.catalog import TableMapping, quoted
from psoup.source.connectors.postgres.changes import ChangeMaker
from psoup.source.connectors.postgres.session import connect, first_line
from psoup.source.errors import PlaceLost, SourceAway
from psoup.source.feeding.piece import Mark, Piece

_CHUNK_ROWS = 10_000
_PAGE_KEYS = 1000


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


class TableSnapshot:
    """Pieces of a table as a slot's snapshot has it, then deletes of what only the stream has.

    It can't be continued: a source that is interrupted begins again with another slot. Rows that
    were published are updates to equal values then.
    """

    def __init__(
        self, dsn_file: Path, table: str, mapping: TableMapping, slot: str, lsn: str, name: str
    ) -> None:
        self._mapping, self._table, self._slot, self._lsn = mapping, table, slot, lsn
        self._maker = ChangeMaker(mapping)
        self._connection = connect(dsn_file)
        cursor = self._connection.cursor()
        cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        cursor.execute("SET TRANSACTION SNAPSHOT %s", (name,))
        cursor.execute("SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')")
        self._time = f"{cursor.fetchone()[0]}Z"

    def close(self) -> None:
        self._connection.close()

    def pieces(self, client: Client | None) -> Iterator[Piece]:
        """Yield all rows; with a client, the deletes of keys that the table lacks as well."""
        count = 0
        for rows in self._rows():
            changes = [self._maker.row(row, self._lsn, self._time) for row in rows]
            count += len(rows)
            yield self._piece(changes, count)
        if client is not None:
            for keys in self._missing(client):
                deletes = self._maker.deletes(keys, self._time)
                yield self._piece(deletes, count)

    def _piece(self, changes: list[dict[str, str | None]], count: int) -> Piece:
        mark: Mark = {"phase": "snapshot", "slot": self._slot, "rows": count}
        piece = Piece.of(self._maker.chunk(changes), mark, "snapshot, ")
        # Records are not counted: the next try begins with the first row.
        return Piece(piece.table, piece.bad, mark, lambda record: mark)

    def _rows(self) -> Iterator[list[dict[str, str | None]]]:
        sources = list(
            dict.fromkeys(self._mapping.sources[column.name] for column in self._mapping.columns)
        )
        texts = ", ".join(f"{quoted_name(name)}::text" for name in sources)
        with self._connection.cursor(name="psoup_snapshot") as cursor:
            cursor.itersize = _CHUNK_ROWS
            cursor.execute(f"SELECT {texts} FROM {quoted(self._table)}")
            while rows := cursor.fetchmany(_CHUNK_ROWS):
                yield [dict(zip(sources, row, strict=True)) for row in rows]

    def _missing(self, client: Client) -> Iterator[list[dict[str, str]]]:
        """Yield keys of the stream that the table does not have, page by page."""
        for keys in current_keys(client, self._mapping):
            present = self._present(keys)
            if missing := [key for key in keys if tuple(key.values()) not in present]:
                yield missing

    def _present(self, keys: Sequence[dict[str, str]]) -> set[tuple[str, ...]]:
        names = ", ".join(f"{quoted_name(name)}::text" for name in self._mapping.key_sources)
        with self._connection.cursor() as cursor:
            cursor.execute(
                f"SELECT {names} FROM {quoted(self._table)} WHERE ({names}) IN %s",
                (tuple(tuple(key.values()) for key in keys),),
            )
            return set(cursor.fetchall())


def current_keys(client: Client, mapping: TableMapping) -> Iterator[list[dict[str, str]]]:
    """Yield the keys of a stream's current rows, as texts of PostgreSQL, page by page."""
    stream = mapping.stream
    names = ", ".join(f'"{name}"' for name in stream.key)
    with client.ask_stream(f"SELECT {names} FROM {stream.name} UNBOUNDED") as answer:
        page = list[dict[str, str]]()
        for batch in answer:
            for row in batch.to_pylist():
                page.append({name: _pg_text(value) for name, value in row.items()})
                if len(page) == _PAGE_KEYS:
                    yield page
                    page = []
        if page:
            yield page


def _pg_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if hasattr(value, "isoformat") and hasattr(value, "hour"):
        text: str = value.isoformat(sep=" ")
        # PostgreSQL writes the fewest digits: 09:00:00.25+00.
        head, _, zone = text.partition("+")
        head = head.rstrip("0") if "." in head else head
        return f"{head}+{zone[:2]}" if zone else head
    return str(value)


def quoted_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
