"""Rows of a copy as messages: typed values where they are few, Arrow where they are many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np
import pyarrow as pa

from datastem.schema import Column
from datastem.types import TIMESTAMP
from psoup.answers.difference import Chunk, WholeReason
from psoup.server.wire.values import to_values
from psoup.v1 import psoup_pb2 as pb
from results.idruns import Int64s, to_runs
from results.visibility import FOR_EVER, SINCE_EVER

# Up to here typed values are smaller than Arrow with its schema.
_FEW_ROWS = 32
# How many to skip, which may be anything, and how many to take.
_RUN_BYTES = 12


def reason_message(reason: WholeReason) -> pb.SyncReason:
    if reason is WholeReason.NONE:
        return pb.SYNC_REASON_UNSPECIFIED
    return cast(pb.SyncReason, pb.SyncReason.Value(f"SYNC_REASON_{reason.name}"))


def row_part(chunk: Chunk, columns: Sequence[Column], encoding: int) -> pb.SyncPart:
    if encoding == pb.ENCODING_ARROW and len(chunk.ids) > _FEW_ROWS:
        return pb.SyncPart(arrow=_arrow(chunk))
    return pb.SyncPart(rows=pb.SyncRows(rows=_typed(chunk, columns)))


def removed_piece(ids: Int64s, limit: int) -> tuple[pb.SyncPart, int]:
    """The first of the ids, in a message of about `limit` bytes, and how many they are."""
    fitting = max(1, limit // _RUN_BYTES)
    breaks = np.flatnonzero(np.diff(ids) != 1) + 1
    count = int(breaks[fitting - 1]) if fitting <= len(breaks) else len(ids)
    return pb.SyncPart(removed=pb.Ids(runs=to_runs(ids[:count]))), count


def _arrow(chunk: Chunk) -> bytes:
    names = ["_row_id", "_visible_from", "_visible_until", "_checksum", "_sort_key"]
    columns = [
        pa.array(chunk.ids),
        _instants(chunk.visible_from, SINCE_EVER),
        _instants(chunk.visible_until, FOR_EVER),
        pa.array(chunk.checksums),
        chunk.sort_keys,
    ]
    batch = pa.RecordBatch.from_arrays(
        [*columns, *chunk.rows.columns], names=[*names, *chunk.rows.schema.names]
    )
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def _instants(numbers: Int64s, absent: int) -> pa.Array:
    return pa.array(numbers, mask=np.asarray(numbers == absent)).view(TIMESTAMP.arrow)


def _typed(chunk: Chunk, columns: Sequence[Column]) -> Iterator[pb.SyncRow]:
    values = [to_values(chunk.rows.column(n), c.type) for n, c in enumerate(columns)]
    series = (
        chunk.ids.tolist(),
        chunk.visible_from.tolist(),
        chunk.visible_until.tolist(),
        chunk.checksums.tolist(),
        chunk.sort_keys.to_pylist(),
        zip(*values, strict=True) if values else ([] for _ in chunk.ids),
    )
    for row_id, begin, until, checksum, sort_key, row in zip(*series, strict=True):
        yield pb.SyncRow(
            row_id=row_id,
            visible_from=None if begin == SINCE_EVER else begin,
            visible_until=None if until == FOR_EVER else until,
            checksum=checksum,
            sort_key=sort_key,
            values=row,
        )
