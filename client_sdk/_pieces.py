"""An Arrow IPC stream that arrives in pieces: record batches as soon as they are whole."""

from __future__ import annotations

import struct

import pyarrow as pa

from client_sdk._exceptions import ServerError

_CONTINUATION = b"\xff\xff\xff\xff"
_BODY_LENGTH_FIELD = 3


class PieceReader:
    """Feed it the pieces in order; it gives back the batches each one completes.

    An IPC stream is a schema message, then batch messages, then an end mark. A message is
    `FFFFFFFF`, the length of its metadata, the metadata, and a body whose length the metadata
    gives. Only that framing is read here; pyarrow decodes the rest.
    """

    def __init__(self) -> None:
        self._rest = bytearray()
        self._schema_message = b""

    def feed(self, piece: bytes) -> list[pa.RecordBatch]:
        self._rest += piece
        end = self._skip_schema()
        begin = end
        while size := _message_size(self._rest, end):
            end += size
        whole = bytes(self._rest[begin:end])
        del self._rest[:end]
        return self._decode(whole) if whole else []

    def _skip_schema(self) -> int:
        if self._schema_message:
            return 0
        size = _message_size(self._rest, 0)
        self._schema_message = bytes(self._rest[:size])
        return size

    def finish(self) -> None:
        """Raises ServerError where the stream stopped inside a message."""
        if self._rest:
            raise ServerError("the answer ended in the middle of a record batch")

    def _decode(self, messages: bytes) -> list[pa.RecordBatch]:
        with pa.ipc.open_stream(self._schema_message + messages) as reader:
            return list(reader)


def _message_size(data: bytearray, start: int) -> int:
    """Bytes of the message at `start`, framing included; 0 where it is not whole yet."""
    there = len(data) - start
    if there < 8:
        return 0
    if data[start : start + 4] != _CONTINUATION:
        raise ServerError("the answer is not an Arrow IPC stream")
    size = 8 + int(struct.unpack_from("<i", data, start + 4)[0])
    if there < size:
        return 0
    size += _body_length(data, start + 8) if size > 8 else 0
    return size if there >= size else 0


def _body_length(data: bytearray, start: int) -> int:
    """`Message.bodyLength`, read from its flatbuffer: table, vtable, field."""
    table = start + struct.unpack_from("<I", data, start)[0]
    vtable = table - struct.unpack_from("<i", data, table)[0]
    entry = 4 + 2 * _BODY_LENGTH_FIELD
    if struct.unpack_from("<H", data, vtable)[0] <= entry:
        return 0
    offset = struct.unpack_from("<H", data, vtable + entry)[0]
    return int(struct.unpack_from("<q", data, table + offset)[0]) if offset else 0
