"""Batches as bytes of the log, and back as rows of the stem.

`decode(schema, encode(batch), …)` drops no row and changes no value of `batch`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from datastem.arrays import Mask
from datastem.equality import batch_digest, key_digests
from datastem.errors import DecodeError
from datastem.schema import OP, OP_ROW, Column, StreamSchema

INSTANT = pa.timestamp("us", tz="UTC")


# The columns of a stem: these, the digest of the stream key if there is one, the declared ones.
STEM_FIELDS = (
    pa.field("_row_id", pa.int64()),
    pa.field("_ts", INSTANT),
    pa.field("_position", pa.int64()),
    pa.field("_stamp", INSTANT),
    pa.field("_before", INSTANT),
    pa.field("_reached", INSTANT),
    pa.field(OP, pa.int8()),
)
KEY_FIELD = pa.field("_key", pa.int64())

# The columns of a stem that its keyed history is made of.
HISTORY_COLUMNS = ("_key", "_ts", "_row_id", OP)

# The columns that every row has: their name in a query, and in the stem.
_SYSTEM = {"ts": "_ts", "row_id": "_row_id"}


def stem_schema(schema: StreamSchema) -> pa.Schema:
    """Return the columns of a stream's stem, in order."""
    return pa.schema([*STEM_FIELDS, *([KEY_FIELD] if schema.key else []), *schema.arrow])


def empty_rows(schema: StreamSchema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=stem_schema(schema))


def encode(batch: pa.RecordBatch) -> bytes:
    """Return an Arrow IPC stream of one record batch. `batch` is one that `accept` returned."""
    counter = pa.MockOutputStream()
    _write(counter, batch)
    # A growing sink would allocate up to twice the size, and copy the content at the end.
    content = pa.allocate_buffer(counter.size())
    _write(pa.FixedSizeBufferWriter(content), batch)
    encoded: bytes = content.to_pybytes()
    return encoded


def _write(sink: Any, batch: pa.RecordBatch) -> None:
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)


def decode(
    schema: StreamSchema,
    payload: Any,
    first_row_id: int,
    stamp: int,
    position: int,
    before: int | None = None,
    reached: int | None = None,
    *,
    digest: bytes | None = None,
) -> pa.RecordBatch:
    """Return the stem rows of a payload (bytes or a pa.Buffer); their values are not copied.

    `before` is NOW of the stream before these rows, `reached` what they took it to. `schema` may be
    a later one than that of the batch: optional columns that the batch lacks, or that were added
    after its `position`, have their default. Raise DecodeError for anything but exactly one batch
    of the declared columns, and for values with another `digest`.
    """
    batch = _read(schema, payload, position)
    if digest is not None and batch_digest(schema.name, batch) != digest:
        raise DecodeError(f"payload of stream {schema.name}: not the values that were accepted")
    rows = batch.num_rows
    stamps = _repeat(stamp, rows).view(INSTANT)
    ts = stamps if schema.ts_is_stamp else batch.column(schema.ordered_by)
    if ts.null_count:
        raise DecodeError(f"payload of stream {schema.name}: a row without a ts")
    ids = pa.array(np.arange(first_row_id, first_row_id + rows, dtype=np.int64))
    optional = {
        column.name: column.fill(rows)
        for column in schema.columns
        if column.since > position or column.name not in batch.schema.names
    }
    declared = [
        optional[name] if name in optional else batch.column(name) for name in schema.arrow.names
    ]
    nows = [
        pa.nulls(rows, INSTANT) if now is None else _repeat(now, rows).view(INSTANT)
        for now in (before, reached)
    ]
    system = [ids, ts, _repeat(position, rows), stamps, *nows, *_operations(schema, batch)]
    return pa.RecordBatch.from_arrays([*system, *declared], schema=stem_schema(schema))


def count_earlier(payload: bytes, schema: StreamSchema, instant: int) -> int:
    """Return how many rows of an encoded batch have an event time before an instant."""
    with pa.ipc.open_stream(payload) as reader:
        ts = reader.read_next_batch().column(schema.event_time)
    return int((ts.view(pa.int64()).to_numpy() < instant).sum())


