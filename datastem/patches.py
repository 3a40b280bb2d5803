"""Patches: rows that set some columns, and keep the others of the current row of their stream key.

A batch with patches comes as it was sent. With the current rows it becomes a batch of whole rows,
which is stored like any other.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datastem.accept import Limits, check_bytes, stored_batch
from datastem.arrays import Int64s
from datastem.schema import OP, OP_PATCH, OP_ROW, StreamSchema
from datastem.types import Kind


def patch_places(sent: pa.RecordBatch) -> Int64s:
    """Return the places of the patches of a batch."""
    return np.flatnonzero(sent.column(OP).to_numpy() == OP_PATCH)


def complete(
    sent: pa.RecordBatch,
    schema: StreamSchema,
    current: pa.RecordBatch,
    places: Int64s,
    limits: Limits,
) -> pa.RecordBatch:
    """Return the batch to store of one with patches. `places` has, for each patch, the place of its
    row in `current`, which has the columns that were not sent. Raise RowError if it is too large.

    Rows and deletes have the default in these columns, as if they had been sent without.
    """
    ops = sent.column(OP).to_numpy()
    # For each row, its place in the current rows with one row of defaults behind them.
    sources = np.full(len(ops), current.num_rows)
    sources[ops == OP_PATCH] = places
    columns: dict[str, pa.Array] = {}
    for column in schema.columns:
        if column.name in sent.schema.names:
            columns[column.name] = sent.column(column.name)
        else:
            values = pa.concat_arrays([current.column(column.name), column.fill(1)])
            # Many patches of one long text must not fill the memory.
            if column.type.kind is Kind.TEXT:
                lengths = pc.binary_length(values).fill_null(0).to_numpy()
                check_bytes(int(lengths[sources].sum()), limits)
            columns[column.name] = values.take(pa.array(sources))
    columns[OP] = pa.array(np.where(ops == OP_PATCH, OP_ROW, ops).astype(np.int8))
    return stored_batch(columns, schema, limits)


def kept_columns(sent: pa.RecordBatch, schema: StreamSchema) -> list[str]:
    """Return the columns that patches of a batch keep."""
    return [name for name in schema.arrow.names if name not in sent.schema.names]
