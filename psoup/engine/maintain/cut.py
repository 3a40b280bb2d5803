"""Removal of matches that no window can reach any more.

The coverage is cut first, in the same epoch: a server computes what it does not name. It is cut
cohort by cohort, to the rows that the widest window of any predicate in that range reaches. All
pieces below are removed, so that back-fill may match these rows again. Files without remaining
pieces are removed, others are written again. So a cut waits until half of the predicates that were
matched with a range of rows no longer reach it.

If the engine matches unreached rows while a stream is idle (`Rest.IDLE`), nothing is cut: it would
be matched again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from pyspark.sql import SparkSession

from datastem.arrays import Int64s, Mask
from psoup.engine.ledger import Ledger
from psoup.engine.maintain.merge import FileRun, merge_run
from psoup.engine.matching.reaching import MAX_COHORTS, Reaching
from psoup.engine.repair.mend import write_coverage
from psoup.engine.settings import EngineSettings, Rest
from psoup.engine.spark.jobs import by_table, job_of, run_tasks
from psoup.store.delta.files import DataFile


@dataclass(frozen=True, slots=True)
class CutPlan:
    """The cohorts of a stream, one entry per cohort in each array: its range of predicate ids, how
    many of these are live, the first covered row, and the first row to be covered (`levels`)."""

    los: Int64s
    his: Int64s
    live: Int64s
    row_los: Int64s
    levels: Int64s

    def worth(self, step: int) -> CutPlan:
        """Return the plan, limited to the oldest rows that at least half of the predicates which
        cover them no longer reach. Rows are checked in ranges of `step`; fewer predicates cover
        older rows."""
        # A cohort weighs as much as its live predicates, but at least 1.
        cap, weights = 0, np.maximum(self.live, 1)
        # Ascending row ids at which cohorts begin to hold rows, or cease to need them.
        for edge in np.unique(np.concatenate([self.levels, self.row_los // step * step])).tolist():
            holding = self.row_los < edge
            leaving = holding & (self.levels >= edge)
            if 2 * weights[leaving].sum() < weights[holding].sum():
                break
            cap = edge
        return self.at(np.minimum(self.levels, cap))

    def joined(self, count: int) -> CutPlan:
        """Return the plan with neighbours cut alike, so that about `count` cohorts remain."""
        # The first cohort of each group of neighbours, which gets the least of its levels.
        begins = np.arange(0, len(self.los), -(-len(self.los) // count))
        least = np.minimum.reduceat(self.levels, begins)
        return self.at(np.repeat(least, np.diff(np.append(begins, len(self.los)))))

    def at(self, levels: Int64s) -> CutPlan:
        return CutPlan(self.los, self.his, self.live, self.row_los, levels)

    @property
    def cutting(self) -> Mask:
        """A mask of the cohorts that are cut."""
        mask: Mask = self.levels > self.row_los
        return mask

    def touches(self, file: DataFile) -> bool:
        """Return True if a file of matches may have pieces to remove."""
        below = (file.low["lo"] < self.levels) & (file.high["hi"] > self.row_los)
        return bool((self._in(file) & self.cutting & below).any())

    def empties(self, file: DataFile) -> bool:
        """Return True if no live predicate needs anything of a file of matches."""
        holding = np.maximum(self.row_los, self.levels) < file.high["hi"]
        return not (self._in(file) & holding & (self.live > 0)).any()

    def _in(self, file: DataFile) -> Mask:
        inside: Mask = self.los <= file.high["predicate_id"]
        return inside & (self.his > file.low["predicate_id"])


class CutMatches:
    """The chore that cuts the coverage to what windows reach, and removes other matches."""

    def __init__(self, spark: SparkSession, settings: EngineSettings) -> None:
        self._spark = spark
        self._settings = settings
        self._next = 0.0
        self._reaching = Reaching()

    def advance(self, ledger: Ledger) -> bool:
        if self._settings.rest is not Rest.NEVER or time.monotonic() < self._next:
            return False
        for stream in ledger.state.streams.values():
            if not stream.dropped and self._cut(ledger, stream.id):
                return True
        self._next = time.monotonic() + self._settings.housekeeping
        return False

    def _cut(self, ledger: Ledger, stream_id: int) -> bool:
        plan = self._plan(ledger, stream_id)
        if not plan.cutting.any():
            return False
        files = [
            file
            for file in ledger.files("matches")
            if file.partition["stream_id"] == str(stream_id) and file.low and plan.touches(file)
        ]
        ledger.coverage.cut(stream_id, plan.levels.tolist())
        write_coverage(ledger, "CUT")
        cohorts = tuple(ledger.coverage.cohorts(stream_id))
        runs = [
            FileRun("matches", stream_id, int(file.partition["segment"]), (file,), cohorts=cohorts)
            for file in files
            if not plan.empties(file)
        ]
        written = by_table(run_tasks(self._spark, job_of(ledger), merge_run, runs))
        if files:
            ledger.commit("matches", written.get("matches", ()), files, operation="CUT")
        ledger.publish("cut")
        return True

    def _plan(self, ledger: Ledger, stream_id: int) -> CutPlan:
        cohorts, step = ledger.coverage.cohorts(stream_id), self._settings.cut_rows
        ids = ledger.interests.of_stream(stream_id).ids
        los, his, row_los = (
            np.array([getattr(cohort, name) for cohort in cohorts], np.int64)
            for name in ("lo", "hi", "row_lo")
        )
        reached = [
            self._reaching.level(ledger, stream_id, cohort.lo, cohort.hi) for cohort in cohorts
        ]
        # Rounded down, so that files are not rewritten for a few rows at a time.
        levels = np.array(reached, np.int64) // step * step
        live = np.searchsorted(ids, his) - np.searchsorted(ids, los)
        plan = CutPlan(los, his, live, row_los, levels)
        # With too many cohorts a cut is worth its cost, whatever it frees.
        is_crowded = len(cohorts) > MAX_COHORTS
        return plan.joined(MAX_COHORTS // 2) if is_crowded else plan.worth(step)
