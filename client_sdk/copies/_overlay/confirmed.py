"""Acknowledged pieces of the queue, and when copies no longer need them.

A piece that the store has taken stays in the queue until the copies that show own edits have it
from the store, so that its rows never vanish in between. Clients can't compare positions. But
pieces are sent in the order of their rows, each after the one before was acknowledged. So a call
that asks for the position of the last acknowledged piece has all of them in its answers, and its
`end` covers the rows up to that piece's.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from client_sdk.copies._file import sqlite
from client_sdk.copies._file.catalog import Record
from client_sdk.copies._overlay import own_rows


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The last piece that the store has taken: the id of its first row, and its position.

    The position is None if the store does not know it any more, as after a restore.
    """

    first_row: int
    position: bytes | None


def acknowledge(
    connection: sqlite.Connection,
    place: tuple[int, int],
    position: bytes,
    first_row_id: int,
    at: int,
) -> None:
    """Note that the store has taken a piece, and delete it if no copy shows it.

    Do nothing if it is gone already.
    """
    connection.execute(
        "UPDATE _psoup_queue SET acknowledged_at = ?, position = ?, first_row_id = ? "
        "WHERE batch = ? AND piece = ? AND acknowledged_at IS NULL",
        (at, position, first_row_id, *place),
    )
    sweep(connection)


def newest(connection: sqlite.Connection) -> Acknowledged | None:
    """Return the last piece that the store has taken and a copy may still lack."""
    row = connection.execute(
        "SELECT first_row, position FROM _psoup_queue WHERE acknowledged_at IS NOT NULL "
        "ORDER BY first_row DESC LIMIT 1"
    ).fetchone()
    return None if row is None else Acknowledged(*row)


def real_ids(connection: sqlite.Connection, row_ids: Sequence[int]) -> dict[int, int]:
    """Return the ids that the store gave own rows, for those of which the file knows them."""
    pieces = connection.execute(
        "SELECT first_row, row_count, first_row_id FROM _psoup_queue "
        "WHERE acknowledged_at IS NOT NULL AND first_row_id >= 0 ORDER BY first_row"
    ).fetchall()
    starts = [first for first, _, _ in pieces]
    ids = {}
    for row_id in row_ids:
        place = bisect_right(starts, row_id) - 1
        first, count, first_id = pieces[place] if place >= 0 else (row_id, 0, 0)
        if row_id < first + count:
            ids[row_id] = first_id + row_id - first
    return ids


def void(connection: sqlite.Connection, position: bytes) -> bool:
    """Note that the store does not know a position: it was restored, and there is nothing to wait
    for. Return whether a piece had it.
    """
    cursor = connection.execute(
        "UPDATE _psoup_queue SET position = NULL "
        "WHERE acknowledged_at IS NOT NULL AND position = ?",
        (position,),
    )
    return cursor.rowcount > 0


def sweep(connection: sqlite.Connection) -> None:
    """Delete the acknowledged pieces that no copy needs any more."""
    pieces = connection.execute(
        "SELECT batch, piece, stream, first_row, row_count FROM _psoup_queue "
        "WHERE acknowledged_at IS NOT NULL ORDER BY first_row"
    ).fetchall()
    readers = {
        stream: own_rows.showing(connection, stream) for stream in {row[2] for row in pieces}
    }
    for batch, number, stream, first_row, count in pieces:
        if not any(_lacks(copy.record, first_row) for copy in readers[stream]):
            connection.execute(
                "DELETE FROM _psoup_queue WHERE batch = ? AND piece = ?", (batch, number)
            )
            own_rows.remove(connection, first_row, count)


def is_covered(record: Record, first_row: int) -> bool:
    """Return whether the visible answer has an acknowledged piece from the store."""
    covered = None if record.version is None else record.version.covered
    return covered is not None and first_row <= covered


def _lacks(record: Record, first_row: int) -> bool:
    # An evicted copy shows nothing until it is received again, whole.
    return record.use.evicted_at is None and not is_covered(record, first_row)
