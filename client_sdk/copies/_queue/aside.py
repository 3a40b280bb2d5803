"""What was put aside: pieces that the store refused, or that are doubtful."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from client_sdk.copies._file import sqlite
from client_sdk.copies._file.file import CopyFile
from client_sdk.copies._file.home import new_batch, new_rows
from client_sdk.copies._file.records import unseal
from client_sdk.copies._overlay import own_rows
from client_sdk.copies._queue import expected
from client_sdk.copies._queue.batches import ARROW, Doubtful, Piece, Rejected
from client_sdk.copies._queue.table import DOUBTFUL, FIELDS, REFUSED, Place


class PutAside:
    """The pieces that were put aside. Each method is one transaction; changes return a number of
    pieces. What was put aside behind them is queued again.
    """

    def __init__(self, file: CopyFile) -> None:
        self._file = file

    def rejected(self) -> list[Rejected]:
        return [Rejected.from_row(row) for row in self._rows(REFUSED)]

    def doubtful(self) -> list[Doubtful]:
        return [Doubtful.from_row(row) for row in self._rows(DOUBTFUL)]

    def requeue(self, batch: int | None) -> int:
        """Queue refused pieces again, at the end, in their order."""
        return self._queue_again(REFUSED, batch, "was refused")

    def resend(self, batch: int | None) -> int:
        """Queue doubtful pieces again, at the end, as a new batch with a new identity."""
        return self._queue_again(DOUBTFUL, batch, "was found doubtful")

    def discard(self, batch: int | None) -> int:
        """Delete all refused pieces, or those of one batch, doubtful or refused."""
        where = REFUSED if batch is None else f"({REFUSED} OR {DOUBTFUL})"
        with self._file.writing() as connection:
            places = _places(connection, where, batch, "was put aside")
            for place in places:
                delete_piece(connection, place)
            requeue_behind(connection, places)
        return len(places)

    def _rows(self, where: str) -> list[Sequence[Any]]:
        with self._file.reading() as connection:
            return connection.execute(
                f"SELECT {FIELDS} FROM _psoup_queue WHERE {where} ORDER BY batch, piece"
            ).fetchall()

    def _queue_again(self, where: str, batch: int | None, what: str) -> int:
        with self._file.writing(durable=True) as connection:
            places = _places(connection, where, batch, what)
            requeue(connection, places)
            requeue_behind(connection, places)
        return len(places)


def delete_piece(connection: sqlite.Connection, place: Place) -> None:
    """Delete a piece that was put aside, which must be there.

    Edits that were made from its rows expect a row that will never be there, and become conflicts.
    """
    [(first_row, count)] = connection.execute(
        "DELETE FROM _psoup_queue WHERE batch = ? AND piece = ? RETURNING first_row, row_count",
        place,
    ).fetchall()
    own_rows.remove(connection, first_row, count)
    expected.settle(connection, first_row, count, lambda _: expected.NOWHERE)


def requeue(connection: sqlite.Connection, places: Sequence[Place]) -> None:
    """Queue pieces that were put aside again, at the end, in their order."""
    # New batch numbers by the old ones, so that the pieces of a batch stay together.
    numbers: dict[int, int] = {}
    for old, number in places:
        if old not in numbers:
            numbers[old] = new_batch(connection)
        _requeue(connection, (old, number), numbers[old])


def requeue_behind(connection: sqlite.Connection, places: Sequence[Place]) -> None:
    """Queue again what was put aside because it was made from edits of these places."""
    batches = {batch for batch, _ in places}
    rows = connection.execute(
        f"SELECT batch, piece, refused FROM _psoup_queue WHERE {REFUSED} ORDER BY batch, piece"
    ).fetchall()
    behind = [
        (batch, piece)
        for batch, piece, refused in rows
        if (unseal(refused) or {}).get("behind") in batches
    ]
    requeue(connection, behind)


def _requeue(connection: sqlite.Connection, place: Place, batch: int) -> None:
    """Move a piece that was put aside to another batch, at the end, with new ids for its rows."""
    select = "SELECT stream, kind, payload, row_count, first_row FROM _psoup_queue"
    where = "WHERE batch = ? AND piece = ?"
    stream, *content, before = connection.execute(f"{select} {where}", place).fetchone()
    piece = Piece(*content)
    if piece.kind == ARROW and not piece.row_count:
        # Its keys were erased.
        delete_piece(connection, place)
        return
    first_row = new_rows(connection, piece.row_count)
    connection.execute(
        "UPDATE _psoup_queue SET batch = ?, first_row = ?, refused = NULL, doubtful = NULL, "
        f"tried = NULL {where}",
        (batch, first_row, *place),
    )
    own_rows.remove(connection, before, piece.row_count)
    own_rows.put(connection, stream, piece, first_row)
    expected.settle(connection, before, piece.row_count, lambda id_: id_ - before + first_row)


def _places(connection: sqlite.Connection, where: str, batch: int | None, what: str) -> list[Place]:
    """Return batch and number of pieces. Raises ValueError for a batch that is not among them."""
    rows = connection.execute(
        f"SELECT batch, piece FROM _psoup_queue WHERE {where} ORDER BY batch, piece"
    ).fetchall()
    places = [row for row in rows if batch is None or row[0] == batch]
    if batch is not None and not places:
        numbers = ", ".join(map(str, dict.fromkeys(batch for batch, _ in rows))) or "none"
        raise ValueError(f"no batch {batch} {what}; those that were: {numbers}")
    return places
