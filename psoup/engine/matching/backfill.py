"""New queries over old rows, a slice at a time, newest rows first.

Rows that some window can reach come first, and a query is done with those. Other rows wait until
the stream is idle, or are not matched, as the settings say.

All cohorts that are there when a pass over a stream begins share it; the next one takes those that
come during it. A slice is one job: a grid of ranges of rows × ranges of predicates. Its size
follows from the rows that tasks match in a second of processor time, and from the fixed cost of a
job.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from pyspark.sql import SparkSession

from datastem.arrays import Int64s
from datastem.blocks import BLOCK_ROWS
from psoup.engine.composites.boxes import CompositeBox
from psoup.engine.composites.units import CombinationSlice
from psoup.engine.composites.worker import match
from psoup.engine.ledger import Ledger, stem_name
from psoup.engine.matching.coverage import Band, Want, bands, pending, top
from psoup.engine.matching.implied import WiderPredicates
from psoup.engine.matching.reaching import MAX_COHORTS, Reaching
from psoup.engine.settings import EngineSettings, Rest
from psoup.engine.spark.jobs import Outcome, Probed, Spent, by_table, job_of, run_tasks
from psoup.engine.steps.pieces import EVERY_ID, IdRange
from psoup.engine.steps.worker import Slice, backfill
from psoup.store import DataFile

log = logging.getLogger(__name__)

_MIN_SLICE_ROWS = 1 << 13
_SAY_EVERY = 5.0
# The work of a slice, as a multiple of the fixed cost of a job, which is then a fifth of a slice.
_WORK_PER_FIXED_COST = 4
# Rows are divided by predicates, too, if fewer tasks than cores would take longer than this.
_GROUP_SECONDS = 0.25


class SliceSizes:
    """The number of rows in a slice, by stream: as many as all cores match in a few times the fixed
    cost of a job, and no more than new rows may wait for."""

    def __init__(self, settings: EngineSettings, parallelism: int) -> None:
        self._settings, self.parallelism = settings, parallelism
        self._rows: dict[int, int] = {}
        # By stream: the processor seconds of one row. The seconds of a job beside its longest task.
        self._row_seconds: dict[int, float] = {}
        self._fixed: float | None = None

    def rows(self, stream_id: int, top: int) -> int:
        """Return the rows of the next slice of a stream, which ends at row `top`. Each core gets
        equally many blocks, if there is at least one for each."""
        rows = self._rows.get(stream_id, self._settings.slice_rows)
        together = self.parallelism * BLOCK_ROWS
        if rows < together:
            return rows
        # The block of the last row may be begun only.
        return -(-rows // together) * together - BLOCK_ROWS + (top % BLOCK_ROWS or BLOCK_ROWS)

    def seconds(self, stream_id: int, rows: int) -> float:
        """Return the processor time that rows of a stream will take; 0 if it is not known yet."""
        return rows * self._row_seconds.get(stream_id, 0.0)

    def note(self, stream_id: int, rows: int, wall: float, tasks: Sequence[float]) -> None:
        """Remember a slice: the duration of its job, and the processor seconds of each task."""
        fixed = max(wall - max(tasks), 0.001)
        self._fixed = fixed if self._fixed is None else (self._fixed + fixed) / 2
        self._row_seconds[stream_id] = max(sum(tasks), 0.001) / rows
        limit = self._settings.slice_seconds
        # A job that costs more than new rows may wait does as much work as it costs, up to the
        # limit: it would settle at tiny slices, and never be done, if it had to be done in time.
        work = max(
            min(_WORK_PER_FIXED_COST * self._fixed, limit - self._fixed), min(self._fixed, limit)
        )
        rows = int(self.parallelism * work / self._row_seconds[stream_id])
        last = self._rows.get(stream_id, self._settings.slice_rows)
        least = min(_MIN_SLICE_ROWS, self._settings.slice_rows)
        self._rows[stream_id] = max(least, min(max(rows, last // 4), last * 4))


class Backfill:
    """The chore that matches new queries with old rows. It remembers how large slices are and how
    far each pass has come."""

    def __init__(self, spark: SparkSession, settings: EngineSettings) -> None:
        self._spark = spark
        self._settings = settings
        self._sizes = SliceSizes(settings, spark.sparkContext.defaultParallelism)
        self._reached: dict[int, int] = {}
        self._said = time.monotonic()
        self._wider = WiderPredicates()
        self._reaching = Reaching()
        # The high id of each stream, and since when it has been that.
        self._quiet: dict[int, tuple[int, float]] = {}

    def pending(self, ledger: Ledger) -> dict[int, int]:
        """Return the number of rows, by stream, that windows of new queries can reach and that are
        still to be matched."""
        return {
            stream_id: pending(wants, ledger.floor(stream_id))
            for stream_id, wants in self._wants(ledger).items()
        }

    def rest(self, ledger: Ledger) -> dict[int, int]:
        """Return the number of rows, by stream, that no window of a query reaches and that are to
        be matched with it when the stream is idle."""
        return {
            stream_id: pending(_unreached(ledger, stream_id), ledger.floor(stream_id))
            for stream_id in self._waiting(ledger)
        }

    def idle_in(self, ledger: Ledger) -> float | None:
        """Return the seconds until the first stream is idle that has rows to be matched then; None
        if no stream has."""
        waiting = [self._quiet[id_][1] for id_ in self._waiting(ledger) if id_ in self._quiet]
        now = time.monotonic()
        return min((max(0.0, since + self._settings.idle - now) for since in waiting), default=None)

    def advance(self, ledger: Ledger) -> bool:
        """Take one slice of the stream with least to do, and publish its epoch; return False if
        nothing was pending."""
        self._look(ledger)
        wants = self._wants(ledger) or {id_: _unreached(ledger, id_) for id_ in self._idle(ledger)}
        if not wants:
            return False
        counts = {id_: pending(work, ledger.floor(id_)) for id_, work in wants.items()}
        stream_id = min(counts, key=lambda id_: (counts[id_], id_))
        self._advance(ledger, stream_id, wants[stream_id])
        self._say(ledger, stream_id)
        return True

    def _advance(self, ledger: Ledger, stream_id: int, wants: list[Want]) -> None:
        # Executors come and go.
        self._sizes.parallelism = self._spark.sparkContext.defaultParallelism
        floor = ledger.floor(stream_id)
        start = top(wants, self._reached.get(stream_id, 0))
        work = bands(wants, self._sizes.rows(stream_id, start), floor, start)
        started = time.monotonic()
        slices = self._slices(ledger, stream_id, work)
        outcomes = self._run(ledger, slices)
        written = {name: (files, ()) for name, files in by_table(outcomes).items()}
        ledger.commit_all(written, operation="BACKFILL")
        reached = work[-1].lo if work[-1].lo > floor else 0
        sharing = [want for want in wants if want.row_lo <= start]
        ledger.append({"coverage": ledger.coverage.extend(stream_id, sharing, reached)})
        ledger.publish("backfill")
        self._reached[stream_id] = reached
        # Tasks over composites, and those that had nothing to read, report their time only.
        tasks = [part.seconds for part in outcomes if isinstance(part, Probed)] or [
            part.seconds for part in outcomes if isinstance(part, Spent)
        ]
        if tasks:
            rows = sum(band.hi - band.lo for band in work)
            self._sizes.note(stream_id, rows, time.monotonic() - started, tasks)

    # ---- what is to do

    def _wants(self, ledger: Ledger) -> dict[int, list[Want]]:
        by_stream = {
            stream_id: self._reaching.wants(ledger, stream_id)
            for stream_id in ledger.coverage.streams()
            if ledger.is_live(stream_id)
        }
        return {stream_id: wants for stream_id, wants in by_stream.items() if wants}

    def _waiting(self, ledger: Ledger) -> list[int]:
        """Return the streams with rows to be matched when they are idle."""
        if self._settings.rest is Rest.NEVER:
            return []
        streams = filter(ledger.is_live, ledger.coverage.streams())
        return [stream_id for stream_id in streams if _unreached(ledger, stream_id)]

    def _idle(self, ledger: Ledger) -> list[int]:
        """Return the streams of `_waiting` that are idle, or have too many cohorts, which become
        one when all rows are matched."""
        since = time.monotonic() - self._settings.idle
        return [
            stream_id
            for stream_id in self._waiting(ledger)
            if self._quiet[stream_id][1] <= since
            or len(ledger.coverage.cohorts(stream_id)) > MAX_COHORTS
        ]

    def _look(self, ledger: Ledger) -> None:
        """Note since when each stream has had no new rows."""
        now = time.monotonic()
        for stream_id in filter(ledger.is_live, ledger.coverage.streams()):
            high = ledger.high(stream_id)
            if self._quiet.get(stream_id, (-1, now))[0] != high:
                self._quiet[stream_id] = high, now

    def _run(self, ledger: Ledger, slices: list[Slice]) -> list[Outcome]:
        """Match the rows of slices, all of one stream or of one composite."""
        composite = ledger.state.composites.get(slices[0].stream_id) if slices else None
        if composite is None:
            return run_tasks(self._spark, job_of(ledger), backfill, slices)
        work = CompositeBox(ledger, composite, self._settings).work
        units = [
            CombinationSlice(work, part.predicates, part.lo, part.hi, part.files) for part in slices
        ]
        return run_tasks(self._spark, job_of(ledger), match, units)

    def _slices(self, ledger: Ledger, stream_id: int, bands: list[Band]) -> list[Slice]:
        """Return the tasks of bands, cut at the edges of blocks, without those that can match
        nothing."""
        files = sorted(
            (file for file in ledger.files(stem_name(stream_id)) if file.low),
            key=lambda file: file.low["_row_id"],
        )
        _, predicates = ledger.state.columns
        live = predicates.of_stream(stream_id)
        slices = []
        for band in bands:
            if not any(np.diff(np.searchsorted(live, band.predicates)).ravel()):
                continue
            wider = self._wider.of(ledger, stream_id, band)
            matches = [file for file in ledger.files("matches") if _holds(file, stream_id, wider)]
            for lo, hi in self._cut(band):
                inside = tuple(
                    file
                    for file in files
                    if file.low["_row_id"] < hi and file.high["_row_id"] >= lo
                )
                if inside:
                    pieces = tuple(file for file in matches if _meets(file, lo, hi))
                    work = Slice(stream_id, band.predicates, lo, hi, inside, wider, pieces)
                    slices.append(work)
        if stream_id not in ledger.state.streams:
            return slices
        return [
            replace(work, group=group)
            for work in slices
            for group in self._groups(work, live, len(slices))
        ]

    def _cut(self, band: Band) -> list[tuple[int, int]]:
        """Return the rows of a band as ranges of whole blocks, one for each core."""
        start = band.lo - band.lo % BLOCK_ROWS
        blocks = -(-(band.hi - start) // BLOCK_ROWS)
        count = min(blocks, self._sizes.parallelism)
        places = (start + number * blocks // count * BLOCK_ROWS for number in range(1, count))
        edges = [band.lo, *places, band.hi]
        return list(pairwise(edges))

    def _groups(self, work: Slice, live: Int64s, count: int) -> list[IdRange]:
        """Return the ranges of predicate ids by which a slice is divided: one with all ids if its
        job has `count` slices for as many cores, or if it takes little time."""
        seconds = self._sizes.seconds(work.stream_id, work.hi - work.lo)
        groups = min(-(-self._sizes.parallelism // count), int(seconds / _GROUP_SECONDS))
        if groups <= 1:
            return [EVERY_ID]
        ranges = np.searchsorted(live, work.predicates)
        ids = np.concatenate([live[first:last] for first, last in ranges.tolist()])
        edges = np.unique(ids[len(ids) * np.arange(1, groups) // groups]).tolist()
        return list(pairwise([0, *edges, EVERY_ID[1]]))

    def _say(self, ledger: Ledger, stream_id: int) -> None:
        remaining = self.pending(ledger).get(stream_id, 0)
        unreached = self.rest(ledger).get(stream_id, 0)
        stream = ledger.state.streams.get(stream_id)
        name = stream.schema.name if stream else f"composite {stream_id}"
        if remaining + unreached and time.monotonic() - self._said < _SAY_EVERY:
            return
        self._said = time.monotonic()
        high = max(ledger.high(stream_id), 1)
        if remaining or not unreached:
            share = 100 - 100 * remaining // high
            log.info("back-fill of %s: %d %%, %d rows left", name, share, remaining)
        else:
            log.info("back-fill of %s: all that windows reach; %d other rows left", name, unreached)


def _unreached(ledger: Ledger, stream_id: int) -> list[Want]:
    """Return wants that take all predicates of a stream to its first row."""
    floor = ledger.floor(stream_id)
    cohorts = ledger.coverage.cohorts(stream_id)
    return [
        Want(cohort.lo, cohort.hi, end, begin)
        for cohort in cohorts
        for begin, end in cohort.gaps_above(floor)
    ]


def _holds(file: DataFile, stream_id: int, predicates: tuple[int, ...]) -> bool:
    """Return True if a file of the matches table may have pieces of these predicates of a
    stream."""
    low, high = file.low.get("predicate_id", 0), file.high.get("predicate_id", sys.maxsize)
    is_of_stream = file.partition["stream_id"] == str(stream_id)
    return is_of_stream and any(low <= id_ <= high for id_ in predicates)


def _meets(file: DataFile, lo: int, hi: int) -> bool:
    """Return True if a file of the matches table may have pieces about the rows [lo, hi)."""
    first, last = file.low.get("lo", 0), file.high.get("hi", sys.maxsize)
    return bool(first < hi and last > lo)
