"""An answer in messages: Arrow IPC cut anywhere, or rows of typed values."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

import pyarrow as pa

from datastem.schema import Column
from psoup.server.values import to_rows
from psoup.v1 import psoup_pb2 as pb

_SMALL = 64 << 10
# How an IPC stream ends.
_END = b"\xff\xff\xff\xff\0\0\0\0"


def pieces(
    rows: pa.RecordBatch, columns: Sequence[Column], encoding: int, limit: int
) -> Iterator[pb.InvokeResponse]:
    """Messages of about `limit` bytes, made one by one."""
    if encoding == pb.ENCODING_ARROW:
        for content in arrow_pieces(rows, limit):
            yield pb.InvokeResponse(arrow=content)
    else:
        for part in slices(rows, limit):
            for message in to_rows(part, columns, limit):
                yield pb.InvokeResponse(rows=message)


def arrow_pieces(rows: pa.RecordBatch, limit: int) -> Iterator[bytes]:
    """An IPC stream; joined, the pieces are it."""
    if rows.nbytes < min(limit, _SMALL):
        yield from _cut(_whole(rows), limit)
        return
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        for part in slices(rows, limit):
            writer.write_batch(part)
            if sink.tell() >= limit:
                yield from _cut(_taken(sink), limit)
    yield from _cut(_taken(sink), limit)


def _whole(rows: pa.RecordBatch) -> bytes:
    """The same without a writer, which would take longer than all the rest of a small answer."""
    body = rows.serialize() if rows.num_rows else b""
    return b"".join([rows.schema.serialize(), body, _END])


def slices(rows: pa.RecordBatch, limit: int) -> Iterator[pa.RecordBatch]:
    """Of about `limit` bytes on average. No rows, no slices."""
    if not rows.num_rows:
        return
    step = max(1, int(rows.num_rows * limit / max(rows.nbytes, 1)))
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)


def _taken(sink: io.BytesIO) -> bytes:
    content = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return content


def _cut(content: bytes, limit: int) -> Iterator[bytes]:
    for start in range(0, len(content), limit):
        yield content[start : start + limit]
