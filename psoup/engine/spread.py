"""Spark jobs: a function and units of work, one task a unit; what the tasks wrote comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from datastem.schema import StreamSchema
from psoup.engine.outcome import SQL_SCHEMA, Outcome, from_rows, to_batch
from psoup.engine.worker import Job, fresh

Unit = TypeVar("Unit")


def spread(
    spark: SparkSession,
    job: Job,
    work: Callable[[Job, Unit], list[Outcome]],
    units: Sequence[Unit],
) -> list[Outcome]:
    """Runs `work(job, unit)` for every unit."""

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield to_batch(work(job, units[number]))

    if not units:
        return []
    frame = spark.range(0, len(units), 1, len(units))
    return from_rows(frame.mapInArrow(task, SQL_SCHEMA).collect())


def spread_fresh(frame: DataFrame, job: Job, schemas: Mapping[int, StreamSchema]) -> list[Outcome]:
    """The new events of a micro-batch, in the partitions the source made."""

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return fresh(job, schemas, batches)

    return from_rows(frame.mapInArrow(task, SQL_SCHEMA).collect())
