"""What a published row does: it is a row, or it deletes its key."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datastem.arrays import Int8s
from datastem.errors import RowError
from datastem.normalise import normalise
from datastem.schema import OP, Column, StreamSchema
from datastem.types import TEXT

OP_ROW = 0
OP_DELETE = 1


_NAMES = {"row": OP_ROW, "delete": OP_DELETE}
_OP_BYTES = 1 << 20


def read_operations(sent: pa.Table, schema: StreamSchema) -> Int8s:
    """The operation of each row: `row` where the column says nothing, or is not there.

    Raises RowError for any other text, and for a delete where the stream has no key.
    """
    if OP not in sent.schema.names:
        return np.full(sent.num_rows, OP_ROW, np.int8)
    total = _OP_BYTES + 16 * sent.num_rows
    texts = normalise(sent.column(OP), Column(OP, TEXT), _OP_BYTES, total).fill_null("row")
    codes = pc.index_in(texts, value_set=pa.array(_NAMES)).fill_null(-1)
    ops: Int8s = codes.to_numpy(zero_copy_only=False).astype(np.int8)
    if len(bad := np.flatnonzero(ops < 0)):
        row, got = int(bad[0]), str(texts[int(bad[0])].as_py())[:80]
        raise RowError(
            "BAD_OPERATION",
            f"row {row}: {got!r} is no operation",
            row=row,
            field=OP,
            expected="row or delete",
            got=got,
            hint="leave _op out, or send row or delete",
        )
    if not schema.key and ops.any():
        raise RowError(
            "DELETE_WITHOUT_KEY",
            f"row {ops.argmax()} is a delete, and stream {schema.name} has no key",
            row=int(ops.argmax()),
            field=OP,
            expected="row",
            got="delete",
            hint="rows leave this stream by RETAIN; create one with KEY (column) to delete from",
        )
    return ops


def check_keys(batch: pa.RecordBatch, schema: StreamSchema) -> None:
    """Raises RowError where a row has no key."""
    for name in schema.key:
        column = batch.column(name)
        if column.null_count:
            row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            raise RowError(
                "NULL_KEY",
                f"row {row}: {name} is in the key of stream {schema.name} and may not be NULL",
                row=row,
                field=name,
                expected=str(schema.types[name]),
                got="NULL",
                hint="a row replaces the earlier one with the same key, so every row needs one",
            )
