"""Batches as the queue keeps them.

    arrow      rows that fit the stream, as they are sent: one Arrow IPC stream
    table      the same before the stream is known, to be checked when it is
    values     rows given as dicts, before the stream is known
    heartbeat  an instant

Rows given as dicts keep their types and which keys each has, so that they are refused later for
whatever they would be refused for at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
from google.protobuf.timestamp_pb2 import Timestamp

from client_sdk._publishing import BATCH_BYTES, BATCH_ROWS, IDENTITY_BYTES
from client_sdk._wire.ipc import cut, row_too_large, to_ipc
from client_sdk._wire.models import Stream
from client_sdk._wire.rows import Rows, is_pandas, to_table
from client_sdk._wire.status import StoreLimits
from client_sdk._wire.values import from_rows, moment, timestamp, to_rows
from psoup.v1 import psoup_pb2 as pb

ARROW, TABLE, VALUES, HEARTBEAT = "arrow", "table", "values", "heartbeat"


@dataclass(frozen=True, slots=True)
class Piece:
    """What one publish sends, or will when it has been checked."""

    kind: str
    payload: bytes
    row_count: int

    @property
    def checked(self) -> bool:
        return self.kind in (ARROW, HEARTBEAT)


@dataclass(frozen=True, slots=True)
class Room:
    """How much one publish can hold."""

    bytes: int = BATCH_BYTES
    rows: int = BATCH_ROWS

    @classmethod
    def of(cls, limits: StoreLimits, most: int) -> Room:
        """What the store takes, in messages of at most so many bytes."""
        message = min(limits.message_bytes, most) - IDENTITY_BYTES
        return cls(max(1, min(message, limits.batch_bytes)), limits.batch_rows)

    def holds(self, piece: Piece) -> bool:
        if piece.kind == HEARTBEAT:
            return True
        return len(piece.payload) <= self.bytes and piece.row_count <= self.rows


def checked(rows: Rows, stream: Stream, room: Room) -> list[Piece]:
    """Cut as publish_many cuts, and to `room`. Raises RowProblem.

    One row that is too large is a piece of its own.
    """
    table = to_table(rows, stream)
    return fitted(table, room) if table.num_rows else []


def fitted(table: pa.Table, room: Room) -> list[Piece]:
    most = min(room.bytes, BATCH_BYTES), min(room.rows, BATCH_ROWS)
    pieces = [Piece(ARROW, payload, count) for payload, count in cut(table, *most)]
    assert sum(piece.row_count for piece in pieces) == table.num_rows
    return pieces


def require_room(pieces: Sequence[Piece], room: Room) -> None:
    """Raises LimitExceeded where one row is too large by itself."""
    for piece in pieces:
        if not room.holds(piece):
            raise row_too_large(len(piece.payload), room.bytes)


def unchecked(rows: Rows) -> list[Piece]:
    """For a stream that is not known. Raises TypeError for a value that has no type, and for
    pandas, whose types say too little."""
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
    found = [{name: _plain(value) for name, value in row.items()} for row in rows]
    return [Piece(VALUES, _encode(found), len(found))] if found else []


def heartbeat(instant: datetime) -> Piece:
    return Piece(HEARTBEAT, timestamp(instant).SerializeToString(), 0)


def rows_of(piece: Piece) -> Any:
    """As they can be published again: a table, dicts, or the instant of a heartbeat."""
    match piece.kind:
        case "values":
            return list(_decode(piece.payload))
        case "heartbeat":
            return moment(Timestamp.FromString(piece.payload))
    return pa.ipc.open_stream(piece.payload).read_all()


def fill(request: pb.PublishRequest, piece: Piece) -> None:
    if piece.kind == HEARTBEAT:
        request.heartbeat.ParseFromString(piece.payload)
    else:
        request.arrow = piece.payload


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def _encode(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Runs of rows with the same keys, each with its length before it."""
    content = bytearray()
    for _, run in itertools.groupby(rows, key=list):
        message = to_rows(list(run)).SerializeToString()
        content += len(message).to_bytes(8, "little") + message
    return bytes(content)


def _decode(content: bytes) -> Iterator[dict[str, Any]]:
    start = 0
    while start < len(content):
        stop = start + 8 + int.from_bytes(content[start : start + 8], "little")
        rows = pb.Rows.FromString(content[start + 8 : stop])
        yield from from_rows(rows, list(rows.columns))
        start = stop
