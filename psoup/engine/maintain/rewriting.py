"""Files of a stem, written again: with the columns that the stream has now, and with their rows
changed by one function.

Row ids never change, so the files are cut at the same edges as any others. Old files stay on the
disk until `discard` deletes them, because readers of earlier epochs may use them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from datastem.arrays import Int64s
from datastem.codec import stem_schema, with_optional
from datastem.schema import StreamSchema
from psoup.engine.ledger import Ledger, stem_name
from psoup.engine.spark.jobs import Outcome, SparkJob, by_table, job_of, run_tasks
from psoup.engine.steps.worker import STEM_BOUNDS, insert
from psoup.store.delta.files import DataFile
from psoup.store.delta.reading import reader

# The size of the files that are written again between two epochs, so that a kill loses little.
_BATCH_BYTES = 1 << 28

# From the rows of a file, ascending by id, to those that are written: fewer of them, or other
# values, but no other ids and no other order. It runs in executors, so it must be picklable.
RowsChange: TypeAlias = Callable[[pa.Table], pa.Table]


def same_rows(rows: pa.Table) -> pa.Table:
    """Change nothing."""
    return rows


@dataclass(frozen=True, slots=True)
class WithoutRows:
    """The change that removes the rows with these ascending ids."""

    ids: Int64s

    def __call__(self, rows: pa.Table) -> pa.Table:
        return rows.filter(pa.array(~np.isin(rows.column("_row_id").to_numpy(), self.ids)))


@dataclass(frozen=True, slots=True)
class FileRewrite:
    """A file of a stem, to be written again with the columns of `schema` after a change."""

    stream_id: int
    schema: StreamSchema
    file: DataFile
    change: RowsChange


def rewrite_file(job: SparkJob, rewrite: FileRewrite) -> list[Outcome]:
    """Write a file again; runs in an executor. A file without remaining rows is not written."""
    name, schema, file = stem_name(rewrite.stream_id), rewrite.schema, rewrite.file
    rows = reader(Path(job.root) / name, file).whole()
    rows = rewrite.change(with_optional(rows, stem_schema(schema).names, schema.optional))
    return insert(job, rewrite.stream_id, rows, tuple(file.low) or STEM_BOUNDS)


class RunRewrites(Protocol):
    def __call__(self, job: SparkJob, rewrites: Sequence[FileRewrite]) -> list[Outcome]:
        """Return the outcomes of `rewrite_file` for all rewrites."""


def run_here(job: SparkJob, rewrites: Sequence[FileRewrite]) -> list[Outcome]:
    """Write files again one after the other in this process."""
    return [outcome for rewrite in rewrites for outcome in rewrite_file(job, rewrite)]


def run_with(spark: SparkSession) -> RunRewrites:
    """Return the function that writes files again in tasks of Spark."""
    return lambda job, rewrites: run_tasks(spark, job, rewrite_file, rewrites)


def rewrite_files(
    ledger: Ledger,
    stream_id: int,
    files: Iterable[DataFile],
    *,
    operation: str,
    change: RowsChange = same_rows,
    run: RunRewrites = run_here,
) -> None:
    """Write files of a stream's stem again, by one commit to the stem; the caller publishes.

    The caller also drops or changes what follows from rows that `change` removes: matches and
    closures. Raise CorruptStore if a file is damaged; then nothing is committed.
    """
    name, schema, files = stem_name(stream_id), ledger.state.streams[stream_id].schema, list(files)
    rewrites = [FileRewrite(stream_id, schema, file, change) for file in files]
    added = by_table(run(job_of(ledger), rewrites)).get(name, ())
    is_changed = change is not same_rows
    if files:
        ledger.commit(name, added, files, operation=operation, data_change=is_changed)
    if is_changed:
        ledger.histories.forget(stream_id)


def rewrite_stem(
    ledger: Ledger,
    stream_id: int,
    *,
    kind: str,
    change: RowsChange = same_rows,
    run: RunRewrites = run_here,
    progress: Callable[[int], None] = lambda size: None,
) -> None:
    """Write all readable files of a stream's stem again, in several epochs of this kind. After a
    kill, those that are published hold, and the rest is as it was.

    `progress` is called with the size of the files that are done.
    """
    write = partial(rewrite_files, operation=kind.upper(), change=change, run=run)
    for batch in _batches(ledger.files(stem_name(stream_id))):
        write(ledger, stream_id, batch)
        ledger.publish(kind)
        progress(sum(file.size for file in batch))


def _batches(files: Iterable[DataFile]) -> Iterator[list[DataFile]]:
    """Yield files by their first rows, as many at a time as one epoch may write."""
    batch, size = list[DataFile](), 0
    for file in sorted(files, key=lambda file: file.low.get("_row_id", 0)):
        if batch and size + file.size > _BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(file)
        size += file.size
    if batch:
        yield batch
