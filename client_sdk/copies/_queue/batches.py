"""Batches as the queue stores them, and what a program sees of those that wait or were put aside.

    arrow      rows that fit the stream, as they are sent: one Arrow IPC stream
    table      an Arrow IPC stream for an unknown stream, to be checked later
    values     rows given as dicts, for an unknown stream
    heartbeat  an instant

Rows given as dicts keep their types and the keys that each has, so that they are refused later for
the same reasons as at once.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self

import pyarrow as pa
from google.protobuf.timestamp_pb2 import Timestamp

from client_sdk._exceptions import ErrorDetail, LimitExceeded, PsoupError
from client_sdk._publishing import BATCH_BYTES, BATCH_ROWS, IDENTITY_BYTES
from client_sdk._wire.ipc import cut, row_too_large, to_ipc
from client_sdk._wire.models import Stream
from client_sdk._wire.rows import EXPECTED, Rows, has_conditions, is_pandas, to_table
from client_sdk._wire.status import StoreLimits
from client_sdk._wire.values import from_micros, from_rows, moment, timestamp, to_rows
from client_sdk.copies._file.records import unseal
from psoup.v1 import psoup_pb2 as pb

ARROW, TABLE, VALUES, HEARTBEAT = "arrow", "table", "values", "heartbeat"


@dataclass(frozen=True, slots=True)
class Piece:
    """What one publish sends, or will send when it has been checked."""

    kind: str
    payload: bytes
    row_count: int

    @classmethod
    def of_table(cls, table: pa.Table) -> Piece:
        """Return a piece of rows that fit their stream."""
        return cls(ARROW, to_ipc(table), table.num_rows)

    @property
    def checked(self) -> bool:
        return self.kind in (ARROW, HEARTBEAT)

    @property
    def is_conditional(self) -> bool:
        """Whether a row of it expects another one, so that it must not be cut."""
        # The names of columns are in the payload as they are: most pieces need not be read.
        may_be = self.kind == ARROW and EXPECTED.encode() in self.payload
        return may_be and has_conditions(rows_of(self))

    def checksum(self, stream: str) -> str:
        """Return the checksum of a piece for a stream: a flipped bit must not be published."""
        digest = hashlib.blake2b(f"{stream} {self.kind} {self.row_count} ".encode(), digest_size=16)
        # SQLite may return a damaged payload as another type, which must not raise here.
        digest.update(self.payload if isinstance(self.payload, bytes) else b"")
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Room:
    """How much one publish can hold."""

    bytes: int = BATCH_BYTES
    rows: int = BATCH_ROWS

    @classmethod
    def of(cls, limits: StoreLimits, most: int) -> Room:
        """Return the room that a store's limits leave, in messages of at most `most` bytes."""
        message = min(limits.message_bytes, most) - IDENTITY_BYTES
        return cls(max(1, min(message, limits.batch_bytes)), limits.batch_rows)

    def holds(self, piece: Piece) -> bool:
        if piece.kind == HEARTBEAT:
            return True
        return len(piece.payload) <= self.bytes and piece.row_count <= self.rows


def checked(rows: Rows, stream: Stream, room: Room) -> list[Piece]:
    """Check rows, and cut them as publish_many does and to `room`. Raises RowProblem.

    One row that is too large is a piece of its own, and so are rows that expect others.
    """
    table = to_table(rows, stream)
    return fitted(table, room) if table.num_rows else []


def fitted(table: pa.Table, room: Room) -> list[Piece]:
    """Return the pieces of a table, cut to `room` unless a row expects another one."""
    if has_conditions(table):
        return [Piece.of_table(table)]
    most = min(room.bytes, BATCH_BYTES), min(room.rows, BATCH_ROWS)
    pieces = [Piece(ARROW, payload, count) for payload, count in cut(table, *most)]
    assert sum(piece.row_count for piece in pieces) == table.num_rows
    return pieces


def require_room(pieces: Sequence[Piece], room: Room) -> None:
    """Raise LimitExceeded if one row is too large by itself, or a batch that must not be cut."""
    for piece in pieces:
        if not room.holds(piece):
            raise too_large(piece, room)


def too_large(piece: Piece, room: Room) -> LimitExceeded:
    """Return the error for a piece that can't be cut."""
    size = len(piece.payload)
    if not piece.is_conditional:
        return row_too_large(size, room.bytes)
    detail = ErrorDetail("BATCH_TOO_LARGE", field=EXPECTED, got=f"{size} bytes")
    return LimitExceeded(
        f"a batch with {EXPECTED} takes {piece.row_count:,} rows and {size:,} bytes, and the store "
        f"takes {room.rows:,} rows and {room.bytes:,} bytes; it is not cut, since all of its rows "
        "are accepted or none",
        detail=detail,
    )


def unchecked(rows: Rows) -> list[Piece]:
    """Return pieces for an unknown stream.

    Raises TypeError for a value without a type, and for pandas, whose types say too little.
    """
    if is_pandas(rows):
        raise TypeError(
            "a DataFrame can be queued only for a stream that is known: learn it while connected, "
            "or give dicts or Arrow"
        )
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    if isinstance(rows, pa.Table):
        return [Piece(TABLE, to_ipc(rows), rows.num_rows)] if rows.num_rows else []
    if isinstance(rows, Mapping | str | bytes):
        raise TypeError("rows: give a list of dicts or an Arrow table")
    plain_rows = [{name: _plain(value) for name, value in row.items()} for row in rows]
    return [Piece(VALUES, encode_rows(plain_rows), len(plain_rows))] if plain_rows else []


