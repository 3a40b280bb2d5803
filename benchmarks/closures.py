"""Closures of keyed streams: of a step, and all of them; the driver's memory, and retention.

Every hundredth row is late, and a key has eight rows. Costs are processor time.
"""

from __future__ import annotations

import time
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.memory import descendants, processor
from benchmarks.report import Report
from datastem.arrays import Int64s
from datastem.codec import INSTANT, stem_schema
from datastem.keyed_rows import KeyedRows
from datastem.schema import Column, StreamSchema
from datastem.types import BIGINT, TIMESTAMP
from psoup.engine.ledger import stem_name
from psoup.engine.spark.jobs import SparkJob, by_table
from psoup.engine.spark.session import open_session
from psoup.engine.steps import closing
from psoup.engine.steps.closing import ClosingJob
from psoup.engine.steps.key_order import KeyOrder
from psoup.engine.steps.worker import insert
from psoup.store import Store
from psoup.store.delta.files import DataFile

STREAM = StreamSchema(
    "keyed", (Column("sensor", BIGINT), Column("at", TIMESTAMP)), key=("sensor",), ordered_by="at"
)
ROWS_OF_KEY, LATE_SHARE, LATE_MICROSECONDS = 8, 0.01, 100_000_000
FILE_ROWS = 1 << 20


def run(folder: Path, quick: bool) -> Report:
    sizes = (1 << 18,) if quick else (1 << 20, 1 << 22)
    report = Report("closures", "closures of keyed streams, 2 tasks at a time")
    for rows in sizes:
        _measure_steps(report, rows)
    spark = open_session(folder / "scratch", master="local[2]")
    try:
        for rows in sizes:
            store = Store.open(folder / str(rows), create=True, sync=False)
            _measure_all(report, spark, store, rows)
    finally:
        spark.stop()
    return report


def _rows(dice: np.random.Generator, keys: Int64s, first: int, count: int) -> KeyedRows:
    ids = np.arange(first, first + count)
    late = dice.random(count) < LATE_SHARE
    ts = 1000 * ids - np.where(late, dice.integers(0, LATE_MICROSECONDS, count), 0)
    return KeyedRows(dice.choice(keys, count), ts, ids, np.zeros(count, np.int8))


def _keys(dice: np.random.Generator, rows: int) -> Int64s:
    return dice.integers(-(2**63), 2**63 - 1, rows // ROWS_OF_KEY)


def _measure_steps(report: Report, rows: int) -> None:
    dice = np.random.default_rng(1)
    keys = _keys(dice, rows)
    parts = (
        _rows(dice, keys, first, min(FILE_ROWS, rows - first))
        for first in range(0, rows, FILE_ROWS)
    )
    memory, started = _own_memory(), time.process_time()
    order, high = KeyOrder(parts), rows
    report.add(f"{rows:,} rows, sorted", time.process_time() - started, "s")
    report.add(f"{rows:,} rows, own memory of a row", (_own_memory() - memory) / rows, "B")
    for count in (1_000, 65_536):
        seconds = []
        for _ in range(16):
            new = _rows(dice, keys, high, count)
            started = time.process_time()
            order.closures(new)
            order.insert(new)
            seconds.append(time.process_time() - started)
            high += count
        what = f"{rows:,} rows, a step of {count:,} more"
        report.add(f"{what}, median", 1000 * sorted(seconds)[len(seconds) // 2], "ms")
        report.add(f"{what}, mean", 1000 * sum(seconds) / len(seconds), "ms")
    started = time.process_time()
    ended = order.ended(500 * rows)
    order.remove(ended[: len(ended) // 8])
    report.add(f"{rows:,} rows, a round of retention", time.process_time() - started, "s")


def _own_memory() -> int:
    """Return the bytes that only this process can have: not those of mapped files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))


def _measure_all(report: Report, spark: SparkSession, store: Store, rows: int) -> None:
    job = ClosingJob(str(store.root), tuple(_write(store, rows)), 1, 1, False)
    closures = set[int]()
    for limit, what in ((rows, "in one task"), (0, "with a shuffle")):
        for again in ("", ", again"):
            with patch.object(closing, "TASK_ROWS", limit):
                driver, before = time.process_time(), processor(descendants())
                closures.add(sum(file.rows for file in job.run(spark)))
            seconds = processor(descendants()) - before
            report.add(f"{rows:,} rows, all {what}{again}", seconds, "s")
            report.add("  of that, the driver's Python", time.process_time() - driver, "s")
    assert len(closures) == 1


def _write(store: Store, rows: int) -> list[DataFile]:
    """Write the stem of stream 1; return its files."""
    dice, schema = np.random.default_rng(1), stem_schema(STREAM)
    keys, files = _keys(dice, rows), list[DataFile]()
    store.create_stem(1, STREAM)
    for first in range(0, rows, FILE_ROWS):
        part = _rows(dice, keys, first, min(FILE_ROWS, rows - first))
        values = {"_row_id": part.ids, "_ts": part.ts, "_key": part.keys}
        columns = [
            pa.array(values.get(field.name, np.zeros(len(part), np.int64)))
            .cast(INSTANT if pa.types.is_timestamp(field.type) else field.type)
            .cast(field.type)
            for field in schema
        ]
        table = pa.Table.from_arrays(columns, schema=schema)
        written = by_table(insert(SparkJob(str(store.root), 0, False), 1, table))
        files += written[stem_name(1)]
    return files
