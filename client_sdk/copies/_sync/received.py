"""Rows and ids as they come over the wire: checked, and made into what the file holds."""

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

# A call that failed with it may be made again.
GARBLED = "ABORTED"

_HEAD = ("_row_id", "_visible_from", "_visible_until", "_checksum", "_sort_key")


def typed_rows(rows: Sequence[pb.SyncRow], shape: Shape) -> list[StoredRow]:
    """Make rows of messages.

    Raises ServerError with the code GARBLED if a row is not what its checksum says.
    """
    columns = shape.columns
    values = [[from_value(value) for value in row.values] for row in rows]
    if any(len(row) != len(columns) for row in values):
        raise ServerError("a row came with other columns than were told", code=GARBLED)
    if any(row.HasField("key") != shape.keyed for row in rows):
        raise ServerError("a row came with a key, or without one, unlike others", code=GARBLED)
    names = [column.name for column in columns]
    with _values_that_fit():
        made = [dict(zip(names, row, strict=True)) for row in values]
        batch = pa.RecordBatch.from_pylist(made, schema=schema_of(columns))
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
    """Make rows of an Arrow IPC stream. Raises ServerError as `typed_rows` does."""
    with _values_that_fit():
        table = pa.ipc.open_stream(content).read_all().combine_chunks()
        ids, begins, ends, checksums, sort_keys = (table.column(name) for name in _HEAD)
        heads = [
            ids.to_pylist(),
            begins.cast(pa.int64()).to_pylist(),
            ends.cast(pa.int64()).to_pylist(),
            sort_keys.to_pylist(),
            [signed(checksum) for checksum in checksums.to_pylist()],
        ]
        first = len(_HEAD) + shape.keyed
        keys = [table.column(len(_HEAD)).to_pylist()] if shape.keyed else []
        rows = table.select(range(first, table.num_columns)).cast(schema_of(shape.columns))
    return _checked(heads, rows, keys, shape)


def _checked(
    heads: Sequence[Sequence[Any]], rows: Any, keys: Sequence[Sequence[int]], shape: Shape
) -> list[StoredRow]:
    columns = zip(rows.columns, shape.columns, strict=True)
    values = [stored(_one(array), column) for array, column in columns]
    made: list[StoredRow] = list(zip(*heads, *values, *keys, strict=True))
    wrong = Checksums(shape.stored).wrong(made)
    if wrong:
        raise ServerError(f"row {wrong[0]} came with a wrong checksum", code=GARBLED)
    return made


def _one(array: Any) -> pa.Array:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


@contextlib.contextmanager
def _values_that_fit() -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, KeyError, ValueError, TypeError) as error:
        raise ServerError(f"rows came that can't be read: {error}", code=GARBLED) from error


def ids_of(runs: Sequence[int]) -> list[int]:
    """Read ids that came as runs: skip, take, skip, take, …"""
    found: list[int] = []
    place = 0
    for skip, take in zip(runs[::2], runs[1::2], strict=True):
        found.extend(range(place + skip, place + skip + take))
        place += skip + take
    return found
