"""Work only for rows in reach of a window: 1,000 new queries of ten minutes over 30 days of rows.

Steps, back-fill and housekeeping are the engine's own, taken one after the other in this process.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.report import Report
from datastem.instants import DAY, MINUTE, SECOND
from psoup.engine.ledger import Ledger, stem_name
from psoup.engine.matching.backfill import Backfill
from psoup.engine.settings import Rest
from psoup.engine.spark.jobs import Outcome
from psoup.engine.spark.session import make_scratch, open_session
from psoup.engine.steps.worker import Slice
from psoup.store import Store
from psoup.store.delta.reading import reader, row_groups
from results.window import Bound, TimeWindow
from tests.support.engine.author import Author, sensor_is, timed
from tests.support.engine.pump import QUIET, Pump

QUERIES = 1000
BEGIN, SPAN = 1_800_000_000 * SECOND, 30 * DAY
WINDOW = TimeWindow(Bound(1 - 10 * MINUTE, True))
READ_AIM = 1.0
_BATCH = 1 << 19


class CountingBackfill(Backfill):
    """Counts the rows of the row groups that slices read, needed or not."""

    rows = 0

    def _run(self, ledger: Ledger, slices: list[Slice]) -> list[Outcome]:
        for piece in slices:
            root = ledger.folder(stem_name(piece.stream_id)).root
            for file in piece.files:
                metadata = reader(root, file).metadata
                groups = row_groups(metadata, "_row_id", piece.lo, piece.hi)
                self.rows += sum(metadata.row_group(group).num_rows for group in groups)
        return super()._run(ledger, slices)


def run(folder: Path, quick: bool) -> Report:
    rows = 2_000_000 if quick else 16_000_000
    report = Report(
        "interest", f"{QUERIES:,} new queries of RANGE 10 MINUTES over 30 days, {rows:,} rows"
    )
    store = Store.open(folder / "store", create=True, sync=False)
    spark = open_session(make_scratch(store.id), master="local[2]")
    try:
        _measure(report, store, spark, rows)
    finally:
        spark.stop()
    return report


def _measure(report: Report, store: Store, spark: Any, rows: int) -> None:
    author = Author(store)
    stream = author.create(timed())
    pump = _pump(store, spark, Rest.NEVER)
    for first in range(0, rows, _BATCH):
        author.publish(stream, _rows(first, min(first + _BATCH, rows), rows))
        pump.run()
    for number in range(QUERIES):
        author.register(stream, sensor_is(number), window=WINDOW)
    pump.step()
    reached, seconds = _run(pump)
    share = 100 * reached / rows
    report.add(
        "rows read until done for all windows", share, "% of all", aim=f"≤ {READ_AIM:g} %",
        met=share <= READ_AIM if rows > 10_000_000 else None,
    )  # fmt: skip
    narrow = _bytes(pump)
    idle = _pump(store, spark, Rest.IDLE)
    everything, longer = _run(idle)
    report.add("and the rest, when idle", 100 * everything / rows, "% of all")
    report.add("done for all windows in", seconds, "s", ratio=seconds / longer, beside="the rest")
    whole = _bytes(idle)
    report.add("matches on disk, the rest done", whole / 1e6, "MB")
    report.add(
        "matches on disk, done for all windows", narrow / 1e6, "MB", ratio=narrow / whole,
        beside="the rest done",
    )  # fmt: skip
    cut = _pump(store, spark, Rest.NEVER)
    cut.run()
    remaining, kept_share = _bytes(cut), (1 << 20) / rows + 10 * MINUTE / SPAN
    report.add(
        "matches on disk, the rest dropped again", remaining / 1e6, "MB", ratio=remaining / whole,
        beside="the rest done", aim=f"≤ {1.5 * kept_share:.2f} ×",
        met=remaining / whole <= 1.5 * kept_share,
    )  # fmt: skip


def _pump(store: Store, spark: Any, rest: Rest) -> Pump:
    pump = Pump(store, spark, replace(QUIET, rest=rest))
    pump.backfill = CountingBackfill(spark, pump.settings)
    return pump


def _run(pump: Pump) -> tuple[int, float]:
    """How many rows back-fill reads until nothing is left for it, and how long it takes."""
    started = time.perf_counter()
    while pump.backfill.advance(pump.ledger):
        pass
    seconds = time.perf_counter() - started
    pump.run()
    assert isinstance(pump.backfill, CountingBackfill)
    return pump.backfill.rows, seconds


def _bytes(pump: Pump) -> int:
    return sum(file.size for file in pump.ledger.files("matches"))


def _rows(first: int, stop: int, total: int) -> pa.RecordBatch:
    """Rows of any sensor, evenly over the 30 days."""
    schema, numbers = timed().arrow, np.arange(first, stop)
    sensors = np.random.default_rng(first).integers(0, QUERIES, stop - first)
    at = pa.array(BEGIN + numbers * (SPAN // total)).cast(schema.field("at").type)
    return pa.RecordBatch.from_arrays([pa.array(sensors), at], schema=schema)
