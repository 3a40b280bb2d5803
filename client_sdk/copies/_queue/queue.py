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

import time
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from client_sdk._exceptions import ErrorDetail, LimitExceeded, PsoupError, RowConflict
from client_sdk._wire.models import Stream
from client_sdk.copies._file import sqlite
from client_sdk.copies._file.file import CopyFile
from client_sdk.copies._file.home import (
    cached_stream,
    identity,
    identity_for,
    take_new_name,
    use_up,
)
from client_sdk.copies._overlay import confirmed
from client_sdk.copies._queue import erased, expected, table
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
from client_sdk.copies._queue.table import DOUBTFUL, FIELDS, REFUSED, WAITING, Waiting

QUEUE_BYTES = 256 << 20
# The reason of an edit that was put aside because it was made from one that was.
BEHIND = "BEHIND"


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
            batch = table.insert_batch(connection, stream, pieces)
        return batch

    def put_as_seen(self, stream: Stream, edits: pa.Table, room: Room) -> int | None:
        """Queue edits that expect the rows which the copies show now, and return the number of the
        batch.

        Raises ValueError if no copy shows rows of the stream, and LimitExceeded.
        """
        if not edits.num_rows:
            return None
        # In one transaction: what was shown must not be acknowledged in between.
        with self._file.writing(durable=True) as connection:
            edits, seen = expected.as_seen(connection, stream, edits)
            pieces = [Piece.of_table(edits)]
            require_room(pieces, room)
            self._check_room(connection, pieces)
            batch = table.insert_batch(connection, stream.name, pieces, seen.sealed())
        return batch

    def _check_room(self, connection: sqlite.Connection, pieces: Sequence[Piece]) -> None:
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
                not table.waits(connection, waiting)
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
            rows = table.put_aside(connection, "refused", sent.batch, sent.number, _why(error))
            if rows and isinstance(error, RowConflict):
                rows += _put_behind(connection, sent)
            elif rows and error.reason == erased.ERASED:
                place = sent.batch, sent.number
                erased.forget_row(connection, place, sent.stream, error.detail.row)
                rows = table.piece_at(connection, place)
        return [Rejected.from_row(row) for row in rows]

    def void(self, waiting: Waiting, origin: expected.Origin) -> bool:
        """Let a piece that was made from rows of another store or stream, and was not sent, expect
        none of theirs. Return False if it was not."""
        if waiting.tried is not None:
            return False
        place = waiting.batch, waiting.number
        with self._file.writing() as connection:
            if not table.waits(connection, waiting):
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
            rows = table.put_aside(connection, "refused", waiting.batch, waiting.number, why)
        return [Rejected.from_row(row) for row in rows]

    def doubt(self, sent: Waiting, error: PsoupError) -> list[Doubtful]:
        """Put a piece aside, and with it the sequence that it may have. Return nothing if it is
        gone.
        """
        # A mark is the publisher's name, a space and the sequence.
        name, _, sequence = (sent.tried or sent.mark).rpartition(" ")
        reason = {**_why(error), "publisher": name, "sequence": int(sequence)}
        with self._file.writing(durable=True) as connection:
            rows = table.put_aside(connection, "doubtful", sent.batch, sent.number, reason)
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
                not table.waits(connection, sent)
                or f"{publisher.name} {publisher.next_sequence}" != sent.mark
            ):
                return False
            # The store has refused the piece under this name, so it may be sent under the next one.
            table.unmark(connection, sent)
            take_new_name(connection)
        return True

    def replace(self, before: Waiting, pieces: Sequence[Piece]) -> None:
        """Put checked or cut pieces in the place of one. Do nothing if that one may have been
        sent.
        """
        with self._file.writing(durable=True) as connection:
            if not table.waits(connection, before) or table.was_tried(connection, before):
                return
            origin = table.delete(connection, before)
            table.shift(connection, before, len(pieces) - 1)
            place = before.batch, before.number
            # Checked rows are evaluated for copies; those of a piece that was cut have been.
            evaluate = not before.piece.checked
            table.insert(connection, place, before.stream, pieces, origin, evaluate=evaluate)


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


def _put_behind(connection: sqlite.Connection, sent: Waiting) -> list[Sequence[Any]]:
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
            held += table.put_aside(connection, "refused", batch, number, _behind(sent.batch))
    return held
