"""Arrow IPC from outside, which may hold anything."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import pyarrow as pa

from datastem.accept import Limits
from datastem.errors import RowError

_HINT = "send an Arrow IPC stream: a schema, then record batches"


@dataclass(frozen=True, slots=True)
class Measured:
    """What an IPC stream says of itself: its buffers unpacked, its rows, and whether some of its
    values are in dictionaries, which a few bytes may repeat any number of times."""

    nbytes: int
    rows: int
    dictionaries: bool


def measure(content: bytes, limits: Limits) -> Measured:
    """Unpacks nothing. Raises RowError for what is no IPC stream, or past the limits."""
    try:
        found = _measured(content)
    except Exception as error:
        raise RowError("MALFORMED_ARROW", f"no Arrow IPC stream: {error}", hint=_HINT) from error
    if found.nbytes > limits.batch_bytes:
        raise too_large(f"the batch unpacks to {found.nbytes:,}", found.nbytes, limits.batch_bytes)
    return found


def read_table(content: bytes, limits: Limits) -> pa.Table:
    """Raises RowError for what is no IPC stream, or would unpack to more than the limits allow.

    Values are not checked here; `accept` does that.
    """
    measure(content, limits)
    try:
        with pa.ipc.open_stream(content) as reader:
            return reader.read_all()
    except Exception as error:
        raise RowError("MALFORMED_ARROW", f"no Arrow IPC stream: {error}", hint=_HINT) from error


def too_large(what: str, nbytes: int, limit: int) -> RowError:
    return RowError(
        "BATCH_TOO_LARGE",
        f"{what} bytes; at most {limit:,} are taken",
        expected=f"at most {limit} bytes",
        got=f"{nbytes} bytes",
        hint="send it in several batches",
    )


def _measured(content: bytes) -> Measured:
    """Compressed buffers begin with the size they unpack to: 64 bits, -1 for not compressed."""
    nbytes, rows, dictionaries = 0, 0, False
    for message in pa.ipc.MessageReader.open_stream(content):
        metadata = memoryview(message.metadata)
        body = memoryview(message.body) if message.body is not None else memoryview(b"")
        kind, batch = _header(metadata)
        if not batch:
            continue
        dictionaries |= kind == _DICTIONARY_BATCH
        rows += _length(metadata, batch) if kind == _RECORD_BATCH else 0
        nbytes += len(body)
        if _field(metadata, batch, 3) or _OLD_COMPRESSION in message.metadata.to_pybytes():
            nbytes += sum(_unpacked(body, *one) for one in _buffers(metadata, batch))
    return Measured(nbytes, rows, dictionaries)


def _unpacked(body: memoryview, offset: int, length: int) -> int:
    if length < 8 or not 0 <= offset <= len(body) - 8:
        return 0
    return max(int(struct.unpack_from("<q", body, offset)[0]), 0)


# ---- just enough of the flatbuffers in which IPC writes its metadata

_RECORD_BATCH, _DICTIONARY_BATCH = 3, 2
# Before the format had a field for it, and Arrow still reads it.
_OLD_COMPRESSION = b"ARROW:experimental_compression"


def _header(metadata: memoryview) -> tuple[int, int]:
    """The kind of a message, and where its batch lies; 0 where it has none."""
    message = _u32(metadata, 0)
    kind_at, header_at = _field(metadata, message, 1), _field(metadata, message, 2)
    if not kind_at or not header_at:
        return 0, 0
    kind, batch = metadata[kind_at], header_at + _u32(metadata, header_at)
    if kind == _DICTIONARY_BATCH:
        data_at = _field(metadata, batch, 1)
        return kind, data_at + _u32(metadata, data_at) if data_at else 0
    return kind, batch if kind == _RECORD_BATCH else 0


def _length(metadata: memoryview, batch: int) -> int:
    """The rows of a batch."""
    at = _field(metadata, batch, 0)
    return max(0, int(struct.unpack_from("<q", metadata, at)[0])) if at else 0


def _buffers(metadata: memoryview, batch: int) -> list[tuple[int, int]]:
    """Where the buffers of a batch lie in its body, those of nested columns too."""
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
