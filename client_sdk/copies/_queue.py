"""What was published while offline, waiting in the file to be sent.

Batches have numbers that grow in the order of queuing; one that was cut has several pieces. The
first that waits is sent with the publisher's next sequence, and only when it has been acknowledged
the next one follows. So the sequence needs no place in the queue: it belongs to whatever comes
first, and a batch that is refused leaves no gap.

    publisher       a random name, made once, and the next sequence
    queue           waiting, or refused and put aside

Every method is one transaction, and says which batch of which sequence it is about: where another
process was faster it does nothing.
"""

from __future__ import annotations

import hashlib
import secrets
import sqlite3
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from client_sdk._exceptions import LimitExceeded, PsoupError
from client_sdk.copies._batches import Piece
from client_sdk.copies._file import CopyFile
from client_sdk.copies._queued import Queued, QueuedStream, Rejected
from client_sdk.copies._sealed import seal, unseal

QUEUE_BYTES = 256 << 20

_FIELDS = "batch, piece, stream, kind, payload, row_count, checksum, queued_at, tried, refused"
_WAITING = "refused IS NULL"


@dataclass(frozen=True, slots=True)
class Waiting:
    """The first that waits, and the identity it is sent with.

    `tried`: it may have been sent before with this identity. Not `whole`: it is not what was
    queued.
    """

    batch: int
    number: int
    stream: str
    piece: Piece
    whole: bool
    publisher: str
    sequence: int
    tried: bool


