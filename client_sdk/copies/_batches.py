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

from client_sdk._arrow_rows import is_pandas
from client_sdk._models import Stream
from client_sdk._publishing import BATCH_BYTES, BATCH_ROWS
from client_sdk._rows import Rows, payloads, to_ipc, to_table
from client_sdk._time import moment, timestamp
from client_sdk._values import from_rows, to_rows
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


def checked(rows: Rows, stream: Stream) -> list[Piece]:
    """Cut as publish_many cuts. Raises RowProblem, and LimitExceeded for a row too large."""
    table = to_table(rows, stream)
    if not table.num_rows:
        return []
    pieces = [Piece(ARROW, one, _count(one)) for one in payloads(table, BATCH_BYTES, BATCH_ROWS)]
    assert sum(piece.row_count for piece in pieces) == table.num_rows
    return pieces


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


def _count(payload: bytes) -> int:
    with pa.ipc.open_stream(payload) as reader:
        return sum(batch.num_rows for batch in reader)


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
