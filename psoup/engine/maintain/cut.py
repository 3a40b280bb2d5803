"""Matches that no window can reach any more leave the table.

The coverage is cut first, in the same epoch: a server computes what it does not name. It is cut
cohort by cohort, down to what the widest window of any predicate in that range reaches, and all
pieces below go with it, so that back-fill may come back there. Files of which nothing is left go at
once, others are written anew: so it waits until half of the predicates have left some rows.

Where the rest is matched when a stream is idle, nothing is cut: it would be matched again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from pyspark.sql import SparkSession

from datastem.arrays import Int64s, Mask
from psoup.engine.jobs import by_table, job_of, run_tasks
from psoup.engine.ledger import Ledger
from psoup.engine.maintain.merge import FileRun, merge_run
from psoup.engine.mend import write_coverage
from psoup.engine.reaching import MAX_COHORTS, Reaching
from psoup.engine.settings import EngineSettings, Rest
from psoup.store.delta.files import DataFile


@dataclass(frozen=True, slots=True)
class CutPlan:
    """The cohorts of a stream: their ranges of predicate ids, how many of these are live, from
    which row on they are covered, and from which row on they are to be."""

    los: Int64s
    his: Int64s
    live: Int64s
    row_los: Int64s
    levels: Int64s

    def worth(self, step: int) -> CutPlan:
        """The plan, up to the first `step` rows that less than half of those who hold them would
        leave: older rows are held by fewer."""
        cap, weights = 0, np.maximum(self.live, 1)
        for edge in np.unique(np.concatenate([self.levels, self.row_los // step * step])).tolist():
            holding = self.row_los < edge
            leaving = holding & (self.levels >= edge)
            if 2 * weights[leaving].sum() < weights[holding].sum():
                break
            cap = edge
        return self.at(np.minimum(self.levels, cap))

    def joined(self, most: int) -> CutPlan:
        """The plan with neighbours cut alike, so that about `most` cohorts are left."""
        begins = np.arange(0, len(self.los), -(-len(self.los) // most))
        least = np.minimum.reduceat(self.levels, begins)
        return self.at(np.repeat(least, np.diff(np.append(begins, len(self.los)))))

    def at(self, levels: Int64s) -> CutPlan:
        return CutPlan(self.los, self.his, self.live, self.row_los, levels)

    @property
    def cutting(self) -> Mask:
        """Which cohorts are cut."""
        mask: Mask = self.levels > self.row_los
        return mask

    def touches(self, file: DataFile) -> bool:
        """Tells whether a file of matches may have pieces that are to go."""
        below = (file.low["lo"] < self.levels) & (file.high["hi"] > self.row_los)
        return bool((self._in(file) & self.cutting & below).any())

    def empties(self, file: DataFile) -> bool:
        """Tells whether no live predicate needs anything of a file of matches."""
        holding = np.maximum(self.row_los, self.levels) < file.high["hi"]
        return not (self._in(file) & holding & (self.live > 0)).any()

    def _in(self, file: DataFile) -> Mask:
        inside: Mask = self.los <= file.high["predicate_id"]
        return inside & (self.his > file.low["predicate_id"])


class CutMatches:
    """Cuts the coverage to what windows reach, and drops what lies outside."""

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
        mine = [
            file
            for file in ledger.files("matches")
            if file.partition["stream_id"] == str(stream_id) and file.low and plan.touches(file)
        ]
        ledger.coverage.cut(stream_id, plan.levels.tolist())
        write_coverage(ledger, "CUT")
        cohorts = tuple(ledger.coverage.cohorts(stream_id))
        runs = [
            FileRun("matches", stream_id, int(file.partition["segment"]), (file,), cohorts=cohorts)
            for file in mine
            if not plan.empties(file)
        ]
        written = by_table(run_tasks(self._spark, job_of(ledger), merge_run, runs))
        if mine:
            ledger.commit("matches", written.get("matches", ()), mine, operation="CUT")
        ledger.publish("cut")
        return True

    def _plan(self, ledger: Ledger, stream_id: int) -> CutPlan:
        cohorts, step = ledger.coverage.cohorts(stream_id), self._settings.cut_rows
        ids = ledger.interests.of_stream(stream_id).ids
        los, his, row_los = (
            np.array([getattr(one, name) for one in cohorts], np.int64)
            for name in ("lo", "hi", "row_lo")
        )
        reached = [self._reaching.level(ledger, stream_id, one.lo, one.hi) for one in cohorts]
        levels = np.array(reached, np.int64) // step * step
        live = np.searchsorted(ids, his) - np.searchsorted(ids, los)
        plan = CutPlan(los, his, live, row_los, levels)
        # With too many cohorts it is worth it whatever it frees.
        many = len(cohorts) > MAX_COHORTS
        return plan.joined(MAX_COHORTS // 2) if many else plan.worth(step)