class Queue:
    def __init__(self, file: CopyFile, limit: int = QUEUE_BYTES) -> None:
        """`limit` is in bytes, of what waits and what was put aside."""
        self._file = file
        self._limit = limit

    # ---- queuing

    def put(self, stream: str, pieces: Sequence[Piece]) -> int | None:
        """All of them or none, on the disk when this returns. The batch's number.

        Raises LimitExceeded where the queue is full.
        """
        if not pieces:
            return None
        with self._file.writing(durable=True) as connection:
            self._check_room(connection, pieces)
            _, _, batch = _publisher(connection)
            connection.execute("UPDATE _psoup_publisher SET next_batch = next_batch + 1")
            _insert(connection, batch, stream, pieces, time.time_ns() // 1000)
        return batch

    def _check_room(self, connection: sqlite3.Connection, pieces: Sequence[Piece]) -> None:
        sums = connection.execute("SELECT coalesce(sum(length(payload)), 0) FROM _psoup_queue")
        held, more = int(sums.fetchone()[0]), sum(len(piece.payload) for piece in pieces)
        if held + more > self._limit:
            raise LimitExceeded(
                f"the queue holds {held:,} bytes and may hold {self._limit:,}; this batch takes "
                f"{more:,} more. Send it, discard what was refused, or open the file with a "
                "larger queue_bytes"
            )

    # ---- sending

    def first(self) -> Waiting | None:
        """The first that waits. Noted as tried: what is found out later may depend on it."""
        with self._file.writing() as connection:
            where = f"WHERE {_WAITING} ORDER BY batch, piece LIMIT 1"
            row = connection.execute(f"SELECT {_FIELDS} FROM _psoup_queue {where}").fetchone()
            if row is None:
                return None
            batch, number, stream, kind, payload, rows, checksum, _, tried, _ = row
            name, sequence, _ = _publisher(connection)
            mark = f"{name} {sequence}"
            connection.execute(
                "UPDATE _psoup_queue SET tried = ? WHERE batch = ? AND piece = ?",
                (mark, batch, number),
            )
            piece = Piece(kind, payload, rows)
            whole = checksum == _checksum(stream, piece)
            return Waiting(batch, number, stream, piece, whole, name, sequence, tried == mark)

    def acknowledge(self, sent: Waiting) -> None:
        """It is in the store: it leaves the queue, and the next has the next sequence.

        On the disk before the next is sent: the store remembers only its last batch for certain.
        """
        with self._file.writing(durable=True) as connection:
            _delete(connection, sent)
            connection.execute(
                "UPDATE _psoup_publisher SET next_sequence = ? "
                "WHERE name = ? AND next_sequence = ?",
                (sent.sequence + 1, sent.publisher, sent.sequence),
            )

    def reject(self, sent: Waiting, error: PsoupError) -> list[Rejected]:
        """It is put aside; its sequence goes to the next. Empty where it is gone already."""
        refused = {"reason": error.reason, "message": str(error), "at": time.time_ns() // 1000}
        with self._file.writing(durable=True) as connection:
            rows = connection.execute(
                "UPDATE _psoup_queue SET refused = ? "
                f"WHERE batch = ? AND piece = ? AND {_WAITING} RETURNING {_FIELDS}",
                (seal(refused), sent.batch, sent.number),
            ).fetchall()
        return [_rejected(row) for row in rows]

    def rename(self, sent: Waiting) -> bool:
        """Goes on under another name, where the store knows this one from somebody else.

        False where there is nothing to be done: the batch is gone, or the name is another already.
        """
        with self._file.writing(durable=True) as connection:
            if not _waits(connection, sent):
                return False
            changed = connection.execute(
                "UPDATE _psoup_publisher SET name = ?, next_sequence = 1 "
                "WHERE name = ? AND next_sequence = ?",
                (_random_name(), sent.publisher, sent.sequence),
            )
            return changed.rowcount > 0

    def replace(self, unchecked: Waiting, pieces: Sequence[Piece]) -> None:
        """A batch that has been checked, in its place."""
        with self._file.writing(durable=True) as connection:
            if not _waits(connection, unchecked):
                return
            queued_at = _delete(connection, unchecked)
            _insert(connection, unchecked.batch, unchecked.stream, pieces, queued_at)

    # ---- looking

    def state(self) -> Queued:
        with self._file.reading() as connection:
            rows = connection.execute(
                "SELECT stream, count(*), sum(row_count), sum(length(payload)), min(queued_at) "
                f"FROM _psoup_queue WHERE {_WAITING} GROUP BY stream ORDER BY stream"
            ).fetchall()
            aside = connection.execute(
                "SELECT count(*) FROM _psoup_queue WHERE refused IS NOT NULL"
            ).fetchone()[0]
        return Queued({row[0]: QueuedStream(*row[1:]) for row in rows}, aside)

    def rejected(self) -> list[Rejected]:
        with self._file.reading() as connection:
            rows = connection.execute(
                f"SELECT {_FIELDS} FROM _psoup_queue WHERE refused IS NOT NULL "
                "ORDER BY batch, piece"
            ).fetchall()
        return [_rejected(row) for row in rows]

    def requeue(self, batch: int | None) -> int:
        """What was put aside waits again, at the end, in its order. How many pieces."""
        with self._file.writing(durable=True) as connection:
            found = _aside(connection, batch)
            numbers: dict[int, int] = {}
            for old, piece in found:
                if old not in numbers:
                    numbers[old] = _publisher(connection)[2]
                    connection.execute("UPDATE _psoup_publisher SET next_batch = next_batch + 1")
                connection.execute(
                    "UPDATE _psoup_queue SET batch = ?, refused = NULL, tried = NULL "
                    "WHERE batch = ? AND piece = ?",
                    (numbers[old], old, piece),
                )
        return len(found)

    def discard(self, batch: int | None) -> int:
        """What was put aside is gone for good. How many pieces."""
        with self._file.writing() as connection:
            found = _aside(connection, batch)
            for one in found:
                connection.execute("DELETE FROM _psoup_queue WHERE batch = ? AND piece = ?", one)
        return len(found)


def _publisher(connection: sqlite3.Connection) -> tuple[str, int, int]:
    """Its name, its next sequence, the next batch's number; made where there is none."""
    select = "SELECT name, next_sequence, next_batch FROM _psoup_publisher"
    row = connection.execute(select).fetchone()
    if row is None:
        row = (_random_name(), 1, 1)
        connection.execute("INSERT INTO _psoup_publisher VALUES (?, ?, ?)", row)
    name, sequence, batch = row
    return name, sequence, batch


def _random_name() -> str:
    return f"copies-{secrets.token_hex(12)}"


def _insert(
    connection: sqlite3.Connection,
    batch: int,
    stream: str,
    pieces: Sequence[Piece],
    queued_at: int,
) -> None:
    connection.executemany(
        f"INSERT INTO _psoup_queue ({_FIELDS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL)",
        _rows(batch, stream, pieces, queued_at),
    )


def _rows(
    batch: int, stream: str, pieces: Sequence[Piece], queued_at: int
) -> Iterator[tuple[Any, ...]]:
    for number, piece in enumerate(pieces):
        checksum = _checksum(stream, piece)
        count = piece.row_count
        yield batch, number, stream, piece.kind, piece.payload, count, checksum, queued_at


def _checksum(stream: str, piece: Piece) -> str:
    """A flipped bit must not be published."""
    found = hashlib.blake2b(f"{stream} {piece.kind} {piece.row_count} ".encode(), digest_size=16)
    found.update(piece.payload if isinstance(piece.payload, bytes) else b"")
    return found.hexdigest()


def _waits(connection: sqlite3.Connection, sent: Waiting) -> bool:
    rows = connection.execute(
        f"SELECT 1 FROM _psoup_queue WHERE batch = ? AND piece = ? AND kind = ? AND {_WAITING}",
        (sent.batch, sent.number, sent.piece.kind),
    )
    return rows.fetchone() is not None


def _delete(connection: sqlite3.Connection, sent: Waiting) -> int:
    """When it was queued; 0 where it is gone already."""
    rows = connection.execute(
        "DELETE FROM _psoup_queue WHERE batch = ? AND piece = ? RETURNING queued_at",
        (sent.batch, sent.number),
    ).fetchall()
    return rows[0][0] if rows else 0


def _aside(connection: sqlite3.Connection, batch: int | None) -> list[tuple[int, int]]:
    """Raises ValueError where a batch is named that was not put aside."""
    rows = connection.execute(
        "SELECT batch, piece FROM _psoup_queue WHERE refused IS NOT NULL ORDER BY batch, piece"
    ).fetchall()
    found = [row for row in rows if batch is None or row[0] == batch]
    if batch is not None and not found:
        raise ValueError(f"no batch {batch} was refused; those that were: {_numbers(rows)}")
    return found


def _numbers(rows: Sequence[tuple[int, int]]) -> str:
    return ", ".join(map(str, dict.fromkeys(batch for batch, _ in rows))) or "none"


def _rejected(row: Sequence[Any]) -> Rejected:
    batch, number, stream, kind, payload, count, _, queued_at, _, refused = row
    why = unseal(refused) or {"reason": "", "message": "the reason can't be read any more"}
    return Rejected(
        batch,
        number,
        stream,
        count,
        queued_at,
        why["reason"],
        why["message"],
        Piece(kind, payload, count),
    )
