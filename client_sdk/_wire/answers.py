"""An answer: the rows of a query at one position and one instant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

import pyarrow as pa

from client_sdk._exceptions import ServerError
from client_sdk._wire.ipc import PieceReader
from client_sdk._wire.models import columns_of
from client_sdk._wire.values import (
    EPOCH,
    Column,
    from_rows,
    optional_moment,
    schema_of,
    span,
)
from psoup.v1 import psoup_pb2 as pb


@dataclass(frozen=True)
class AnswerHeader:
    """The header of an answer: it has exactly the rows accepted up to `position`, evaluated at
    `now`.

    Both ends of the window belong to it; they are None without a window. `computed_rows` were
    evaluated for this answer because the engine had not matched them yet. The engine is at `epoch`,
    and is `behind` the streams of the query. `joined_pairs` of rows were compared because it had
    not joined them. These are 0 if rows of the streams may be hidden from the caller.

    `refreshed_at` is the refresh point of the answer if the query has REFRESH. If its streams have
    refresh points of their own, it is the last of these, and `full_at` the last one common to all.
    All event-time streams of the query have reached `complete_until`, and at least one has reached
    `latest`.
    """

    position: bytes
    now: datetime | None
    window_begin: datetime | None
    window_end: datetime | None
    row_count: int
    columns: tuple[Column, ...]
    computed_rows: int
    epoch: int
    behind_rows: int
    behind: timedelta
    elapsed: timedelta
    notes: tuple[str, ...]
    refreshed_at: datetime | None
    complete_until: datetime | None
    latest: datetime | None
    full_at: datetime | None
    joined_pairs: int

    @property
    def schema(self) -> pa.Schema:
        return schema_of(self.columns)

    @classmethod
    def from_wire(cls, message: pb.AnswerHeader) -> AnswerHeader:
        return AnswerHeader(
            position=message.position,
            now=optional_moment(message, "now"),
            window_begin=optional_moment(message, "window_begin"),
            window_end=optional_moment(message, "window_end"),
            row_count=message.row_count,
            columns=columns_of(message.columns),
            computed_rows=message.computed_rows,
            epoch=message.epoch,
            behind_rows=message.behind_rows,
            behind=span(message.behind),
            elapsed=span(message.elapsed),
            notes=tuple(message.notes),
            refreshed_at=optional_moment(message, "refreshed_at"),
            complete_until=optional_moment(message, "complete_until"),
            latest=optional_moment(message, "latest"),
            full_at=optional_moment(message, "full_at"),
            joined_pairs=message.joined_pairs,
        )


@dataclass(frozen=True)
class Answer(AnswerHeader):
    """A whole answer. Iterate over it, or use `rows`, for dicts of Python values; `len` counts
    them.
    """

    _table: pa.Table = field(repr=False, compare=False)

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The rows as dicts. Timestamps are aware datetimes in UTC, decimals are Decimal, NULL is
        None.
        """
        return python_rows(self._table, self.columns)

    def to_arrow(self) -> pa.Table:
        """Return the answer as an Arrow table."""
        return self._table

    def to_pandas(self) -> Any:
        """Return the answer as a pandas DataFrame. pandas is not part of the base install."""
        return to_pandas(self._table)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)


def python_rows(table: pa.Table, columns: tuple[Column, ...]) -> list[dict[str, Any]]:
    names = [column.name for column in columns]
    values = [
        _python_values(array, column) for array, column in zip(table.columns, columns, strict=True)
    ]
    return [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]


def to_pandas(table: pa.Table) -> Any:
    """Return a DataFrame. Raises ImportError, which says what to install."""
    try:
        import pandas  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "to_pandas() needs pandas: pip install pandas; to_arrow() works without"
        ) from error
    return table.to_pandas()


def _python_values(array: pa.ChunkedArray, column: Column) -> list[Any]:
    if column.kind == "TIMESTAMP":
        # By way of timedeltas: Arrow looks up the zone of each value, and takes 40 times as long.
        offsets = array.to_numpy().astype("M8[us]").view("m8[us]").tolist()
        return [None if offset is None else EPOCH + offset for offset in offsets]
    if column.kind == "DATE":
        dates: list[Any] = array.to_numpy().tolist()
        return dates
    values: list[Any] = array.to_pylist()
    return values


class AnswerReader:
    """A reader of the messages of one Invoke, which come in order: a header, then rows in
    pieces; or a header with all rows.
    """

    def __init__(self) -> None:
        self._pieces = PieceReader()
        self._received = 0
        self._header: AnswerHeader | None = None

    @property
    def header(self) -> AnswerHeader:
        """The header. Raises ServerError before it was received."""
        if self._header is None:
            raise ServerError("the answer began without its header")
        return self._header

    def feed(self, message: pb.InvokeResponse) -> list[pa.RecordBatch]:
        """Take the next message, and return the batches that it completes."""
        if message.HasField("header"):
            self._header = AnswerHeader.from_wire(message.header)
            arrow, rows = message.all_arrow, message.all_rows
        else:
            arrow, rows = message.arrow, message.rows
        batches = self._typed(rows) if rows.rows else self._pieces.feed(arrow)
        self._received += sum(batch.num_rows for batch in batches)
        return batches

    def finish(self) -> None:
        """Raise ServerError if the answer has fewer or more rows than its header says."""
        self._pieces.finish()
        if self._received != self.header.row_count:
            raise ServerError(
                f"the answer was cut: {self._received:,} rows of {self.header.row_count:,} came"
            )

    def _typed(self, rows: pb.Rows) -> list[pa.RecordBatch]:
        names = [column.name for column in self.header.columns]
        values = from_rows(rows, names)
        return [pa.RecordBatch.from_pylist(values, schema=self.header.schema)]


def collect(messages: Iterable[pb.InvokeResponse]) -> Answer:
    """Return the whole answer from all its messages."""
    reader = AnswerReader()
    batches = [batch for message in messages for batch in reader.feed(message)]
    reader.finish()
    return whole(reader.header, batches)


def whole(header: AnswerHeader, batches: list[pa.RecordBatch]) -> Answer:
    table = pa.Table.from_batches(batches, schema=batches[0].schema if batches else header.schema)
    header_fields = {item.name: getattr(header, item.name) for item in fields(header)}
    return Answer(**header_fields, _table=table)
