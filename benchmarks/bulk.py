"""Many rows of a join: old ones, by tasks with Arrow in slices between steps and by Spark's join
beside the loop; and new ones of one step.

Two streams with as many rows, each of which has one partner. Both ways enlarge the same box from
nothing to all rows. The machine may be busy: costs are processor time of driver, JVM and workers.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.memory import descendants, processor
from benchmarks.report import Report
from datastem.arrays import Int64s
from datastem.schema import StreamSchema
from psoup.engine.composites.boxes import CompositeBox
from psoup.engine.settings import EngineSettings
from psoup.engine.spark.session import open_session
from psoup.store import Store
from querystem.expressions import TRUE
from tests.support.engine.author import READINGS, Author
from tests.support.engine.composites import Joined, equal, register_join
from tests.support.engine.pump import Pump

BATCH_ROWS = 1 << 16
ALWAYS_SPARK, ALWAYS_ARROW = 0.0, math.inf
OTHER = StreamSchema("other", READINGS.columns)


def run(folder: Path, quick: bool) -> Report:
    sizes = (1 << 16, 1 << 18) if quick else (1 << 18, 1 << 20, 1 << 22)
    spark = open_session(folder / "scratch", master="local[2]")
    report = Report("bulk", "many rows of a join of two legs, 2 tasks at a time")
    try:
        _measure_steps(report, spark, Store.open(folder / "new", create=True, sync=False), sizes[0])
        for rows in sizes:
            _measure(report, spark, Store.open(folder / str(rows), create=True, sync=False), rows)
    finally:
        spark.stop()
    return report


def _measure_steps(report: Report, spark: SparkSession, store: Store, most: int) -> None:
    """Measure whole steps: their rows are stored, matched and joined."""
    author, dice = Author(store), np.random.default_rng(7)
    streams = author.create(READINGS), author.create(OTHER)
    join = register_join(author, [(stream, TRUE) for stream in streams], [equal(0, 1)])
    limits = replace(EngineSettings(), housekeeping=1e9, step_bytes=1 << 40)
    pump = Pump(store, spark, limits)
    pump.run()
    # The first step starts workers; it is measured again.
    for number, rows in enumerate((1_000, 1_000, 1 << 15, 1 << 16, most, 4 * most)):
        for stream in streams:
            publish(author, stream, dice.permutation(rows))
        before = processor(descendants())
        pump.step()
        spent = processor(descendants()) - before
        what = f"a step with {rows:,} rows a leg{', first' if not number else ''}"
        report.add(f"{what}: processor time", spent, "s")
        report.add(f"{what}: for each row", spent / (2 * rows) * 1e6, "µs")
    assert pump.ledger.composites[join.composite_id].high


def publish(author: Author, stream: int, keys: Int64s, batch_rows: int = BATCH_ROWS) -> None:
    """Publish a row for each key."""
    for first in range(0, len(keys), batch_rows):
        author.publish(stream, _batch(keys[first : first + batch_rows]))


def _measure(report: Report, spark: SparkSession, store: Store, rows: int) -> None:
    author, dice = Author(store), np.random.default_rng(7)
    streams = author.create(READINGS), author.create(OTHER)
    for stream in streams:
        publish(author, stream, dice.permutation(rows))
    join = register_join(author, [(stream, TRUE) for stream in streams], [equal(0, 1)])
    settings = replace(EngineSettings(), housekeeping=1e9)
    pump = Pump(store, spark, settings)
    pump.run()
    for name, factor, rounds in (("Arrow", ALWAYS_ARROW, 1), ("Spark", ALWAYS_SPARK, 2)):
        for number in range(rounds):
            pump = Pump(store, spark, replace(settings, spark_join_factor=factor))
            seconds, cpu = _grow(pump, join)
            way = f"{name}{', again' if number else ''}"
            report.add(f"{rows:,} rows a leg, {way}: processor time", cpu, "s")
            report.add(f"{rows:,} rows a leg, {way}: elapsed", seconds, "s")


def _grow(pump: Pump, join: Joined) -> tuple[float, float]:
    """Return the seconds and the processor time from an empty box to one with all rows."""
    composite = pump.ledger.state.composites[join.composite_id]
    CompositeBox(pump.ledger, composite, pump.settings).reset()
    pump.ledger.publish("join")
    while pump.ledger.composites[join.composite_id].since is None:
        assert pump.growing.advance(pump.ledger)
    started, before = time.monotonic(), processor(descendants())
    while pump.growing.advance(pump.ledger) or pump.growing.idle_in:
        if pump.growing.idle_in:
            time.sleep(0.05)
    assert pump.ledger.composites[join.composite_id].since == 0
    return time.monotonic() - started, processor(descendants()) - before


def _batch(keys: Int64s) -> pa.RecordBatch:
    arrays = [pa.array(keys.astype(np.int64)), pa.array(keys.astype(np.float64))]
    return pa.RecordBatch.from_arrays(arrays, schema=READINGS.arrow)
