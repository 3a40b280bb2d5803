"""DataFrames into streams, each batch once, however many tasks it has and however often it runs.

Tasks only hand over their rows. The driver sorts the rows of a batch by all columns, so that they
are the same whatever the tasks were, and publishes them with a mark: which batch of which query,
the digest of its rows, and how many of them are in the store.
"""

from __future__ import annotations

import hashlib
import secrets
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
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
# Spark sets it in each task of a streaming query. A checkpoint has one, and a new one another.
_QUERY_ID = "sql.streaming.queryId"
_DIGEST_ROWS = 65_536


@dataclass(frozen=True)
class SparkBatch:
    """A batch of a query, or a write, which is batch 0 of no query. A `lenient` one is taken for
    what the store has under its number, even if it had other rows."""

    query: str
    number: int
    lenient: bool = False


@dataclass
class TaskRows(WriterCommitMessage):
    """The rows of a task as an Arrow IPC stream: here, or in a file. `query` is the id of the
    streaming query."""

    content: bytes = b""
    path: str = ""
    query: str = ""

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
        context = TaskContext.get()
        query = (context.getLocalProperty(_QUERY_ID) or "") if context else ""
        if writer is None:
            return TaskRows(query=query)
        writer.close()
        content = sink.getvalue()
        if content.size <= MESSAGE_BYTES:
            return TaskRows(content.to_pybytes(), query=query)
        folder = self.options.get("staging")
        if not folder:
            raise ValueError(
                f"a task has {content.size:,} bytes of rows, more than {MESSAGE_BYTES:,}: use more "
                'partitions, or .option("staging", FOLDER) with one that driver and executors see'
            )
        path = Path(folder) / f"psoup-{secrets.token_hex(16)}.arrows"
        path.write_bytes(content.to_pybytes())
        return TaskRows(path=str(path), query=query)

    def _publish(
        self,
        messages: Sequence[WriterCommitMessage | None],
        publisher: str,
        batch: SparkBatch,
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
    again adds nothing, and another one is refused.
    """

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if name := self.options.get("publisher"):
            self._publish(messages, name, SparkBatch("", 0))
        else:
            name = f"spark/{secrets.token_hex(16)}"
            self._publish(messages, name, SparkBatch("", 0), _LEASE)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """`df.writeStream`: batches that are repeated after a failure add nothing twice.

    The publisher has the id of the query, which Spark keeps in the checkpoint. So a query that
    begins again without its checkpoint is another one, and loses no rows to numbers of the first.
    """

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        query = next((m.query for m in messages if isinstance(m, TaskRows) and m.query), "")
        if not query:
            raise ValueError("the tasks of the query do not know its id")
        is_lenient = self.options.get("failondataloss").lower() == "false"
        name = self.options.get("publisher") or f"spark/{query}"
        self._publish(messages, name, SparkBatch(query, batchId, is_lenient))


def publish_batch(
    client: Client,
    stream: str,
    table: pa.Table,
    name: str,
    batch: SparkBatch,
    lease: timedelta | None = None,
) -> None:
    """Publish the sorted rows of a batch under a publisher, from where its mark is. Raises
    ValueError if the store has other rows under the same name and number."""
    owner = client.owner()
    records = client.publishers(owner=owner, prefix=name)
    record = next((record for record in records if record.name == name), None)
    mark = {"batch": batch.number, "query": batch.query, "digest": _digest(table)}
    start = _start(name, batch, mark, record.mark) if record else 0
    sequence = record.sequence + 1 if record else 1
    publisher = client.publisher(name, next_sequence=sequence, lease=lease)
    publisher.publish_many(stream, _batches(table, start, mark))


def _start(name: str, batch: SparkBatch, mark: dict[str, Any], last_mark: bytes) -> int:
    """Return how many rows of a batch the store has, by the last mark of the publisher; all of
    them are more than there are. Raises ValueError."""
    last = _decoded(last_mark)
    if mark.keys() - last.keys():
        raise ValueError(f"publisher {name} is used for something else")
    if last["query"] != batch.query:
        raise ValueError(
            f"publisher {name} has published batches of another query, up to number "
            f"{last['batch']}. A query with a new checkpoint reads everything again and needs "
            "another publisher; without the option it has one of its own"
        )
    if last["batch"] < batch.number:
        return 0
    is_same = (last["batch"], last["digest"]) == (batch.number, mark["digest"])
    if not is_same and not batch.query:
        raise ValueError(
            f"publisher {name} has published other rows already: give every write a name of its own"
        )
    if not is_same and not batch.lenient:
        raise ValueError(
            f"batch {batch.number} of publisher {name} is not the one that the store has: that is "
            f"batch {last['batch']}. Either the checkpoint is an older copy, and rows would be "
            "lost; or the query gives other rows when it is repeated. "
            'option("failOnDataLoss", "false") goes on as if it were the same'
        )
    return int(last["rows"]) if last["batch"] == batch.number else sys.maxsize


def _decoded(mark: bytes) -> dict[str, Any]:
    """Return a mark; nothing if it is not of a source."""
    try:
        return decode_mark(mark)
    except ValueError:
        return {}


def _batches(table: pa.Table, start: int, mark: dict[str, Any]) -> Iterator[MarkedBatch]:
    while start < table.num_rows:
        count = BATCH_ROWS
        while count > 1 and table.slice(start, count).nbytes > BATCH_BYTES:
            count //= 2
        rows = table.slice(start, count)
        start += rows.num_rows
        yield MarkedBatch(rows, encode_mark({**mark, "rows": start}))


def sorted_rows(table: pa.Table) -> pa.Table:
    """Return the rows sorted by all columns. Equal rows are equal, so their order is no matter."""
    return table.sort_by([(name, "ascending") for name in table.column_names])


def _digest(table: pa.Table) -> str:
    """Return a digest of rows in their order, whatever Arrow has under a NULL."""
    digest = hashlib.blake2b(table.schema.serialize(), digest_size=16)
    for start in range(0, table.num_rows, _DIGEST_ROWS):
        for column in table.slice(start, _DIGEST_ROWS).columns:
            for values in (column.is_valid(), column.drop_null()):
                digest.update(pa.record_batch([values.combine_chunks()], ["values"]).serialize())
    return digest.hexdigest()