def heartbeat(instant: datetime) -> Piece:
    return Piece(HEARTBEAT, timestamp(instant).SerializeToString(), 0)


def rows_of(piece: Piece) -> Any:
    """Return what can be published again: a table, dicts, or the instant of a heartbeat."""
    match piece.kind:
        case "values":
            return list(decode_rows(piece.payload))
        case "heartbeat":
            return moment(Timestamp.FromString(piece.payload))
    return pa.ipc.open_stream(piece.payload).read_all()


def fill(request: pb.PublishRequest, piece: Piece) -> None:
    """Put the content of a piece into a request."""
    if piece.kind == HEARTBEAT:
        request.heartbeat.ParseFromString(piece.payload)
    else:
        request.arrow = piece.payload


def _plain(value: Any) -> Any:
    # A numpy scalar becomes the Python value, whose type the wire has.
    return value.item() if hasattr(value, "item") else value


def encode_rows(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Return runs of rows with the same keys, each with its length before it."""
    content = bytearray()
    # A message of rows has one list of columns, so each run of rows with equal keys is a message.
    # Its length is in the 8 bytes before it.
    for _, run in itertools.groupby(rows, key=list):
        message = to_rows(list(run)).SerializeToString()
        content += len(message).to_bytes(8, "little") + message
    return bytes(content)


def decode_rows(content: bytes) -> Iterator[dict[str, Any]]:
    start = 0
    while start < len(content):
        stop = start + 8 + int.from_bytes(content[start : start + 8], "little")
        rows = pb.Rows.FromString(content[start + 8 : stop])
        yield from from_rows(rows, list(rows.columns))
        start = stop


@dataclass(frozen=True, slots=True)
class QueuedStream:
    """Counts of what waits for one stream. `since` is when the oldest batch was queued, in µs."""

    batches: int
    rows: int
    bytes: int
    since: int

    @property
    def oldest(self) -> datetime:
        return from_micros(self.since)


@dataclass(frozen=True, slots=True)
class Queued:
    """Counts of what waits, by stream. A batch that was cut counts as several.

    `rejected` and `doubtful` batches were put aside, and wait for a decision.
    """

    streams: dict[str, QueuedStream]
    rejected: int
    doubtful: int = 0

    @property
    def batches(self) -> int:
        return sum(stream.batches for stream in self.streams.values())

    @property
    def rows(self) -> int:
        return sum(stream.rows for stream in self.streams.values())

    @property
    def bytes(self) -> int:
        return sum(stream.bytes for stream in self.streams.values())

    def rows_for(self, stream: str | None) -> int:
        """Return how many rows wait for a stream, or for all if it is None."""
        if stream is None:
            return self.rows
        name = stream.lower()
        return sum(waiting.rows for key, waiting in self.streams.items() if key.lower() == name)

    def __bool__(self) -> bool:
        """True if anything waits."""
        return bool(self.streams)


@dataclass(frozen=True, slots=True)
class _PutAside:
    batch: int
    number: int
    stream: str
    row_count: int
    since: int
    reason: str
    message: str
    _piece: Piece = field(repr=False)

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> Self:
        """Return the batch of a row of the queue, whose last two columns say why it was put
        aside.
        """
        batch, number, stream, kind, payload, count, _, queued_at, _, *sealed = row
        # At most one of the two columns is set, since only a waiting piece is put aside.
        reasons = [unseal(content) for content in sealed if content is not None]
        why = (reasons and reasons[0]) or {
            "reason": "",
            "message": "the reason can't be read any more",
        }
        piece = Piece(kind, payload, count)
        texts = why["reason"], why["message"]
        return cls(batch, number, stream, count, queued_at, *texts, piece)

    @property
    def queued_at(self) -> datetime:
        return from_micros(self.since)

    @property
    def content(self) -> Any:
        """The rows that were published: an Arrow table, dicts, or the instant of a heartbeat.

        Raises ValueError if they can't be read any more.
        """
        return rows_of(self._piece)


@dataclass(frozen=True, slots=True)
class Rejected(_PutAside):
    """A batch, or a piece of one, that the store refused for good: sending it again does not help.

    `reason` is as in PsoupError. Correct `content` and publish it again, then discard this. Or
    requeue it after correcting the store, for example by creating the stream.
    """


@dataclass(frozen=True, slots=True)
class Doubtful(_PutAside):
    """A batch, or a piece of one, that may be in the store or not.

    The store has taken its sequence, and no longer knows with which rows: this file was copied, or
    came from a back-up. Look whether `content` is there. Resend it if not, else discard it.
    """


@dataclass(frozen=True, slots=True)
class Sent:
    """Counts of what was sent.

    `duplicates` of the batches were in the store already, from an earlier send whose
    acknowledgement was lost. `rejected` and `doubtful` batches were put aside. In a sync, `error`
    is why the rest still waits, if it does.
    """

    batches: int = 0
    rows: int = 0
    duplicates: int = 0
    rejected: tuple[Rejected, ...] = ()
    doubtful: tuple[Doubtful, ...] = ()
    error: PsoupError | None = None
