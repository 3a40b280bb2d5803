"""Parts of a Sync as rows of the file, checked as they come."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from client_sdk._exceptions import ServerError
from client_sdk._wire.values import Column, from_value, schema_of
from client_sdk.copies._checksum import Checksums, StoredRow, signed
from client_sdk.copies._encoding import stored
from psoup.v1 import psoup_pb2 as pb

# A call that failed with it may be made again.
GARBLED = "ABORTED"


@dataclass
class Inbox:
    """What came since the last transaction: at most what is between two resume tokens."""

    begin: pb.SyncBegin | None = None
    removed: list[int] = field(default_factory=list)
    endings: list[tuple[int, int]] = field(default_factory=list)
    rows: list[StoredRow] = field(default_factory=list)


def typed_rows(rows: Sequence[pb.SyncRow], columns: Sequence[Column]) -> list[StoredRow]:
    """Raises ServerError with the code GARBLED where a row is not what its checksum says."""
    values = [[from_value(value) for value in row.values] for row in rows]
    if any(len(row) != len(columns) for row in values):
        raise ServerError("a row came with other columns than were told", code=GARBLED)
    names = [column.name for column in columns]
    with _values_that_fit():
        made = [dict(zip(names, row, strict=True)) for row in values]
        batch = pa.RecordBatch.from_pylist(made, schema=schema_of(tuple(columns)))
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
    return _checked(list(zip(*heads, strict=True)), batch, columns) if heads else []


def arrow_rows(content: bytes, columns: Sequence[Column]) -> list[StoredRow]:
    """Raises ServerError as `typed_rows` does."""
    with _values_that_fit():
        table = pa.ipc.open_stream(content).read_all().combine_chunks()
        ids, begins, ends, checksums, keys = (table.column(name) for name in _HEAD)
        heads = [
            ids.to_pylist(),
            begins.cast(pa.int64()).to_pylist(),
            ends.cast(pa.int64()).to_pylist(),
            keys.to_pylist(),
            [signed(checksum) for checksum in checksums.to_pylist()],
        ]
        rows = table.select(range(len(_HEAD), table.num_columns))
        rows = rows.cast(schema_of(tuple(columns)))
    return _checked(heads, rows, columns)


_HEAD = ("_row_id", "_visible_from", "_visible_until", "_checksum", "_sort_key")


def _checked(
    heads: Sequence[Sequence[Any]], rows: Any, columns: Sequence[Column]
) -> list[StoredRow]:
    values = [
        stored(_one(array), column) for array, column in zip(rows.columns, columns, strict=True)
    ]
    made: list[StoredRow] = list(zip(*heads, *values, strict=True))
    wrong = Checksums(columns).wrong(made)
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


def ids_of(ids: pb.Ids) -> list[int]:
    found: list[int] = []
    place = 0
    for skip, take in zip(ids.runs[::2], ids.runs[1::2], strict=True):
        found.extend(range(place + skip, place + skip + take))
        place += skip + take
    return found


def to_ids(ids: Sequence[int]) -> pb.Ids:
    """`ids` ascend, each once, from 0 upwards."""
    runs: list[int] = []
    place = 0
    for one in ids:
        if runs and one == place:
            runs[-1] += 1
        else:
            runs += [one - place, 1]
        place = one + 1
    return pb.Ids(runs=runs)
