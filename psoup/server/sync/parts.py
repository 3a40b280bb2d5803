"""Rows of a copy as messages: typed values where they are few, Arrow where they are many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datastem.arrays import Int64s, UInt64s
from datastem.instants import FOR_EVER, SINCE_EVER
from datastem.schema import Column
from datastem.types import TIMESTAMP
from psoup.server.once import once
from psoup.server.values import to_values
from psoup.v1 import psoup_pb2 as pb
from results.checksum import row_checksums
from results.id_sets import to_runs

# Up to here typed values are smaller than Arrow with its schema.
_FEW_ROWS = 32
# How many to skip, which may be anything, and how many to take.
_RUN_BYTES = 12
# Of a row its id, interval and checksum; of a typed value what stands before it.
_ROW_BYTES = 32
_VALUE_BYTES = 4


@dataclass(frozen=True)
class Chunk:
    """Some rows of a copy, by ascending id. Instants are SINCE_EVER or FOR_EVER where absent."""

    ids: Int64s
    visible_from: Int64s
    visible_until: Int64s
    sort_keys: pa.Array
    rows: pa.RecordBatch

    @once
    def checksums(self) -> UInt64s:
        return row_checksums(
            self.ids, self.visible_from, self.visible_until, self.sort_keys, self.rows
        )

    @once
    def sizes(self) -> Int64s:
        """About how many bytes each row takes in a message, in whichever encoding is larger."""
        width = _ROW_BYTES + sum(_width(column.type) for column in self.rows.columns)
        sizes = np.full(len(self.ids), width, np.int64)
        texts = [column for column in self.rows.columns if _is_text(column.type)]
        for column in (self.sort_keys, *texts):
            sizes += pc.fill_null(pc.binary_length(column), 0).to_numpy()
        return sizes

    @property
    def nbytes(self) -> int:
        return int(self.sizes.sum())

    def slice(self, start: int, length: int) -> Chunk:
        stop = start + length
        return Chunk(
            self.ids[start:stop],
            self.visible_from[start:stop],
            self.visible_until[start:stop],
            self.sort_keys.slice(start, length),
            self.rows.slice(start, length),
        )

    def take(self, places: Int64s) -> Chunk:
        chosen = pa.array(places)
        return Chunk(
            self.ids[places],
            self.visible_from[places],
            self.visible_until[places],
            self.sort_keys.take(chosen),
            self.rows.take(chosen),
        )

    def cut(self, limit: int) -> Chunk:
        """Its first rows, of about `limit` bytes, at least one."""
        some = self.slice(0, max(1, limit // _ROW_BYTES))
        fitting = int(np.searchsorted(np.cumsum(some.sizes), limit, side="right"))
        return some.slice(0, max(1, fitting))


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _width(type_: pa.DataType) -> int:
    return _VALUE_BYTES + (0 if _is_text(type_) else type_.bit_width // 8)


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
