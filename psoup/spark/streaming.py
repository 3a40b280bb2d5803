"""Streams of a store as streaming DataFrames: a batch is the rows between two row ids.

An offset says how far a query has come, and how many rows its batch has:

    {"stream": 3, "row": 25000, "rows": 100, "now": 1763454612000000, "position": "0a1f…"}

The rows of a stream without a KEY never change; they only leave, by RETAIN or ERASE. So a batch
that is read again is the same one if it has as many rows as its offset says. If it has fewer, the
query fails.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from client_sdk import Answer, Client, Stream
from psoup.spark.options import SparkOptions
from psoup.spark.reading import ask_columns, select_list

# Spark asks for the latest offset dozens of times a second.
LATEST_SECONDS = 0.2
# Four blocks of rows, so that no two tasks read the same block.
TASK_ROWS = 4 << 16
_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class DataLoss(ValueError):
    """Rows that a query has to read are not there any more."""


@dataclass(frozen=True)
class StreamOffset:
    """The end of a batch: the next row id, and the number of rows since the offset before.

    `now` is an instant in microseconds that NOW of the stream had reached when the next row came,
    or None. `position` is that of the store; a server must have reached it to read the batch.
    """

    stream: int
    row: int
    rows: int = 0
    now: int | None = None
    position: str = ""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> StreamOffset:
        """Raises ValueError for an offset of something else."""
        try:
            return cls(**values)
        except TypeError:
            raise ValueError("the checkpoint is not one of a stream of psoup") from None


@dataclass(frozen=True)
class _Look:
    """What a range of row ids holds: how many rows, the id after the last, the greatest ts."""

    rows: int
    end: int | None
    newest: int | None
    now: int | None
    position: str


class RowRange(InputPartition):
    """The rows of one task: ids `[begin, end)`. There must be `rows` of them, unless it is None."""

    def __init__(self, begin: int, end: int, rows: int | None, position: str) -> None:
        self.begin, self.end, self.rows, self.position = begin, end, rows, position


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches on the driver; each task reads its rows from the store."""

    def __init__(self, options: SparkOptions, names: Sequence[str]) -> None:
        """Raises ValueError for options that do not fit."""
        if any(options.get(name) for name in ("key", "sql", "window")):
            raise ValueError("spark.readStream reads a stream; key, sql and window are for read")
        self._name = options.stream
        self._options, self._names = options, names
        self._most = _row_limit(options.get("maxrowspertrigger"))
        self._fails = options.get("failondataloss").lower() != "false"
        self._client: Client | None = None
        # What `latestOffset` was asked for last, when, and the result.
        self._latest: tuple[tuple[int, int], float, dict[str, Any]] | None = None
        # A row id before which nothing was unread, and NOW at that moment.
        self._idle: tuple[int, int | None] | None = None
        # The end of a query that reads what is available.
        self._target: int | None = None

    # ---- on the driver

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return where a query without a checkpoint begins."""
        stream, start = self._stream(), self._options.get("from") or "earliest"
        if start.isdecimal():
            return asdict(StreamOffset(stream.id, int(start)))
        if start not in ("earliest", "latest"):
            raise ValueError('from: write "earliest", "latest" or a row id')
        edge, answer = self._edge("min(row_id)" if start == "earliest" else "max(row_id) + 1")
        row = stream.row_count if edge is None else edge
        return asdict(StreamOffset(stream.id, row, position=answer.position.hex()))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of a batch that the options set."""
        return ReadMaxRows(self._most) if self._most else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Let the query end with the rows that are there now."""
        self._target = self._edge("max(row_id) + 1")[0] or 0

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next batch; the start if there are no new rows.

        Raises DataLoss if rows left by RETAIN before they were read.
        """
        begin = StreamOffset.of(start)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else 0
        question = begin.row, most
        if self._latest is not None and self._latest[0] == question:
            _, at, offset = self._latest
            if time.monotonic() - at < LATEST_SECONDS:
                return offset
        end = self._next(begin, most)
        offset = start if end is None else asdict(end)
        self._latest = question, time.monotonic(), offset
        return offset

    def _next(self, begin: StreamOffset, most: int) -> StreamOffset | None:
        """Return the end of the next batch; None if there are no new rows."""
        stream = self._stream()
        if begin.stream != stream.id:
            raise ValueError(
                f"stream {self._name} was dropped and made again; begin with another checkpoint"
            )
        ends = [begin.row + most] if most else []
        if self._target is not None:
            ends.append(self._target)
        if ends and min(ends) <= begin.row:
            return None
        look = self._look(begin.row, None, begin.position)
        if look.end is None:
            self._idle = begin.row, look.now
            return None
        end = min(look.end, *ends) if ends else look.end
        if end < look.end:
            look = self._look(begin.row, end, begin.position)
        if self._fails:
            self._check_retention(stream, begin, end, look)
        instants = [instant for instant in (begin.now, look.newest) if instant is not None]
        return StreamOffset(stream.id, end, look.rows, max(instants, default=None), look.position)

    def _check_retention(self, stream: Stream, begin: StreamOffset, end: int, look: _Look) -> None:
        """Raise DataLoss if rows were accepted and left by RETAIN since the offset `begin`.

        Rows that came too late for RETAIN are missing, too. They never were in any answer.
        """
        since = begin.now
        if self._idle is not None and self._idle[0] == begin.row:
            since = self._idle[1]
        missing = end - begin.row - look.rows
        if not missing or stream.retain is None or since is None or look.now is None:
            return
        if look.now - since >= stream.retain / timedelta(microseconds=1):
            raise self._loss(begin.row, end, f"{missing:,} left by RETAIN before they were read")

    def _loss(self, begin: int, end: int, problem: str) -> DataLoss:
        return DataLoss(
            f"stream {self._name}, rows {begin:,} to {end - 1:,}: {problem}. "
            '.option("failOnDataLoss", "false") goes on with what is there'
        )

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[RowRange]:
        """Return the tasks of a batch. Raises DataLoss if it lacks rows that its offset counts."""
        first, last = StreamOffset.of(start), StreamOffset.of(end)
        if not last.rows:
            return []
        is_complete = last.rows == last.row - first.row
        cuts = _cuts(first.row, last.row)
        ranges = [self._range(*cut, is_complete, last.position) for cut in cuts]
        if self._fails:
            rows = sum(part.rows or 0 for part in ranges)
            if rows != last.rows:
                raise self._loss(first.row, last.row, f"{rows:,} of {last.rows:,} rows are left")
        return [part for part in ranges if part.rows != 0]

    def _range(self, begin: int, end: int, is_complete: bool, position: str) -> RowRange:
        rows: int | None = None
        if self._fails:
            rows = end - begin if is_complete else self._look(begin, end, position).rows
        return RowRange(begin, end, rows, position)

    def _stream(self) -> Stream:
        """Return the stream. Raises ValueError for one with a KEY."""
        stream = self._open_client().stream(self._name)
        if stream.key:
            raise ValueError(
                f"stream {self._name} has a KEY, so that its rows are replaced and deleted. Let "
                "psoup pull --changes-to changes.delta append its changes to a Delta table, and "
                "read that"
            )
        return stream

    def _open_client(self) -> Client:
        if self._client is None:
            self._client = self._options.client()
        return self._client

    def _edge(self, expression: str) -> tuple[int | None, Answer]:
        answer = self._open_client().ask(f'SELECT {expression} AS edge FROM "{self._name}"')
        edge = answer.rows[0]["edge"]
        return (None if edge is None else int(edge)), answer

    def _look(self, begin: int, end: int | None, position: str) -> _Look:
        """Return what the row ids from `begin` on hold, all of them if `end` is None."""
        answer = self._open_client().ask(
            "SELECT count(*) AS n, max(row_id) + 1 AS edge, max(ts) AS newest "
            f'FROM "{self._name}" {_window(begin, end)}',
            **_least(position),
        )
        row = answer.rows[0]
        return _Look(
            row["n"],
            row["edge"],
            _microseconds(row["newest"]),
            _microseconds(answer.now),
            answer.position.hex(),
        )

    def stop(self) -> None:
        """Close the connection to the store."""
        if self._client is not None:
            self._client.close()
            self._client = None

    # ---- in a task

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task. Raises DataLoss before the first if some are missing."""
        assert isinstance(partition, RowRange)
        window, least = _window(partition.begin, partition.end), _least(partition.position)

        def text(present: Mapping[str, str]) -> str:
            return f'SELECT {select_list(self._names, present)} FROM "{self._name}" {window}'

        with (
            self._options.client() as client,
            ask_columns(client, self._name, self._names, text, **least) as answer,
        ):
            rows = answer.header.row_count
            if partition.rows is not None and rows != partition.rows:
                problem = f"{rows:,} of {partition.rows:,} rows are left"
                raise self._loss(partition.begin, partition.end, problem)
            yield from answer


def _cuts(begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of tasks, cut at multiples of TASK_ROWS."""
    while begin < end:
        stop = min(end, (begin // TASK_ROWS + 1) * TASK_ROWS)
        yield begin, stop
        begin = stop


def _window(begin: int, end: int | None) -> str:
    return f"BEGIN ROW {begin} END ROW {'LAST' if end is None else end - 1}"


def _least(position: str) -> dict[str, Any]:
    """Return the options of a question to a server that has reached the position."""
    return {"least_position": bytes.fromhex(position)} if position else {}


def _microseconds(instant: datetime | None) -> int | None:
    return None if instant is None else (instant - _UNIX_EPOCH) // timedelta(microseconds=1)


def _row_limit(text: str) -> int:
    if text and not (text.isdecimal() and int(text)):
        raise ValueError("maxRowsPerTrigger: write a number of rows, 1 or more")
    return int(text or 0)
