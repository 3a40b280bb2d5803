"""The time that Spark takes for nothing: a job of one task that passes one row through Python."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from benchmarks.timing import Times, timed
from psoup.engine.spark.session import open_session


def empty_jobs(scratch: Path, rounds: int) -> Times:
    """In a session like the engine's, warm. No other session may be open in this process."""
    spark = open_session(scratch, master="local[2]")
    try:
        row = spark.range(0, 1, 1, 1)
        seconds = [timed(row.mapInArrow(_same, "id long").collect)[0] for _ in range(rounds + 10)]
    finally:
        spark.stop()
    return Times(seconds[10:])


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches
