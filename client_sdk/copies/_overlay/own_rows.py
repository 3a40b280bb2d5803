"""Own rows: what is queued for the stream of a copy, as the copy's query evaluates it.

`_psoup_overlay_7` has those of copy 7. Rows are evaluated when they are queued, or when the text of
the copy is learnt. The ids are those that the queue gave them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from client_sdk._wire.rows import has_patches
from client_sdk.copies._file import catalog, sqlite, tables
from client_sdk.copies._file.catalog import Record
from client_sdk.copies._file.home import cached_stream
from client_sdk.copies._file.records import Declaration, unseal
from client_sdk.copies._query.base_rows import content_of, query_in
from client_sdk.copies._queue.batches import ARROW, Piece, rows_of

if TYPE_CHECKING:
    from client_sdk.copies._overlay.evaluate import OwnQuery

_HEAD = ("ts", "is_delete", "is_match", "sort_key", "key")


@dataclass(frozen=True, slots=True)
class OwnRow:
    """A row that was queued, evaluated. `ts` is None if it is the stamp of arrival.

    It `is_match` if it satisfies WHERE, and is no delete. `key` is the digest of its stream key. A
    patch has no `sort_key`, and no values, before it is evaluated over the row beneath it. WHERE
    shows it while NOW is in `[visible_from, visible_until)`; None is no limit.
    """

    row_id: int
    ts: int | None
    is_delete: bool
    is_match: bool
    sort_key: bytes | None
    key: int | None
    values: Sequence[Any]
    visible_from: int | None = None
    visible_until: int | None = None

    @property
    def is_patch(self) -> bool:
        return self.sort_key is None


@dataclass(frozen=True, slots=True)
class Windowing:
    """What reading has to know of a window: a row enters it `lag` microseconds after its ts.

    If it counts, it holds the newest `rows`, of each partition if there are `partition_places`.
    """

    lag: int
    rows: int | None
    partition_places: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Shown:
    """A copy that shows own rows of a stream. `content` is its query, sealed."""

    record: Record
    content: str

    @property
    def query(self) -> OwnQuery:
        return _own_query(self.content, self.record.declaration.base_rows)

    @property
    def stream(self) -> str:
        content = unseal(self.content)
        assert content is not None
        name: str = content["stream"]["name"]
        return name


# Reads would otherwise parse and bind the text each time.
@lru_cache(maxsize=256)
def _own_query(content: str, base_rows: bool) -> OwnQuery:
    # Imported here, because the rest of the SDK works without numpy and sqlglot.
    from client_sdk.copies._overlay.evaluate import own_query

    return own_query(*query_in(content), base_rows)


def shown_copy(connection: sqlite.Connection, record: Record) -> Shown | None:
    """Return a copy that shows own rows; None if it shows none, or has not learnt its query."""
    if not record.declaration.edits:
        return None
    content = content_of(connection, record.declaration)
    has_table = tables.exists(connection, tables.overlay_table(record.copy_id))
    return Shown(record, content) if content is not None and has_table else None


def showing(connection: sqlite.Connection, stream: str) -> list[Shown]:
    """Return the copies that show own rows of a stream."""
    name = stream.lower()
    ids = connection.execute("SELECT copy_id FROM _psoup_computed ORDER BY copy_id").fetchall()
    records = [catalog.by_id(connection, copy_id) for (copy_id,) in ids]
    copies = [shown_copy(connection, record) for record in records if record is not None]
    return [copy for copy in copies if copy is not None and copy.stream == name]


# ---- writing


def put(connection: sqlite.Connection, stream: str, piece: Piece, first_row: int) -> None:
    """Evaluate the rows of a piece that was queued, for each copy that shows them."""
    if piece.kind == ARROW:
        for copy in showing(connection, stream):
            _put(connection, copy, piece, first_row)


def rebuild(connection: sqlite.Connection, declaration: Declaration) -> None:
    """Evaluate all that is queued for the stream of a copy, whose query has just been learnt."""
    drop(connection, declaration.copy_id)
    content = content_of(connection, declaration)
    record = catalog.by_id(connection, declaration.copy_id)
    if content is None or record is None:
        return
    copy = Shown(record, content)
    table, names = tables.overlay_table(record.copy_id), tables.value_names(copy.query.columns)
    connection.execute(
        f"CREATE TABLE {table} (row_id INTEGER PRIMARY KEY, {', '.join((*_HEAD, *names))})"
    )
    pieces = connection.execute(
        "SELECT kind, payload, row_count, first_row FROM _psoup_queue WHERE lower(stream) = ?",
        (copy.stream,),
    ).fetchall()
    for *fields, first_row in pieces:
        piece = Piece(*fields)
        if piece.kind == ARROW:
            _put(connection, copy, piece, first_row)


def _put(connection: sqlite.Connection, copy: Shown, piece: Piece, first_row: int) -> None:
    rows = evaluated(connection, copy.query, piece, first_row, 0)
    table = tables.overlay_table(copy.record.copy_id)
    places = ", ".join("?" * (1 + len(_HEAD) + len(copy.query.columns)))
    connection.executemany(f"INSERT OR REPLACE INTO {table} VALUES ({places})", map(_fields, rows))


def evaluated(
    connection: sqlite.Connection, query: OwnQuery, piece: Piece, first_row: int, arrival: int
) -> list[OwnRow]:
    """Return the rows of a piece, evaluated as if they came at `arrival`.

    There are none if the piece is damaged, or has other columns than the stream had when the copy
    learnt it: its rows are not shown.
    """
    try:
        return query.evaluated(named_rows(connection, query, piece), first_row, arrival)
    except (KeyError, ValueError):
        return []


def named_rows(connection: sqlite.Connection, query: OwnQuery, piece: Piece) -> pa.Table:
    """Return the rows of a piece with the names that the query of a copy has for their columns.
    Columns that were dropped since are NULL: the query does not read them."""
    table, schema = rows_of(piece), query.schema
    stream = cached_stream(connection, schema.name)
    if stream is None:
        return table
    names, present = {}, set()
    for column in stream.columns:
        labels = {column.name, *column.former}
        for declared in schema.columns:
            if declared.name in labels:
                names.update(dict.fromkeys(labels, declared.name))
                present.add(declared.name)
    absent = set() if has_patches(table) else {*stream.dropped} - present
    table = table.rename_columns([names.get(name, name) for name in table.column_names])
    for declared in schema.columns:
        if declared.name in absent - {*table.column_names}:
            nulls = pa.nulls(table.num_rows, declared.type.arrow)
            table = table.append_column(declared.name, nulls)
    return table


def _fields(row: OwnRow) -> tuple[Any, ...]:
    head = row.row_id, row.ts, row.is_delete, row.is_match, row.sort_key, row.key
    return (*head, *row.values)


def remove(connection: sqlite.Connection, first_row: int, count: int) -> None:
    """Remove rows that left the queue from all copies."""
    names = connection.execute("SELECT name FROM sqlite_master WHERE name GLOB '_psoup_overlay_*'")
    for (table,) in names.fetchall():
        connection.execute(
            f"DELETE FROM {table} WHERE row_id >= ? AND row_id < ?", (first_row, first_row + count)
        )


def drop(connection: sqlite.Connection, copy_id: int) -> None:
    """Forget the own rows of a copy. They stay in the queue."""
    connection.execute(f"DROP TABLE IF EXISTS {tables.overlay_table(copy_id)}")


# ---- reading


def read(connection: sqlite.Connection, copy: Shown) -> list[OwnRow]:
    """Return all own rows of a copy, in the order of queuing."""
    table = tables.overlay_table(copy.record.copy_id)
    rows = tables.read(connection, f"SELECT * FROM {table} ORDER BY row_id")
    return [
        OwnRow(row_id, ts, bool(is_delete), bool(is_match), sort_key, key, values)
        for row_id, ts, is_delete, is_match, sort_key, key, *values in rows
    ]
