"""The queue: batches published offline, which wait in the file to be sent or for a decision.

Batches have numbers that grow in the order of queuing; one that was cut has several pieces. The
first that waits is sent with the publisher's next sequence, and the next one only when it has been
acknowledged. So the sequence is not stored in the queue: it belongs to the first batch, and a batch
that is refused leaves no gap. Rows have negative ids, which ascend in the order of queuing.

A batch is put aside if the store refuses it for good, or if it is doubtful: the store says that its
sequence was taken, but no longer knows by which rows. After a file was copied, or came from a
back-up, another batch may have had that number. So a doubtful batch is neither sent nor dropped.

A piece that the store has taken waits no more. It stays in the table, as acknowledged, until every
copy that shows own edits has it from the store (`_overlay.confirmed`).

Every method is one transaction, and names the batch and sequence it is about: if another process
was faster it does nothing.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from client_sdk._exceptions import ErrorDetail, LimitExceeded, PsoupError, RowConflict
from client_sdk._wire.models import Stream
from client_sdk.copies._file.file import CopyFile
from client_sdk.copies._file.home import (
    cached_stream,
    identity,
    identity_for,
    new_batch,
    new_rows,
    take_new_name,
    use_up,
)
from client_sdk.copies._file.records import seal, unseal
from client_sdk.copies._overlay import confirmed, own_rows
from client_sdk.copies._queue import expected
from client_sdk.copies._queue.batches import (
    ARROW,
    Doubtful,
    Piece,
    Queued,
    QueuedStream,
    Rejected,
    Room,
    encode_rows,
    require_room,
    rows_of,
)

QUEUE_BYTES = 256 << 20
# The reason of an edit that was put aside because it was made from one that was.
BEHIND = "BEHIND"


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


class Queue:
    """The batches of a file that wait to be sent."""

    def __init__(self, file: CopyFile, limit: int = QUEUE_BYTES) -> None:
        """Open the queue of a file. `limit` is in bytes, of what waits and what was put aside."""
        self._file = file
        self._limit = limit

    # ---- queuing

    def put(self, stream: str, pieces: Sequence[Piece]) -> int | None:
        """Queue all pieces or none, and return the number of the batch. It is on the disk then.

        Raises LimitExceeded if the queue is full.
        """
        if not pieces:
            return None
        with self._file.writing(durable=True) as connection:
            self._check_room(connection, pieces)
            batch = insert_batch(connection, stream, pieces)
        return batch

    def put_as_seen(self, stream: Stream, table: pa.Table, room: Room) -> int | None:
        """Queue edits that expect the rows which the copies show now, and return the number of the
        batch.

        Raises ValueError if no copy shows rows of the stream, and LimitExceeded.
        """
        if not table.num_rows:
            return None
        # In one transaction: what was shown must not be acknowledged in between.
        with self._file.writing(durable=True) as connection:
            table, seen = expected.as_seen(connection, stream, table)
            pieces = [Piece.of_table(table)]
            require_room(pieces, room)
            self._check_room(connection, pieces)
            batch = insert_batch(connection, stream.name, pieces, seen.sealed())
        return batch

    def _check_room(self, connection: sqlite3.Connection, pieces: Sequence[Piece]) -> None:
        sums = connection.execute(
            "SELECT coalesce(sum(length(payload)), 0) FROM _psoup_queue "
            "WHERE acknowledged_at IS NULL"
        )
        used, more = int(sums.fetchone()[0]), sum(len(piece.payload) for piece in pieces)
        if used + more > self._limit:
            raise LimitExceeded(
                f"the queue holds {used:,} bytes and may hold {self._limit:,}; this batch takes "
                f"{more:,} more. Send it, discard what was refused, or open the file with a "
                "larger queue_bytes"
            )

    def state(self) -> Queued:
        with self._file.reading() as connection:
            rows = connection.execute(
                "SELECT stream, count(*), sum(row_count), sum(length(payload)), min(queued_at) "
                f"FROM _psoup_queue WHERE {WAITING} GROUP BY stream ORDER BY stream"
            ).fetchall()
            aside = connection.execute(
                f"SELECT coalesce(sum({REFUSED}), 0), coalesce(sum({DOUBTFUL}), 0) "
                "FROM _psoup_queue"
            ).fetchone()
        return Queued({row[0]: QueuedStream(*row[1:]) for row in rows}, *aside)

    # ---- sending

    def first(self) -> Waiting | None:
        """Return the first piece that waits."""
        # A write transaction, since the identity may have to be created or replaced.
        with self._file.writing() as connection:
            where = f"WHERE {WAITING} ORDER BY batch, piece LIMIT 1"
            row = connection.execute(f"SELECT {FIELDS} FROM _psoup_queue {where}").fetchone()
            if row is None:
                return None
            batch, number, stream, kind, payload, rows, checksum, _, tried, _, _ = row
            publisher = identity_for(connection, batch)
        piece, identity_ = Piece(kind, payload, rows), (publisher.name, publisher.next_sequence)
        return Waiting(batch, number, stream, piece, checksum, *identity_, tried)

    def trying(self, waiting: Waiting) -> bool:
        """Note that a piece is sent now. Return False if it must not be, because another process
        was faster.

        The note is on the disk before the piece is sent: what was sent under a sequence is never
        cut in another way.
        """
        # If the piece was tried before, the note is on the disk already.
        with self._file.writing(durable=waiting.tried is None) as connection:
            publisher = identity(connection)
            if (
                not _waits(connection, waiting)
                or f"{publisher.name} {publisher.next_sequence}" != waiting.mark
            ):
                return False
            connection.execute(
                "UPDATE _psoup_queue SET tried = ? WHERE batch = ? AND piece = ?",
                (waiting.mark, waiting.batch, waiting.number),
            )
        return True

    def acknowledge(self, sent: Waiting, position: bytes, first_row_id: int, at: int) -> None:
        """Note that a piece is in the store; the next one has the next sequence.

        That is on the disk before the next is sent: the store remembers only the last batch for
        certain. `first_row_id` is −1 if the store no longer knows it. `at` is the device's clock.
        Edits that were made from its rows expect the ids that these have in the store from now on.
        """
        with self._file.writing(durable=True) as connection:
            expected.take(connection, (sent.batch, sent.number), first_row_id)
            confirmed.acknowledge(connection, (sent.batch, sent.number), position, first_row_id, at)
            use_up(connection, sent.publisher, sent.sequence)

    def reject(self, sent: Waiting, error: PsoupError) -> list[Rejected]:
        """Put a piece aside; its sequence goes to the next. Return nothing if it is gone
        already.
        """
        with self._file.writing(durable=True) as connection:
            rows = put_aside(connection, "refused", sent.batch, sent.number, _why(error))
            if rows and isinstance(error, RowConflict):
                rows += _put_behind(connection, sent)
        return [Rejected.from_row(row) for row in rows]

    def void(self, waiting: Waiting, origin: expected.Origin) -> bool:
        """Let a piece that was made from rows of another store or stream, and was not sent, expect
        none of theirs. Return False if it was not."""
        if waiting.tried is not None:
            return False
        place = waiting.batch, waiting.number
        with self._file.writing() as connection:
            if not _waits(connection, waiting):
                return True
            return expected.void(connection, place, waiting.stream, origin)

    def hold_back(self, waiting: Waiting) -> list[Rejected]:
        """Put a piece aside if it was made from own rows that the store has not taken: these were
        refused, or are doubtful. Return nothing if it was not."""
        own_row = expected.unsettled(waiting.piece)
        if own_row is None:
            return []
        with self._file.writing(durable=True) as connection:
            why = _behind(expected.batch_of(connection, own_row))
            rows = put_aside(connection, "refused", waiting.batch, waiting.number, why)
        return [Rejected.from_row(row) for row in rows]

    def doubt(self, sent: Waiting, error: PsoupError) -> list[Doubtful]:
        """Put a piece aside, and with it the sequence that it may have. Return nothing if it is
        gone.
        """
        # A mark is the publisher's name, a space and the sequence.
        name, _, sequence = (sent.tried or sent.mark).rpartition(" ")
        reason = {**_why(error), "publisher": name, "sequence": int(sequence)}
        with self._file.writing(durable=True) as connection:
            rows = put_aside(connection, "doubtful", sent.batch, sent.number, reason)
            # A sequence of another identity is not to be counted for the present one.
            if rows and not sent.tried_otherwise:
                use_up(connection, sent.publisher, sent.sequence, end=True)
        return [Doubtful.from_row(row) for row in rows]

    def rename(self, sent: Waiting) -> bool:
        """Continue under another name, because the store has this one from another file.

        Return False if there is nothing to do: the piece is gone, or the name has changed already.
        """
        with self._file.writing(durable=True) as connection:
            publisher = identity(connection)
            if (
                not _waits(connection, sent)
                or f"{publisher.name} {publisher.next_sequence}" != sent.mark
            ):
                return False
            # The store has refused the piece under this name, so it may be sent under the next one.
            _unmark(connection, sent)
            take_new_name(connection)
        return True

    def replace(self, before: Waiting, pieces: Sequence[Piece]) -> None:
        """Put checked or cut pieces in the place of one. Do nothing if that one may have been
        sent.
        """
        with self._file.writing(durable=True) as connection:
            if not _waits(connection, before) or _was_tried(connection, before):
                return
            origin = _delete(connection, before)
            _shift(connection, before, len(pieces) - 1)
            place = before.batch, before.number
            # Checked rows are evaluated for copies; those of a piece that was cut have been.
            evaluate = not before.piece.checked
            _insert(connection, place, before.stream, pieces, origin, evaluate=evaluate)


def _why(error: PsoupError) -> dict[str, Any]:
    why = {"reason": error.reason, "message": str(error), "at": time.time_ns() // 1000}
    return why | (conflict_fields(error) if isinstance(error, RowConflict) else {})


def conflict_fields(error: RowConflict) -> dict[str, Any]:
    """Return what is noted of a conflict beside its reason: which row of the batch failed, and the
    row that is there instead."""
    theirs = [] if error.current is None else [error.current]
    return {"row": error.row, "theirs": encode_rows(theirs), "theirs_id": error.row_id}


def _behind(batch: int | None) -> dict[str, Any]:
    """Return why an edit is put aside that was made from one of a batch which is not accepted."""
    origin = "an edit that was dropped" if batch is None else f"batch {batch}"
    error = PsoupError(
        f"it was made from {origin}, which the store has not accepted", detail=ErrorDetail(BEHIND)
    )
    return {**_why(error), "behind": batch}


def _put_behind(connection: sqlite3.Connection, sent: Waiting) -> list[Sequence[Any]]:
    """Put aside what waits for a key of a conflict, and return it."""
    description = cached_stream(connection, sent.stream)
    if description is None:
        return []
    keys = set(expected.keys_of(rows_of(sent.piece), description))
    waiting = connection.execute(
        "SELECT batch, piece, kind, payload, row_count FROM _psoup_queue "
        f"WHERE {WAITING} AND stream = ? AND kind = ? ORDER BY batch, piece",
        (sent.stream, ARROW),
    ).fetchall()
    held: list[Sequence[Any]] = []
    for batch, number, *content in waiting:
        others = set(expected.keys_of(rows_of(Piece(*content)), description))
        if not keys.isdisjoint(others):
            # What waits for another key of this piece waits, too.
            keys |= others
            held += put_aside(connection, "refused", batch, number, _behind(sent.batch))
    return held


def insert_batch(
    connection: sqlite3.Connection,
    stream: str,
    pieces: Sequence[Piece],
    seen: str | None = None,
) -> int:
    """Queue pieces at the end, and return the number of the batch."""
    batch = new_batch(connection)
    first_row = new_rows(connection, sum(piece.row_count for piece in pieces))
    origin = Origin(time.time_ns() // 1000, first_row, seen)
    _insert(connection, (batch, 0), stream, pieces, origin)
    return batch


@dataclass(frozen=True, slots=True)
class Origin:
    """When rows were queued, the id of the first of them, and the rows that they were based on."""

    queued_at: int
    first_row: int
    seen: str | None = None


def _insert(
    connection: sqlite3.Connection,
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


def _shift(connection: sqlite3.Connection, before: Waiting, by: int) -> None:
    """Make room behind a piece, through negative numbers, since each number exists once."""
    connection.execute(
        "UPDATE _psoup_queue SET piece = -(piece + ?) WHERE batch = ? AND piece > ?",
        (by, before.batch, before.number),
    )
    connection.execute(
        "UPDATE _psoup_queue SET piece = -piece WHERE batch = ? AND piece < 0", (before.batch,)
    )


def _waits(connection: sqlite3.Connection, sent: Waiting) -> bool:
    """Return whether exactly that piece still waits."""
    rows = connection.execute(
        f"SELECT 1 FROM _psoup_queue WHERE batch = ? AND piece = ? AND checksum = ? AND {WAITING}",
        (sent.batch, sent.number, sent.checksum),
    )
    return rows.fetchone() is not None


def _unmark(connection: sqlite3.Connection, sent: Waiting) -> None:
    """Note that a piece was not taken with the identity it was sent with."""
    connection.execute(
        "UPDATE _psoup_queue SET tried = NULL WHERE batch = ? AND piece = ?",
        (sent.batch, sent.number),
    )


def _was_tried(connection: sqlite3.Connection, waiting: Waiting) -> bool:
    rows = connection.execute(
        "SELECT tried FROM _psoup_queue WHERE batch = ? AND piece = ?",
        (waiting.batch, waiting.number),
    )
    return bool(rows.fetchone()[0] == waiting.mark)


def _delete(connection: sqlite3.Connection, sent: Waiting) -> Origin:
    """Delete a piece, which must be there, and return where its rows came from."""
    rows = connection.execute(
        "DELETE FROM _psoup_queue WHERE batch = ? AND piece = ? "
        "RETURNING queued_at, first_row, seen",
        (sent.batch, sent.number),
    ).fetchall()
    return Origin(*rows[0])


FIELDS = (
    "batch, piece, stream, kind, payload, row_count, checksum, queued_at, tried, refused, doubtful"
)
WAITING = "refused IS NULL AND doubtful IS NULL AND acknowledged_at IS NULL"
REFUSED = "refused IS NOT NULL"
DOUBTFUL = "doubtful IS NOT NULL"

Place = tuple[int, int]


def put_aside(
    connection: sqlite3.Connection,
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


def delete_piece(connection: sqlite3.Connection, place: Place) -> None:
    """Delete a piece that was put aside, which must be there.

    Edits that were made from its rows expect a row that will never be there, and become conflicts.
    """
    [(first_row, count)] = connection.execute(
        "DELETE FROM _psoup_queue WHERE batch = ? AND piece = ? RETURNING first_row, row_count",
        place,
    ).fetchall()
    own_rows.remove(connection, first_row, count)
    expected.settle(connection, first_row, count, lambda _: expected.NOWHERE)


def requeue(connection: sqlite3.Connection, places: Sequence[Place]) -> None:
    """Queue pieces that were put aside again, at the end, in their order."""
    # New batch numbers by the old ones, so that the pieces of a batch stay together.
    numbers: dict[int, int] = {}
    for old, number in places:
        if old not in numbers:
            numbers[old] = new_batch(connection)
        _requeue(connection, (old, number), numbers[old])


def requeue_behind(connection: sqlite3.Connection, places: Sequence[Place]) -> None:
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


def _requeue(connection: sqlite3.Connection, place: Place, batch: int) -> None:
    """Move a piece that was put aside to another batch, at the end, with new ids for its rows."""
    select = "SELECT stream, kind, payload, row_count, first_row FROM _psoup_queue"
    where = "WHERE batch = ? AND piece = ?"
    stream, *content, before = connection.execute(f"{select} {where}", place).fetchone()
    piece = Piece(*content)
    first_row = new_rows(connection, piece.row_count)
    connection.execute(
        "UPDATE _psoup_queue SET batch = ?, first_row = ?, refused = NULL, doubtful = NULL, "
        f"tried = NULL {where}",
        (batch, first_row, *place),
    )
    own_rows.remove(connection, before, piece.row_count)
    own_rows.put(connection, stream, piece, first_row)
    expected.settle(connection, before, piece.row_count, lambda id_: id_ - before + first_row)


def _places(
    connection: sqlite3.Connection, where: str, batch: int | None, what: str
) -> list[Place]:
    """Return batch and number of pieces. Raises ValueError for a batch that is not among them."""
    rows = connection.execute(
        f"SELECT batch, piece FROM _psoup_queue WHERE {where} ORDER BY batch, piece"
    ).fetchall()
    places = [row for row in rows if batch is None or row[0] == batch]
    if batch is not None and not places:
        numbers = ", ".join(map(str, dict.fromkeys(batch for batch, _ in rows))) or "none"
        raise ValueError(f"no batch {batch} {what}; those that were: {numbers}")
    return places
