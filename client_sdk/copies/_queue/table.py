"""The table of the queue: how pieces are inserted, replaced and put aside.

The functions take the connection of a transaction of the caller.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from client_sdk.copies._file import sqlite
from client_sdk.copies._file.home import new_batch, new_rows
from client_sdk.copies._file.records import seal
from client_sdk.copies._overlay import own_rows
from client_sdk.copies._queue.batches import Piece

FIELDS = (
    "batch, piece, stream, kind, payload, row_count, checksum, queued_at, tried, refused, doubtful"
)
WAITING = "refused IS NULL AND doubtful IS NULL AND acknowledged_at IS NULL"
REFUSED = "refused IS NOT NULL"
DOUBTFUL = "doubtful IS NOT NULL"
Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Waiting:
    """The first piece that waits, and the identity it is sent with.

    `tried` is the mark of the identity with which it may have been sent before, or None. It is not
    `whole` if it was damaged in the file.
    """

    batch: int
    number: int
    stream: str
    piece: Piece
    checksum: str
    publisher: str
    sequence: int
    tried: str | None

    @property
    def tried_otherwise(self) -> bool:
        """True if it may have been sent with another identity than the present one."""
        return self.tried is not None and self.tried != self.mark

    @property
    def whole(self) -> bool:
        return self.checksum == self.piece.checksum(self.stream)

    @property
    def mark(self) -> str:
        return f"{self.publisher} {self.sequence}"


@dataclass(frozen=True, slots=True)
class Origin:
    """When rows were queued, the id of the first of them, and the rows that they were based on."""

    queued_at: int
    first_row: int
    seen: str | None = None


def insert_batch(
    connection: sqlite.Connection,
    stream: str,
    pieces: Sequence[Piece],
    seen: str | None = None,
) -> int:
    """Queue pieces at the end, and return the number of the batch."""
    batch = new_batch(connection)
    first_row = new_rows(connection, sum(piece.row_count for piece in pieces))
    origin = Origin(time.time_ns() // 1000, first_row, seen)
    insert(connection, (batch, 0), stream, pieces, origin)
    return batch


def insert(
    connection: sqlite.Connection,
    place: tuple[int, int],
    stream: str,
    pieces: Sequence[Piece],
    origin: Origin,
    *,
    evaluate: bool = True,
) -> None:
    connection.executemany(
        f"INSERT INTO _psoup_queue ({FIELDS}, first_row, seen) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL, NULL, ?, ?)",
        _rows(place, stream, pieces, origin),
    )
    if evaluate:
        first_row = origin.first_row
        for piece in pieces:
            own_rows.put(connection, stream, piece, first_row)
            first_row += piece.row_count


def _rows(
    place: tuple[int, int], stream: str, pieces: Sequence[Piece], origin: Origin
) -> Iterator[tuple[Any, ...]]:
    (batch, first), first_row = place, origin.first_row
    for number, piece in enumerate(pieces, first):
        checksum, count = piece.checksum(stream), piece.row_count
        content = stream, piece.kind, piece.payload, count, checksum
        yield batch, number, *content, origin.queued_at, first_row, origin.seen
        first_row += count


def shift(connection: sqlite.Connection, before: Waiting, by: int) -> None:
    """Make room behind a piece, through negative numbers, since each number exists once."""
    connection.execute(
        "UPDATE _psoup_queue SET piece = -(piece + ?) WHERE batch = ? AND piece > ?",
        (by, before.batch, before.number),
    )
    connection.execute(
        "UPDATE _psoup_queue SET piece = -piece WHERE batch = ? AND piece < 0", (before.batch,)
    )


def waits(connection: sqlite.Connection, sent: Waiting) -> bool:
    """Return whether exactly that piece still waits."""
    rows = connection.execute(
        f"SELECT 1 FROM _psoup_queue WHERE batch = ? AND piece = ? AND checksum = ? AND {WAITING}",
        (sent.batch, sent.number, sent.checksum),
    )
    return rows.fetchone() is not None


def unmark(connection: sqlite.Connection, sent: Waiting) -> None:
    """Note that a piece was not taken with the identity it was sent with."""
    connection.execute(
        "UPDATE _psoup_queue SET tried = NULL WHERE batch = ? AND piece = ?",
        (sent.batch, sent.number),
    )


def was_tried(connection: sqlite.Connection, waiting: Waiting) -> bool:
    rows = connection.execute(
        "SELECT tried FROM _psoup_queue WHERE batch = ? AND piece = ?",
        (waiting.batch, waiting.number),
    )
    return bool(rows.fetchone()[0] == waiting.mark)


def delete(connection: sqlite.Connection, sent: Waiting) -> Origin:
    """Delete a piece, which must be there, and return where its rows came from."""
    rows = connection.execute(
        "DELETE FROM _psoup_queue WHERE batch = ? AND piece = ? "
        "RETURNING queued_at, first_row, seen",
        (sent.batch, sent.number),
    ).fetchall()
    return Origin(*rows[0])


def piece_at(connection: sqlite.Connection, place: Place) -> list[Sequence[Any]]:
    """Return the row of a piece; nothing if there is none."""
    return connection.execute(
        f"SELECT {FIELDS} FROM _psoup_queue WHERE batch = ? AND piece = ?", place
    ).fetchall()


def put_aside(
    connection: sqlite.Connection,
    column: Literal["refused", "doubtful"],
    batch: int,
    piece: int,
    why: Mapping[str, Any],
) -> list[Sequence[Any]]:
    """Put a piece aside, and return its row as it is then; nothing if it does not wait any more."""
    return connection.execute(
        f"UPDATE _psoup_queue SET {column} = ? "
        f"WHERE batch = ? AND piece = ? AND {WAITING} RETURNING {FIELDS}",
        (seal(why), batch, piece),
    ).fetchall()
