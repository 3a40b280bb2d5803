"""Rows a caller has, as the Arrow table a stream takes.

Everything is checked here, before anything is sent; what is wrong is a RowProblem that names the
row (counted from 0) and the column.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import pyarrow as pa

from client_sdk._arrow_rows import from_arrow, is_pandas, pandas_table
from client_sdk._dict_rows import from_dicts
from client_sdk._exceptions import ErrorDetail, LimitExceeded
from client_sdk._models import Stream
from client_sdk._row_problems import null_key, null_time

# A list of dicts, a pyarrow Table or RecordBatch, or a pandas DataFrame; of a keyed stream with
# `_op` "delete" for rows that delete their key.
Rows: TypeAlias = Any


def to_table(rows: Rows, stream: Stream) -> pa.Table:
    """The rows with exactly the stream's columns, in its order, and `_op` where it was given.

    Raises RowProblem.
    """
    table = _convert(rows, stream)
    times = [(stream.ordered_by, null_time)] if stream.ordered_by else []
    for name, problem in (*times, *((name, null_key) for name in stream.key)):
        if table.column(name).null_count:
            raise problem(table.column(name).is_null().index(True).as_py(), name)
    return table


def _convert(rows: Rows, stream: Stream) -> pa.Table:
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    if isinstance(rows, pa.Table):
        return from_arrow(rows, stream)
    if is_pandas(rows):
        return from_arrow(pandas_table(rows, stream), stream)
    if isinstance(rows, Mapping | str | bytes):
        raise TypeError("rows: give a list of dicts, an Arrow table or a pandas DataFrame")
    return from_dicts(list(rows), stream)


def to_ipc(table: pa.Table) -> bytes:
    """The table as one Arrow IPC stream: the same bytes for the same rows."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    payload: bytes = sink.getvalue().to_pybytes()
    return payload


def payloads(table: pa.Table, max_bytes: int, max_rows: int) -> Iterator[bytes]:
    """The table as IPC streams of at most so many bytes and rows each, in order.

    Where the cuts fall depends on the rows and the two limits alone. Raises LimitExceeded where
    one row is too large by itself.
    """
    for payload, _ in cut(table, max_bytes, max_rows):
        if len(payload) > max_bytes:
            raise row_too_large(len(payload), max_bytes)
        yield payload


def cut(table: pa.Table, max_bytes: int, max_rows: int) -> Iterator[tuple[bytes, int]]:
    """The same, each with its count of rows; one row that is too large is a payload of its own."""
    if table.num_rows > max_rows:
        yield from _parts(table, max_rows, max_bytes, max_rows)
        return
    payload = to_ipc(table)
    if len(payload) <= max_bytes or table.num_rows <= 1:
        yield payload, table.num_rows
        return
    pieces = -(-len(payload) // max_bytes)
    yield from _parts(table, max(1, table.num_rows // (pieces + 1)), max_bytes, max_rows)


def _parts(
    table: pa.Table, rows: int, max_bytes: int, max_rows: int
) -> Iterator[tuple[bytes, int]]:
    for start in range(0, table.num_rows, rows):
        yield from cut(table.slice(start, rows), max_bytes, max_rows)


def row_too_large(size: int, limit: int) -> LimitExceeded:
    detail = ErrorDetail(
        "ROW_TOO_LARGE", expected=f"at most {limit} bytes", got=f"{size} bytes", row=0
    )
    message = f"one row takes {size:,} bytes, a message at most {limit:,}"
    return LimitExceeded(message, detail=detail)
