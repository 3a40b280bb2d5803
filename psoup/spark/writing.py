"""DataFrames into streams, each batch once, however many tasks it has and however often it runs.

Tasks only hand over their rows. The driver sorts the rows of a batch by all columns, so that they
are the same whatever the tasks were, and publishes them with a mark: which batch, and how many of
its rows are in the store.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from client_sdk import Client, MarkedBatch
from psoup.source.feeding.piece import decode_mark, encode_mark
from psoup.spark.options import SparkOptions

# More rows of a task than these bytes go through the staging folder.
MESSAGE_BYTES = 64 << 20
BATCH_ROWS = 10_000
BATCH_BYTES = 8 << 20
# How long the store remembers a write without a publisher's name.
_LEASE = timedelta(days=1)


@dataclass
class TaskRows(WriterCommitMessage):
    """The rows of a task as an Arrow IPC stream: here, or in a file."""

    content: bytes = b""
    path: str = ""

    def table(self) -> pa.Table:
        source = self.content if not self.path else Path(self.path).read_bytes()
        return pa.ipc.open_stream(source).read_all()

    def discard(self) -> None:
        if self.path:
            Path(self.path).unlink(missing_ok=True)


@dataclass
class _Writer:
    options: SparkOptions

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskRows:
        """Hand over the rows of a task. Raises ValueError if they are too many without staging."""
        sink = pa.BufferOutputStream()
        writer = None
        for batch in iterator:
            writer = writer or pa.ipc.new_stream(sink, batch.schema)
            writer.write_batch(batch)
        if writer is None:
            return TaskRows()
        writer.close()
        content = sink.getvalue()
        if content.size <= MESSAGE_BYTES:
            return TaskRows(content.to_pybytes())
        folder = self.options.get("staging")
        if not folder:
            raise ValueError(
                f"a task has {content.size:,} bytes of rows, more than {MESSAGE_BYTES:,}: use more "
                'partitions, or .option("staging", FOLDER) with one that driver and executors see'
            )
        path = Path(folder) / f"psoup-{secrets.token_hex(16)}.arrows"
        path.write_bytes(content.to_pybytes())
        return TaskRows(path=str(path))

    def _publish(
        self,
        messages: Sequence[WriterCommitMessage | None],
        publisher: str,
        batch: int,
        lease: timedelta | None = None,
    ) -> None:
        """Publish a batch, or what is missing of it."""
        rows = [message for message in messages if isinstance(message, TaskRows)]
        tables = [message.table() for message in rows if message.content or message.path]
        if tables:
            with self.options.client() as client:
                table = sorted_rows(pa.concat_tables(tables))
                publish_batch(client, self.options.stream, table, publisher, batch, lease)
        self._discard(messages)

    def _discard(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        for message in messages:
            if isinstance(message, TaskRows):
                message.discard()

    def abort(self, messages: Sequence[WriterCommitMessage | None], *batch: int) -> None:
        self._discard(messages)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """`df.write`: without the option `publisher`, each write adds its rows; with it, the same write
    again adds nothing.
    """

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if name := self.options.get("publisher"):
            self._publish(messages, name, 0)
        else:
            self._publish(messages, f"spark/{secrets.token_hex(16)}", 0, _LEASE)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """`df.writeStream`: batches that are repeated after a failure add nothing twice."""

    def __init__(self, options: SparkOptions) -> None:
        super().__init__(options)
        place = options.get("checkpointlocation")
        digest = hashlib.blake2b(place.encode(), digest_size=16).hexdigest()
        self._publisher = options.get("publisher") or (f"spark/{digest}" if place else "")
        if not self._publisher:
            raise ValueError('give .option("checkpointLocation", …) or .option("publisher", NAME)')

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._publish(messages, self._publisher, batchId)


def publish_batch(
    client: Client,
    stream: str,
    table: pa.Table,
    name: str,
    number: int,
    lease: timedelta | None = None,
) -> None:
    """Publish the rows of a batch under a publisher, from where its mark is. Raises ValueError if
    the publisher is used for something else."""
    owner = client.owner()
    records = client.publishers(owner=owner, prefix=name)
    record = next((record for record in records if record.name == name), None)
    mark = decode_mark(record.mark) if record and record.mark else {}
    if record and "batch" not in mark:
        raise ValueError(f"publisher {name} is used for something else")
    if mark.get("batch", -1) > number:
        return
    rows = int(mark["rows"]) if mark.get("batch") == number else 0
    sequence = record.sequence + 1 if record else 1
    publisher = client.publisher(name, next_sequence=sequence, lease=lease)
    publisher.publish_many(stream, _batches(table, rows, number))


def _batches(table: pa.Table, start: int, number: int) -> Iterator[MarkedBatch]:
    while start < table.num_rows:
        count = BATCH_ROWS
        while count > 1 and table.slice(start, count).nbytes > BATCH_BYTES:
            count //= 2
        rows = table.slice(start, count)
        start += rows.num_rows
        yield MarkedBatch(rows, encode_mark({"batch": number, "rows": start}))


def sorted_rows(table: pa.Table) -> pa.Table:
    """Return the rows sorted by all columns. Equal rows are equal, so their order is no matter."""
    return table.sort_by([(name, "ascending") for name in table.column_names])
