"""Edits of keys that were erased: their values leave the queue.

The store refuses a waiting edit of such a key. What was put aside before is not sent again, so the
store is asked: with deletes that expect a row which no stream has, it can only refuse, and says
whether a key was erased.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from client_sdk import _flows
from client_sdk._exceptions import PsoupError
from client_sdk._grpc.effects import Flow, Repeat
from client_sdk._session import Session
from client_sdk._wire.models import Stream
from client_sdk._wire.rows import deletes, required_columns, to_table
from client_sdk.copies._file import sqlite
from client_sdk.copies._file.file import CopyFile
from client_sdk.copies._file.home import Home, cached_stream, new_rows
from client_sdk.copies._file.records import seal, unseal
from client_sdk.copies._overlay import own_rows
from client_sdk.copies._queue import expected
from client_sdk.copies._queue.batches import ARROW, Piece, fill, rows_of
from client_sdk.copies._queue.expected import NOWHERE, Key, Seen, keys_of
from client_sdk.copies._queue.table import DOUBTFUL, REFUSED, Place
from psoup.v1 import psoup_pb2 as pb

ERASED = "ERASED"
# How often a process asks about what was put aside.
ASKED_MICROS = 3_600_000_000

_ASIDE = f"({REFUSED} OR {DOUBTFUL}) AND kind = '{ARROW}' AND row_count > 0"


def is_due(file: CopyFile, asked_at: int | None, now: int) -> bool:
    """Return True if something is aside that the store should be asked about."""
    if asked_at is not None and 0 <= now - asked_at < ASKED_MICROS:
        return False
    with file.reading() as connection:
        return (
            connection.execute(f"SELECT 1 FROM _psoup_queue WHERE {_ASIDE}").fetchone() is not None
        )


def asking(session: Session, file: CopyFile, home: Home) -> Flow[None]:
    """Ask the store about the keys that were put aside, and forget what was erased."""
    for name in _streams(file):
        with file.reading() as connection:
            stream = cached_stream(connection, name)
            keys = {} if stream is None else _keys_aside(connection, stream, name)
        while stream is not None and keys:
            place = yield from _erased_place(session, home, stream, list(keys.values()))
            if place is None:
                break
            key = list(keys)[place]
            del keys[key]
            with file.writing(durable=True) as connection:
                forget(connection, stream, name, key)


def _streams(file: CopyFile) -> list[str]:
    with file.reading() as connection:
        rows = connection.execute(f"SELECT DISTINCT stream FROM _psoup_queue WHERE {_ASIDE}")
        return [name for (name,) in rows.fetchall()]


def _keys_aside(
    connection: sqlite.Connection, stream: Stream, name: str
) -> dict[Key, dict[str, Any]]:
    """Return the keys of edits that were put aside, and what a delete of each has."""
    if not stream.key:
        return {}
    keys: dict[Key, dict[str, Any]] = {}
    names = sorted(required_columns(stream))
    for place in _places(connection, name):
        table = _table(connection, stream, place)
        if table is not None and {*names} <= {*table.column_names}:
            rows = table.select(names).to_pylist()
            keys |= dict(zip(keys_of(table, stream), rows, strict=True))
    return keys


def _erased_place(
    session: Session, home: Home, stream: Stream, rows: Sequence[dict[str, Any]]
) -> Flow[int | None]:
    """Return the place of a key that was erased; None if the store names none."""
    table = expected.with_ids(to_table(deletes(rows), stream), [NOWHERE] * len(rows))
    request = pb.PublishRequest(tenant=home.tenant, owner=home.owner, stream=stream.name)
    fill(request, Piece.of_table(table))
    try:
        yield from _flows.call(session, "Publish", request, Repeat.SAFE)
    except PsoupError as error:
        is_own_store = error.detail.store_id == home.store_id
        if is_own_store and error.reason == ERASED and 0 <= error.detail.row < len(rows):
            return error.detail.row
    return None


# ---- forgetting


def forget_row(connection: sqlite.Connection, place: Place, name: str, row: int) -> None:
    """Forget the values of the key of a row that was refused, in all that was put aside."""
    stream = cached_stream(connection, name)
    table = None if stream is None else _table(connection, stream, place)
    if stream is not None and table is not None and 0 <= row < table.num_rows:
        forget(connection, stream, name, keys_of(table, stream)[row])


def forget(connection: sqlite.Connection, stream: Stream, name: str, key: Key) -> None:
    """Remove the rows of a key from all that was put aside, with what they were based on. A piece
    stays without a row, so that the application learns of it."""
    for place in _places(connection, name):
        # Read one after the other: edits that were made from a removed row are changed, too.
        table = _table(connection, stream, place)
        if table is None:
            continue
        mask = [row_key != key for row_key in keys_of(table, stream)]
        if not all(mask):
            _cut(connection, name, place, mask)


def _places(connection: sqlite.Connection, name: str) -> list[Place]:
    return connection.execute(
        f"SELECT batch, piece FROM _psoup_queue WHERE {_ASIDE} AND stream = ? "
        "ORDER BY batch, piece",
        (name,),
    ).fetchall()


def _table(connection: sqlite.Connection, stream: Stream, place: Place) -> pa.Table | None:
    """Return the rows of a piece under the present names of their columns; None if they can't be
    read, or lack the key."""
    [content] = connection.execute(
        "SELECT kind, payload, row_count FROM _psoup_queue WHERE batch = ? AND piece = ?", place
    ).fetchall()
    try:
        table = rows_of(Piece(*content))
    except (ValueError, TypeError):
        return None
    names = {old: column.name for column in stream.columns for old in column.former}
    table = table.rename_columns([names.get(name, name) for name in table.column_names])
    return table if {*stream.key} <= {*table.column_names} else None


def _cut(connection: sqlite.Connection, name: str, place: Place, mask: list[bool]) -> None:
    """Keep the rows of a piece that a mask chooses. They get new ids, as rows that are queued
    again do."""
    where = "WHERE batch = ? AND piece = ?"
    *content, before, refused, doubtful, sealed = connection.execute(
        "SELECT kind, payload, row_count, first_row, refused, doubtful, seen FROM _psoup_queue "
        f"{where}",
        place,
    ).fetchone()
    table = rows_of(Piece(*content)).filter(pa.array(mask))
    piece, count = Piece.of_table(table), len(mask)
    places = {old: new for new, old in enumerate(_chosen(mask))}
    first_row = new_rows(connection, piece.row_count)
    seen = Seen.unsealed(sealed)
    if seen is not None:
        base = [seen.base[old] for old in places]
        seen = replace(seen, base=base, own=expected.own_ids(expected.ids_of(table)))
    connection.execute(
        "UPDATE _psoup_queue SET payload = ?, row_count = ?, checksum = ?, first_row = ?, "
        f"refused = ?, doubtful = ?, seen = ? {where}",
        (
            *(piece.payload, piece.row_count, piece.checksum(name), first_row),
            *(_why(refused, places), _why(doubtful, places)),
            *(None if seen is None else seen.sealed(), *place),
        ),
    )
    own_rows.remove(connection, before, count)
    own_rows.put(connection, name, piece, first_row)

    def moved(id_: int) -> int:
        return first_row + places[id_ - before] if id_ - before in places else NOWHERE

    expected.settle(connection, before, count, moved)


def _chosen(mask: Sequence[bool]) -> Iterator[int]:
    return (place for place, is_kept in enumerate(mask) if is_kept)


def _why(content: Any, places: dict[int, int]) -> str | None:
    """Return why a piece was put aside, without values of the rows that are gone."""
    why = unseal(content)
    if why is None:
        return None
    if why.get("row") in places:
        # A conflict of another key.
        return seal({**why, "row": places[why["row"]]})
    names = "behind", "publisher", "sequence"
    stays: dict[str, Any] = {name: why[name] for name in names if name in why}
    message = "keys of its rows were erased; those rows were removed"
    return seal({**stays, "reason": ERASED, "message": message, "at": time.time_ns() // 1000})
