"""An answer in messages: Arrow IPC cut anywhere, or rows of typed values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from datastem.schema import Column
from psoup.server.values import to_rows
from psoup.v1 import psoup_pb2 as pb

# What a piece may have besides its values.
_FRAME = 8 << 10
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
    """An IPC stream; joined, the pieces are it. Made without a writer, which copies once more."""
    parts = list(slices(rows, limit - _FRAME)) or [None]
    for number, part in enumerate(parts):
        head = rows.schema.serialize() if number == 0 else b""
        body = b"" if part is None else part.serialize()
        content = b"".join([head, body, _END if number == len(parts) - 1 else b""])
        for start in range(0, len(content), limit):
            yield content[start : start + limit]


def slices(rows: pa.RecordBatch, limit: int) -> Iterator[pa.RecordBatch]:
    """Of about `limit` bytes on average. No rows, no slices."""
    if not rows.num_rows:
        return
    step = max(1, int(rows.num_rows * max(limit, 1) / max(rows.nbytes, 1)))
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)
