"""Rows of a copy as typed values: messages for few rows, bytes made in columns for many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat

import numpy as np
import pyarrow.compute as pc

from datastem.instants import FOR_EVER, SINCE_EVER
from datastem.schema import Column
from psoup.answers.difference.copier import CopyChunk
from psoup.server.wire.fields import (
    Field,
    FixedField,
    Int64s,
    MessageField,
    NumberField,
    TextField,
    encode_fields,
)
from psoup.server.wire.typed import FEW_VALUES, value_field
from psoup.server.wire.values import to_values
from psoup.v1 import psoup_pb2 as pb

# The fields of a SyncRow besides its values; each counts as a value.
_HEAD_FIELDS = 6


def sync_rows(chunk: CopyChunk, columns: Sequence[Column]) -> pb.SyncRows:
    if len(chunk.ids) * (_HEAD_FIELDS + len(columns)) <= FEW_VALUES:
        return pb.SyncRows(rows=row_messages(chunk, columns))
    # To parse bytes takes a fiftieth of the time that making the messages one by one takes.
    return pb.SyncRows.FromString(row_bytes(chunk, columns))


def row_messages(chunk: CopyChunk, columns: Sequence[Column]) -> Iterator[pb.SyncRow]:
    """Yield a message for each row."""
    values = [to_values(chunk.rows.column(n), c.type) for n, c in enumerate(columns)]
    series = (
        chunk.ids.tolist(),
        chunk.visible_from.tolist(),
        chunk.visible_until.tolist(),
        chunk.checksums.tolist(),
        chunk.sort_keys.to_pylist(),
        repeat(None, len(chunk.ids)) if chunk.keys is None else chunk.keys.tolist(),
        # Without columns a zip would be empty, and end the rows.
        zip(*values, strict=True) if values else ([] for _ in chunk.ids),
    )
    for row_id, begin, until, checksum, sort_key, key, row in zip(*series, strict=True):
        yield pb.SyncRow(
            row_id=row_id,
            visible_from=None if begin == SINCE_EVER else begin,
            visible_until=None if until == FOR_EVER else until,
            checksum=checksum,
            sort_key=sort_key,
            values=row,
            key=key,
        )


def row_bytes(chunk: CopyChunk, columns: Sequence[Column]) -> bytes:
    """Return the bytes of a SyncRows. There must be rows."""
    row, begin, until = pb.SyncRow, chunk.visible_from, chunk.visible_until
    has_sort_key = pc.binary_length(chunk.sort_keys).to_numpy(zero_copy_only=False) != 0
    fields: list[Field] = [
        NumberField(row.ROW_ID_FIELD_NUMBER, chunk.ids, chunk.ids != 0),
        NumberField(row.VISIBLE_FROM_FIELD_NUMBER, _zigzag(begin), begin != SINCE_EVER),
        NumberField(row.VISIBLE_UNTIL_FIELD_NUMBER, _zigzag(until), until != FOR_EVER),
        FixedField(row.CHECKSUM_FIELD_NUMBER, chunk.checksums, chunk.checksums != 0),
        TextField(row.SORT_KEY_FIELD_NUMBER, chunk.sort_keys, has_sort_key),
    ]
    for place, column in enumerate(columns):
        array = chunk.rows.column(place)
        fields.append(value_field(row.VALUES_FIELD_NUMBER, array, column.type))
    if chunk.keys is not None:
        fields.append(FixedField(row.KEY_FIELD_NUMBER, chunk.keys))
    rows = MessageField(pb.SyncRows.ROWS_FIELD_NUMBER, fields)
    content, _ = encode_fields([rows], len(chunk.ids))
    return bytes(content)


def _zigzag(numbers: Int64s) -> Int64s:
    """Return the numbers as a sint64 writes them, so that small negative ones are short."""
    return (numbers << np.int64(1)) ^ (numbers >> np.int64(63))
