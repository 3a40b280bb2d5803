"""Arrow IPC from outside, which may hold anything."""

from __future__ import annotations

import struct

import pyarrow as pa

from datastem.errors import RowError

_HINT = "send an Arrow IPC stream: a schema, then record batches"


def read_table(content: bytes, limit: int) -> pa.Table:
    """Raises RowError for what is no IPC stream, or would unpack to more than `limit` bytes.

    Values are not checked here; `accept` does that.
    """
    try:
        _check_unpacked(content, limit)
        with pa.ipc.open_stream(content) as reader:
            return reader.read_all()
    except RowError:
        raise
    except Exception as error:
        raise RowError("MALFORMED_ARROW", f"no Arrow IPC stream: {error}", hint=_HINT) from error


def _check_unpacked(content: bytes, limit: int) -> None:
    """Compressed buffers begin with the size they unpack to: 64 bits, -1 for not compressed."""
    total = 0
    for message in pa.ipc.MessageReader.open_stream(content):
        body = memoryview(message.body) if message.body is not None else memoryview(b"")
        for offset, length in _compressed_buffers(memoryview(message.metadata)):
            if length < 8 or offset + 8 > len(body):
                continue
            (unpacked,) = struct.unpack_from("<q", body, offset)
            total += max(unpacked, 0)
    if total > limit:
        raise RowError(
            "BATCH_TOO_LARGE",
            f"the batch unpacks to {total:,} bytes; at most {limit:,} are taken",
            expected=f"at most {limit} bytes",
            got=f"{total} bytes",
            hint="send it in several batches",
        )


# ---- just enough of the flatbuffers in which IPC writes its metadata

_RECORD_BATCH, _DICTIONARY_BATCH = 3, 2


def _compressed_buffers(metadata: memoryview) -> list[tuple[int, int]]:
    """Where the buffers of a message lie in its body; none where it is not compressed."""
    message = _u32(metadata, 0)
    kind_at, header_at = _field(metadata, message, 1), _field(metadata, message, 2)
    if not kind_at or not header_at:
        return []
    batch = header_at + _u32(metadata, header_at)
    if metadata[kind_at] == _DICTIONARY_BATCH:
        data_at = _field(metadata, batch, 1)
        batch = data_at + _u32(metadata, data_at) if data_at else 0
    elif metadata[kind_at] != _RECORD_BATCH:
        return []
    if not batch or not _field(metadata, batch, 3):
        return []
    buffers_at = _field(metadata, batch, 2)
    if not buffers_at:
        return []
    vector = buffers_at + _u32(metadata, buffers_at)
    count = _u32(metadata, vector)
    return [struct.unpack_from("<qq", metadata, vector + 4 + 16 * index) for index in range(count)]


def _u32(data: memoryview, at: int) -> int:
    return int(struct.unpack_from("<I", data, at)[0])


def _field(data: memoryview, table: int, number: int) -> int:
    """Where a table's field lies, or 0 where it is left out."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    slot = 4 + 2 * number
    if slot + 2 > struct.unpack_from("<H", data, vtable)[0]:
        return 0
    offset = int(struct.unpack_from("<H", data, vtable + slot)[0])
    return table + offset if offset else 0
