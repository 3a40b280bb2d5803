"""Arrow IPC streams: tables cut into payloads, and streams read back as they arrive in pieces."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pyarrow as pa

from client_sdk._exceptions import ErrorDetail, LimitExceeded, ServerError

_CONTINUATION = b"\xff\xff\xff\xff"
_BODY_LENGTH_FIELD = 3


class PieceReader:
    """A reader of a stream that arrives in pieces: each piece, in order, returns the batches it
    completes.

    An IPC stream is a schema message, then batch messages, then an end mark. A message is
    `FFFFFFFF`, the length of its metadata, the metadata, and a body whose length the metadata
    gives. Only that framing is read here; pyarrow decodes the rest.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._schema_message = b""

    def feed(self, piece: bytes) -> list[pa.RecordBatch]:
        self._buffer += piece
        end = self._skip_schema()
        # Only whole messages are decoded; the rest stays in the buffer for the next piece.
        begin = end
        while size := _message_size(self._buffer, end):
            end += size
        whole = bytes(self._buffer[begin:end])
        del self._buffer[:end]
        return self._decode(whole) if whole else []

    def _skip_schema(self) -> int:
        if self._schema_message:
            return 0
        size = _message_size(self._buffer, 0)
        self._schema_message = bytes(self._buffer[:size])
        return size

    def finish(self) -> None:
        """Raise ServerError if the stream stopped inside a message."""
        if self._buffer:
            raise ServerError("the answer ended in the middle of a record batch")

    def _decode(self, messages: bytes) -> list[pa.RecordBatch]:
        # Each group of messages is read as a stream of its own, so the schema is put before it
        # again.
        with pa.ipc.open_stream(self._schema_message + messages) as reader:
            return list(reader)


def _message_size(data: bytearray, start: int) -> int:
    """Return the bytes of the message at `start`, framing included; 0 if it is not complete yet."""
    available = len(data) - start
    if available < 8:
        return 0
    if data[start : start + 4] != _CONTINUATION:
        raise ServerError("the answer is not an Arrow IPC stream")
    size = 8 + int(struct.unpack_from("<i", data, start + 4)[0])
    if available < size:
        return 0
    # A message without metadata is the end mark, and has no body.
    size += _body_length(data, start + 8) if size > 8 else 0
    return size if available >= size else 0


def _body_length(data: bytearray, start: int) -> int:
    """Read `Message.bodyLength` from its flatbuffer, by way of table, vtable and field."""
    table = start + struct.unpack_from("<I", data, start)[0]
    vtable = table - struct.unpack_from("<i", data, table)[0]
    # A vtable begins with two lengths of 16 bits, followed by the offsets of the fields. A field
    # with its default value has the offset 0, or none if the vtable is shorter.
    entry = 4 + 2 * _BODY_LENGTH_FIELD
    if struct.unpack_from("<H", data, vtable)[0] <= entry:
        return 0
    offset = struct.unpack_from("<H", data, vtable + entry)[0]
    return int(struct.unpack_from("<q", data, table + offset)[0]) if offset else 0


def to_ipc(table: pa.Table) -> bytes:
    """Write the table as one Arrow IPC stream; equal rows give equal bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    payload: bytes = sink.getvalue().to_pybytes()
    return payload


def payloads(table: pa.Table, max_bytes: int, max_rows: int) -> Iterator[bytes]:
    """Yield the table as IPC streams, in order, none of which exceeds `max_bytes` or `max_rows`.

    The cuts depend on the rows and the two limits alone. Raises LimitExceeded if one row is too
    large by itself.
    """
    for payload, _ in cut(table, max_bytes, max_rows):
        if len(payload) > max_bytes:
            raise row_too_large(len(payload), max_bytes)
        yield payload


def cut(table: pa.Table, max_bytes: int, max_rows: int) -> Iterator[tuple[bytes, int]]:
    """Yield the streams of `payloads`, each with its number of rows.

    A row that is too large by itself is a stream of its own.
    """
    if table.num_rows > max_rows:
        yield from _parts(table, max_rows, max_bytes, max_rows)
        return
    payload = to_ipc(table)
    if len(payload) <= max_bytes or table.num_rows <= 1:
        yield payload, table.num_rows
        return
    # One piece more than the size requires, since rows differ in size. A part that is still too
    # large is cut again.
    pieces = -(-len(payload) // max_bytes)
    yield from _parts(table, max(1, table.num_rows // (pieces + 1)), max_bytes, max_rows)


def _parts(
    table: pa.Table, rows: int, max_bytes: int, max_rows: int
) -> Iterator[tuple[bytes, int]]:
    for start in range(0, table.num_rows, rows):
        yield from cut(table.slice(start, rows), max_bytes, max_rows)


def row_too_large(size: int, limit: int) -> LimitExceeded:
    detail = ErrorDetail(
        "ROW_TOO_LARGE", expected=f"at most {limit} bytes", got=f"{size} bytes", row=0
    )
    message = f"one row takes {size:,} bytes, a message at most {limit:,}"
    return LimitExceeded(message, detail=detail)
