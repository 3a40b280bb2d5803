"""Joins that are found ahead: new rows of a step, and old rows by Spark's join, with more cores."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.bulk import ALWAYS_SPARK, BATCH_ROWS, OTHER, publish
from benchmarks.cluster.large_step import report_division
from benchmarks.cluster.session import CORES, Clusters, Measured
from benchmarks.report import Report
from psoup.engine.composites.boxes import CompositeBox
from psoup.engine.settings import EngineSettings
from psoup.store import Store
from querystem.expressions import TRUE
from tests.support.engine.author import READINGS, Author
from tests.support.engine.composites import equal, register_join
from tests.support.engine.pump import Pump

SETTINGS = replace(
    EngineSettings(), housekeeping=1e9, step_bytes=1 << 40, spark_join_factor=ALWAYS_SPARK
)


def measure(clusters: Clusters, report: Report, folder: Path, quick: bool) -> None:
    rows = 1 << (17 if quick else 20)
    store = Store.open(folder / "store", create=True, sync=False)
    case = _Joins(store, rows)
    cores = (1, max(CORES))
    steps, joins = dict[int, Measured](), dict[int, Measured]()
    for count in cores:
        steps[count], joins[count] = case.measure(clusters, count)
    report_division(report, f"step with a join, {rows // 4:,} rows a leg", steps, judge=False)
    report_division(report, f"Spark's join of {rows:,} rows a leg", joins, judge=False)


class _Joins:
    """Two streams whose rows have one partner each, and their join."""

    def __init__(self, store: Store, rows: int) -> None:
        self._store, self._rows = store, rows
        self._author, self._dice = Author(store), np.random.default_rng(7)
        self._streams = self._author.create(READINGS), self._author.create(OTHER)
        self._publish(rows, BATCH_ROWS)
        legs = [(stream, TRUE) for stream in self._streams]
        self._join = register_join(self._author, legs, [equal(0, 1)])

    def _publish(self, rows: int, batch: int) -> None:
        for stream in self._streams:
            publish(self._author, stream, self._dice.permutation(rows), batch)

    def measure(self, clusters: Clusters, cores: int) -> tuple[Measured, Measured]:
        """Measure a step, and Spark's join of all rows so far, after others of their kind."""
        with clusters.open(cores) as cluster:
            pump = Pump(self._store, cluster.spark, SETTINGS)
            pump.run()
            self._publish(self._rows // 4, 1 << 13)
            pump.step()
            self._publish(self._rows // 4, 1 << 13)
            with cluster.measuring() as step:
                pump.step()
            # The first frame of a session compiles code of Spark.
            self._join_all(pump)
            self._begin(pump)
            with cluster.measuring() as join:
                self._grow(pump)
        return step, join

    def _join_all(self, pump: Pump) -> None:
        self._begin(pump)
        self._grow(pump)

    def _begin(self, pump: Pump) -> None:
        """Empty the box, and let it begin."""
        composite = pump.ledger.state.composites[self._join.composite_id]
        CompositeBox(pump.ledger, composite, pump.settings).reset()
        pump.ledger.publish("join")
        while pump.ledger.composites[composite.id].since is None:
            assert pump.growing.advance(pump.ledger)

    def _grow(self, pump: Pump) -> None:
        while pump.growing.advance(pump.ledger) or pump.growing.idle_in:
            if pump.growing.idle_in:
                time.sleep(0.25)
        assert pump.ledger.composites[self._join.composite_id].since == 0
