"""A fingerprint of what a publisher sent, by which a repeated sequence is known again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

DIGEST_BYTES = 16


def batch_digest(stream: str, batch: pa.RecordBatch) -> bytes:
    """`batch` is normalised: nothing but zeros under its NULLs, one NaN."""
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES, person=b"psoup rows")
    _update(digest, [stream.encode(), batch.num_rows.to_bytes(8, "little")])
    for field, column in zip(batch.schema, batch.columns, strict=True):
        _update(digest, [field.name.encode(), str(field.type).encode(), *_parts(column)])
    return digest.digest()


def heartbeat_digest(stream: str, ts: int) -> bytes:
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES, person=b"psoup heartbeat")
    _update(digest, [stream.encode(), ts.to_bytes(8, "little", signed=True)])
    return digest.digest()


def _update(digest: Any, parts: list[Any]) -> None:
    """Each part with its length before it, so that no two lists of parts are confused."""
    for part in parts:
        view = memoryview(part).cast("B")
        digest.update(len(view).to_bytes(8, "little"))
        digest.update(view)


def _parts(column: pa.Array) -> Iterator[Any]:
    yield np.packbits(column.is_null().to_numpy(zero_copy_only=False)) if column.null_count else b""
    if pa.types.is_string(column.type):
        lengths = pc.binary_length(column).fill_null(0)
        yield np.ascontiguousarray(lengths.to_numpy(zero_copy_only=False))
        yield _text_bytes(column)
    elif pa.types.is_boolean(column.type):
        yield np.packbits(column.fill_null(False).to_numpy(zero_copy_only=False))
    else:
        width = column.type.bit_width // 8
        begin = column.offset * width
        yield memoryview(column.buffers()[1] or b"")[begin : begin + len(column) * width]


def _text_bytes(column: pa.Array) -> Any:
    _, offsets, data = column.buffers()
    if data is None or offsets is None or not len(column):
        return b""
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    return memoryview(data)[int(ends[0]) : int(ends[-1])]
