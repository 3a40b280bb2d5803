"""All closures of a keyed stream, derived from its rows in tasks.

One task derives those of a stem that is not large. A closure depends on the rows of one stream key
only, so Spark shuffles the rows of a large one by range of their key's digest, tasks derive the
closures of a range, and Spark shuffles those by segment.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from datastem.codec import HISTORY_COLUMNS
from datastem.history import RANGE_ROWS, Closures, History, all_closures, key_ranges
from datastem.instants import FOR_EVER
from datastem.keyed_rows import KeyedRows
from psoup.engine.ledger import stem_name
from psoup.engine.spark.jobs import Outcome, SparkJob, Written, by_table, run_tasks
from psoup.engine.spark.scanning import Batches, Damages, StemScan
from psoup.engine.steps.histories import closure_rows, read_rows
from psoup.engine.steps.pieces import ROW_SEGMENT_BITS
from psoup.engine.steps.worker import CLOSURE_BOUNDS, write_segments
from psoup.store.delta.files import DataFile

# Closures of a stem with more rows are derived in several tasks, with a shuffle
# (docs/explanation/decisions/engine.md).
TASK_ROWS = 1 << 24

_ROWS = pa.schema([(name, pa.int64()) for name in ("range", "key", "ts", "id")])
_CLOSURES = pa.schema([(name, pa.int64()) for name in ("segment", "id", "end", "by")])


@dataclass(frozen=True, slots=True)
class ClosingJob:
    """The derivation of all closures of a stream in tasks, from these files of its stem in the
    store's folder `root`, as of an epoch."""

    root: str
    files: tuple[DataFile, ...]
    stream_id: int
    epoch: int
    sync: bool

    @property
    def stem(self) -> Path:
        return Path(self.root) / stem_name(self.stream_id)

    def run(self, spark: SparkSession) -> list[DataFile]:
        """Write the closures; return their files. Raise CorruptStore if a file of the stem is
        damaged or missing."""
        if sum(file.rows for file in self.files) > TASK_ROWS:
            return self._shuffle(spark)
        outcomes = run_tasks(spark, SparkJob(self.root, 0, self.sync), derive, [self])
        return by_table(outcomes).get("closures", [])

    def _shuffle(self, spark: SparkSession) -> list[DataFile]:
        damages = Damages(spark)
        ranges = -(-sum(file.rows for file in self.files) // RANGE_ROWS)
        scan = StemScan(str(self.stem), self.files, 0, FOR_EVER, HISTORY_COLUMNS)
        rows = damages.frame(spark, scan, partial(ranged_rows, ranges), _ROWS)
        closures = (
            rows.repartition(max(ranges, 1), "range")
            .sortWithinPartitions("range", "id")
            .mapInArrow(close_ranges, from_arrow_schema(_CLOSURES))
        )
        segments = {file.low["_row_id"] >> ROW_SEGMENT_BITS for file in self.files if file.low}
        by_segment = closures.repartition(max(len(segments), 1), "segment")
        written = by_segment.sortWithinPartitions("segment").mapInArrow(self.write, "file binary")
        files = [pickle.loads(row["file"]) for row in written.collect()]
        damages.check()
        return files

    def store(self, closures: list[Closures]) -> list[DataFile]:
        """Write closures as files of their segments. Runs in an executor."""
        rows = closure_rows(self.stream_id, closures, self.epoch)
        root = Path(self.root) / "closures"
        return write_segments(root, self.stream_id, rows, CLOSURE_BOUNDS, self.sync)

    def write(self, batches: Batches) -> Batches:
        """Write closures, sorted by segment; yield their files. Runs in an executor."""
        for table in _groups(batches, "segment"):
            ids, ends, by = (table.column(name).to_numpy() for name in ("id", "end", "by"))
            files = self.store([Closures(ids, ends, by)])
            yield pa.RecordBatch.from_pydict({"file": [pickle.dumps(file) for file in files]})


def derive(job: SparkJob, work: ClosingJob) -> list[Outcome]:
    """Derive and write all closures of a stream. Runs in an executor."""
    closures = all_closures(read_rows(work.stem, work.files))
    return [Written("closures", file) for file in work.store(closures)]


def ranged_rows(ranges: int, batches: Batches) -> Batches:
    """Yield rows of a stem with the range of their stream key. Runs in an executor."""
    for batch in batches:
        rows = KeyedRows.of(batch)
        columns = (key_ranges(rows.keys, ranges), rows.keys, rows.ts, rows.ids)
        yield pa.RecordBatch.from_arrays(list(map(pa.array, columns)), schema=_ROWS)


def close_ranges(batches: Batches) -> Batches:
    """Yield the closures of rows that are sorted by range and id. Runs in an executor."""
    for table in _groups(batches, "range"):
        keys, ts, ids = (table.column(name).to_numpy() for name in ("key", "ts", "id"))
        # Deletes are rows of the order, too: operations make no difference.
        rows = KeyedRows(keys, ts, ids, np.zeros(len(ids), np.int8))
        closures = History().closures(rows)
        columns = (closures.ids >> ROW_SEGMENT_BITS, closures.ids, closures.ends, closures.by)
        yield pa.RecordBatch.from_arrays(list(map(pa.array, columns)), schema=_CLOSURES)


def _groups(batches: Batches, name: str) -> Iterator[pa.Table]:
    """Yield the rows of each value of a column by which the batches are sorted."""
    pending: list[pa.RecordBatch] = []
    value = None
    for batch in batches:
        numbers = batch.column(name).to_numpy()
        edges = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
        for first, last in zip(edges[:-1], edges[1:], strict=True):
            if first == last:
                continue
            if pending and numbers[first] != value:
                yield pa.Table.from_batches(pending).combine_chunks()
                pending = []
            value = numbers[first]
            pending.append(batch.slice(first, last - first))
    if pending:
        yield pa.Table.from_batches(pending).combine_chunks()
