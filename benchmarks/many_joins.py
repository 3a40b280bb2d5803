"""Many registered joins that share one composite: what a small step and a look for work cost.

Each query has another condition on its first leg, one of several on its second. All figures are
processor time: of the driver, and of all processes.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.memory import descendants, processor
from benchmarks.report import Report
from psoup.engine.settings import EngineSettings
from psoup.engine.spark.session import open_session
from psoup.store import Store
from psoup.store.log.events import Entry, Event
from psoup.store.log.position import Position
from tests.support.engine.author import OTHER, READINGS, Author, above, sensor_is
from tests.support.engine.composites import equal, register_join
from tests.support.engine.pump import Pump

SIZES, QUICK_SIZES = (1_000, 10_000, 100_000), (1_000, 5_000)
STEP_ROWS, STEPS = 1_000, 8
COMMIT_EVENTS = 1_000
SECOND_LEGS = 10


class _ManyAuthor(Author):
    """An author whose events are committed many at a time."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._entries: list[Entry] = []

    def append(self, event: Event) -> Position:
        self._clock += 1
        version = self.store.log.latest_version(self._version) + 1
        position = Position(version, len(self._entries))
        entry = Entry(position, self._clock, "main", "main", event)
        self._entries.append(entry)
        self.state.apply(entry)
        if len(self._entries) == COMMIT_EVENTS:
            self.flush()
        return position

    def flush(self) -> None:
        if self._entries:
            self.store.log.append(self._entries[0].position.version, self._entries)
            self._version, self._entries = self._entries[0].position.version, []


def run(folder: Path, quick: bool) -> Report:
    spark = open_session(folder / "scratch", master="local[2]")
    report = Report("many_joins", "one composite, in processor time")
    try:
        for joins in QUICK_SIZES if quick else SIZES:
            store = Store.open(folder / str(joins), create=True, sync=False)
            author = _ManyAuthor(store)
            streams = author.create(READINGS), author.create(OTHER)
            for number in range(joins):
                legs = [sensor_is(number), above(number % SECOND_LEGS)]
                register_join(author, list(zip(streams, legs, strict=True)), [equal(0, 1)])
            author.flush()
            pump = Pump(store, spark, EngineSettings(housekeeping=1e9))
            pump.run()
            _measure(report, pump, author, streams, joins)
    finally:
        spark.stop()
    return report


def _measure(
    report: Report, pump: Pump, author: _ManyAuthor, streams: tuple[int, int], joins: int
) -> None:
    dice = np.random.default_rng(secrets.randbits(32))

    def look() -> None:
        assert not pump.growing.advance(pump.ledger)

    steps, looks = list[tuple[float, float]](), list[float]()
    for _ in range(STEPS):
        for stream in streams:
            keys = dice.integers(0, joins, STEP_ROWS)
            arrays = [pa.array(keys), pa.array(dice.uniform(0, 20, STEP_ROWS))]
            author.publish(stream, pa.RecordBatch.from_arrays(arrays, schema=READINGS.arrow))
        author.flush()
        steps.append(_spent(pump.step))
        # Queries and rows are matched; nothing of the composite is to do.
        pump.run()
        looks.append(_spent(look)[0])
    marks = pump.ledger.composites
    assert all(mark.since == 0 and mark.high for mark in marks.values())
    driver, processes = (1e3 * float(value) for value in np.median(steps, axis=0))
    report.add(f"{joins:,} joins, a step with {STEP_ROWS:,} rows a leg: the driver", driver, "ms")
    report.add("  all processes", processes, "ms")
    report.add(f"{joins:,} joins, a look for work: the driver", 1e3 * np.median(looks), "ms")


def _spent(work: Callable[[], None]) -> tuple[float, float]:
    """Return the processor seconds of the driver's Python and of all processes."""
    every, driver = processor(descendants()), time.process_time()
    work()
    return time.process_time() - driver, processor(descendants()) - every
