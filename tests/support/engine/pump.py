"""The engine's work without its loop: the same steps, taken one by one."""

from __future__ import annotations

import sys
import time

from pyspark.sql import SparkSession

from psoup.engine.composites.growing import Growing
from psoup.engine.maintain import Maintenance
from psoup.engine.matching.backfill import Backfill
from psoup.engine.repair.reclosing import Reclosing
from psoup.engine.repair.recover import open_ledger
from psoup.engine.settings import EngineSettings
from psoup.engine.steps.grid import StepLimits
from psoup.engine.steps.step import StepMemory, next_stretch, take_step
from psoup.store import Store

QUIET = EngineSettings(housekeeping=0.0, idle=0.0)


class Pump:
    def __init__(self, store: Store, spark: SparkSession, settings: EngineSettings = QUIET) -> None:
        self.store = store
        self.spark = spark
        self.settings = settings
        self.ledger = open_ledger(store)
        self.memory = StepMemory()
        self.backfill = Backfill(spark, settings)
        self.growing = Growing(spark, settings)
        self.reclosing = Reclosing(spark, settings)
        self.maintenance = Maintenance(spark, settings, self._has_jobs)

    def _has_jobs(self) -> bool:
        waits = self.growing.idle_in, self.reclosing.idle_in(self.ledger)
        return any(wait is not None for wait in waits)

    def step(self, end: int | None = None) -> None:
        """Consume everything up to a version of the log, by default the newest, as one step."""
        start = self.ledger.epoch.log_version
        end = self.store.log.latest_version(start) if end is None else end
        if end > start:
            news = next_stretch(self.store.log.folder, start, StepLimits(end - start, sys.maxsize))
            take_step(self.ledger, self.spark, news, self.settings, self.memory)

    def run(self) -> None:
        """Work until nothing remains to do."""
        while self.round():
            pass

    def round(self) -> bool:
        """Make a step, a slice of back-fill and of a composite, and a chore; return True if work
        remains."""
        self.step()
        busy = self.backfill.advance(self.ledger)
        busy |= self.growing.advance(self.ledger)
        busy |= self.reclosing.advance(self.ledger)
        waits = (self.growing.idle_in, self.reclosing.idle_in(self.ledger))
        if not busy and (seconds := [wait for wait in waits if wait is not None]):
            time.sleep(min(seconds))
            busy = True
        busy |= self.maintenance.advance(self.ledger)
        latest = self.store.log.latest_version(self.ledger.epoch.log_version)
        return busy or latest > self.ledger.epoch.log_version
