"""A digest of an answer's rows, in order and by value, however they are cut into batches."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

_ROWS = 65_536


class Content(NamedTuple):
    """The digest is equal for equal names, types and rows, whatever lies under a NULL."""

    digest: str
    rows: int


def content_of(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Content:
    digest, rows = hashlib.blake2b(schema.serialize(), digest_size=16), 0
    for batch in recut(schema, batches, _ROWS):
        digest.update(_canonical(batch).serialize())
        rows += batch.num_rows
    return Content(digest.hexdigest(), rows)


def recut(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], rows: int
) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of exactly so many; the last may have fewer."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        while batch.num_rows:
            taken = batch.slice(0, rows - count)
            batch = batch.slice(taken.num_rows)
            waiting.append(taken)
            count += taken.num_rows
            if count == rows:
                yield _joined(schema, waiting)
                waiting, count = [], 0
    if waiting:
        yield _joined(schema, waiting)


def _joined(schema: pa.Schema, batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    table = pa.Table.from_batches(batches, schema=schema).combine_chunks()
    return table.to_batches()[0]


def _canonical(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = []
    for array in batch.columns:
        columns += [pc.is_valid(array), pc.fill_null(array, _zero(array.type))]
    return pa.RecordBatch.from_arrays(columns, names=[str(n) for n in range(len(columns))])


def _zero(type_: pa.DataType) -> pa.Scalar:
    if pa.types.is_boolean(type_):
        return pa.scalar(False, type_)
    return pa.scalar("" if pa.types.is_string(type_) else 0, type_)