def _operations(schema: StreamSchema, batch: pa.RecordBatch) -> list[pa.Array]:
    """Return the stem's column `_op` of a batch, and `_key` if the stream has a key."""
    if not schema.key:
        return [pa.array(np.full(batch.num_rows, OP_ROW, dtype=np.int8))]
    keys = [batch.column(name) for name in schema.key]
    if any(column.null_count for column in (batch.column(OP), *keys)):
        raise DecodeError(f"payload of stream {schema.name}: a row without a key")
    return [batch.column(OP), pa.array(key_digests(keys))]


Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)


def with_optional(rows: Rows, names: Sequence[str], optional: Mapping[str, Column]) -> Rows:
    """Return these columns of rows; an optional one that they lack is filled with its default.

    Raise KeyError if they lack another one.
    """
    present = set(rows.schema.names)
    if present.issuperset(names):
        return rows if rows.schema.names == list(names) else rows.select(list(names))
    columns = [
        rows.column(name) if name in present else optional[name].fill(rows.num_rows)
        for name in names
    ]
    return type(rows).from_arrays(columns, names=list(names))


def are_rows(rows: pa.RecordBatch) -> Mask:
    """Return a mask of stem rows, false for deletes: a delete matches nothing."""
    return np.asarray(rows.column(OP).to_numpy() == OP_ROW)


def query_view(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return stem rows as a query sees them: the declared columns, `ts` and `row_id`. Copies
    nothing."""
    declared = [name for name in rows.schema.names if not name.startswith("_")]
    columns = {name: rows.column(name) for name in declared}
    columns["ts"] = rows.column("_ts")
    columns["row_id"] = rows.column("_row_id")
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


@dataclass(frozen=True, slots=True)
class StemColumns:
    """Columns of stem rows: their `names` in the stem, and their `schema` for a query."""

    names: tuple[str, ...]
    schema: pa.Schema


@lru_cache(maxsize=4096)
def columns_read(schema: StreamSchema, read: frozenset[str]) -> StemColumns:
    """Return the columns that a query reads, and `row_id`, under the query's names."""
    names = [name for name in schema.types if name in read or name == "row_id"]
    return columns_shown(schema, tuple((name, name) for name in names))


@lru_cache(maxsize=4096)
def columns_shown(schema: StreamSchema, outputs: tuple[tuple[str, str], ...]) -> StemColumns:
    """Return the columns for a query's `outputs`: pairs of an output's name and the column it
    shows."""
    fields = [(name, schema.types[column].arrow) for name, column in outputs]
    return StemColumns(tuple(_SYSTEM.get(name, name) for _, name in outputs), pa.schema(fields))


def _read(schema: StreamSchema, payload: Any, position: int) -> pa.RecordBatch:
    try:
        with pa.ipc.open_stream(payload) as reader:
            batches = list(reader)
        if len(batches) != 1:
            raise DecodeError(f"payload of stream {schema.name}: {len(batches)} batches, not 1")
        batch = batches[0]
        batch.validate(full=True)
        fits = _fits(batch.schema, schema, position)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DecodeError(f"payload of stream {schema.name} does not decode: {error}") from error
    if not fits:
        raise DecodeError(f"payload of stream {schema.name} has other columns: {batch.schema}")
    return batch


def _fits(got: pa.Schema, schema: StreamSchema, position: int) -> bool:
    """Return True if a batch at `position` may have these columns: those that the schema had there,
    though optional ones may be missing and dropped ones present."""
    if got.equals(schema.payload):
        return True
    later = {column.name for column in schema.columns if column.since > position}
    fields = {column.name: column.type.arrow for column in schema.dropped}
    fields |= {field.name: field.type for field in schema.payload if field.name not in later}
    required = fields.keys() - schema.optional.keys() - {column.name for column in schema.dropped}
    names = set(got.names)
    declared = all(fields.get(field.name) == field.type for field in got)
    return declared and len(names) == len(got) and required <= names


def _repeat(value: int, rows: int) -> pa.Array:
    return pa.array(np.full(rows, value, dtype=np.int64))
