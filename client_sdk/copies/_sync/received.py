"""Rows and ids as they are received: checked, and converted to what the file holds."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from client_sdk._exceptions import ServerError
from client_sdk._wire.values import from_value, schema_of
from client_sdk.copies._file.checksums import Checksums, StoredRow, signed
from client_sdk.copies._file.records import Shape
from client_sdk.copies._file.tables import stored
from psoup.v1 import psoup_pb2 as pb

# The code of errors after which the call is repeated.
GARBLED = "ABORTED"

_HEAD = ("_row_id", "_visible_from", "_visible_until", "_checksum", "_sort_key")


def typed_rows(rows: Sequence[pb.SyncRow], shape: Shape) -> list[StoredRow]:
    """Return rows of messages.

    Raises ServerError with the code GARBLED if a row does not match its checksum.
    """
    columns = shape.columns
    values = [[from_value(value) for value in row.values] for row in rows]
    if any(len(row) != len(columns) for row in values):
        raise ServerError("a row has other columns than the answer", code=GARBLED)
    if any(row.HasField("key") != shape.keyed for row in rows):
        raise ServerError("some rows have a key and others have none", code=GARBLED)
    names = [column.name for column in columns]
    with _values_that_fit():
        dicts = [dict(zip(names, row, strict=True)) for row in values]
        batch = pa.RecordBatch.from_pylist(dicts, schema=schema_of(columns))
    # One tuple for each row: id, from, until, sort key and checksum, in the order of the file.
    heads = [
        (
            row.row_id,
            row.visible_from if row.HasField("visible_from") else None,
            row.visible_until if row.HasField("visible_until") else None,
            row.sort_key,
            signed(row.checksum),
        )
        for row in rows
    ]
    keys = [[row.key for row in rows]] if shape.keyed else []
    return _checked(list(zip(*heads, strict=True)), batch, keys, shape) if heads else []


def arrow_rows(content: bytes, shape: Shape) -> list[StoredRow]:
    """Return rows of an Arrow IPC stream. Raises ServerError as `typed_rows` does."""
    with _values_that_fit():
        table = pa.ipc.open_stream(content).read_all().combine_chunks()
        ids, begins, ends, checksums, sort_keys = (table.column(name) for name in _HEAD)
        # One list for each column, in the order of the file, which is not that of the message.
        heads = [
            ids.to_pylist(),
            begins.cast(pa.int64()).to_pylist(),
            ends.cast(pa.int64()).to_pylist(),
            sort_keys.to_pylist(),
            [signed(checksum) for checksum in checksums.to_pylist()],
        ]
        # After the head comes the key, if rows have one, and then the values.
        first = len(_HEAD) + shape.keyed
        keys = [table.column(len(_HEAD)).to_pylist()] if shape.keyed else []
        rows = table.select(range(first, table.num_columns)).cast(schema_of(shape.columns))
    return _checked(heads, rows, keys, shape)


def _checked(
    heads: Sequence[Sequence[Any]], rows: Any, keys: Sequence[Sequence[int]], shape: Shape
) -> list[StoredRow]:
    columns = zip(rows.columns, shape.columns, strict=True)
    values = [stored(_single_array(array), column) for array, column in columns]
    # `heads`, `values` and `keys` are lists of columns, all of the same length.
    stored_rows: list[StoredRow] = list(zip(*heads, *values, *keys, strict=True))
    wrong = Checksums(shape.stored).wrong(stored_rows)
    if wrong:
        raise ServerError(f"row {wrong[0]} has a wrong checksum", code=GARBLED)
    return stored_rows


def _single_array(array: Any) -> pa.Array:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


@contextlib.contextmanager
def _values_that_fit() -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, KeyError, ValueError, TypeError) as error:
        raise ServerError(f"received rows can't be read: {error}", code=GARBLED) from error


def ids_of(runs: Sequence[int]) -> list[int]:
    """Return ids that were received as runs: skip, take, skip, take, …"""
    ids: list[int] = []
    place = 0
    for skip, take in zip(runs[::2], runs[1::2], strict=True):
        ids.extend(range(place + skip, place + skip + take))
        place += skip + take
    return ids
