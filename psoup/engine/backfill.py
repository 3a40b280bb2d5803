"""New queries over old rows, a slice at a time, newest rows first.

Rows that some window can reach come first, and a query is done with those. The rest waits until the
stream is idle, or is left out, as the settings say.

All cohorts that are there when a pass over a stream begins share it; the next one takes those that
came meanwhile. A slice is sized by how long the last one took, so that the fresh rows waiting
behind it wait about `slice_seconds`.
"""

from __future__ import annotations

import logging
import sys
import time

import numpy as np
from pyspark.sql import SparkSession

from datastem.blocks import BLOCK_BITS
from psoup.engine.composites.boxes import CompositeBox
from psoup.engine.composites.units import CombinationSlice
from psoup.engine.composites.worker import match
from psoup.engine.coverage import Band, Want, bands, pending, top
from psoup.engine.implied import WiderPredicates
from psoup.engine.jobs import Outcome, by_table, job_of, run_tasks
from psoup.engine.ledger import Ledger, stem_name
from psoup.engine.reaching import MAX_COHORTS, Reaching
from psoup.engine.settings import EngineSettings, Rest
from psoup.engine.worker import Slice, backfill
from psoup.store import DataFile

log = logging.getLogger(__name__)

_LEAST_ROWS = 1 << BLOCK_BITS
_SAY_EVERY = 5.0


class Backfill:
    """Matches new queries with old rows; it knows how large slices are and how far passes have
    come."""

    def __init__(self, spark: SparkSession, settings: EngineSettings) -> None:
        self._spark = spark
        self._settings = settings
        self._parallelism = spark.sparkContext.defaultParallelism
        self._rows = settings.slice_rows
        self._reached: dict[int, int] = {}
        self._said = time.monotonic()
        self._wider = WiderPredicates()
        self._reaching = Reaching()
        # The high id of each stream, and since when it has been that.
        self._quiet: dict[int, tuple[int, float]] = {}

    def pending(self, ledger: Ledger) -> dict[int, int]:
        """The number of rows, by stream, that windows of new queries can reach and that are still
        to go through."""
        return {
            stream_id: pending(wants, ledger.floor(stream_id))
            for stream_id, wants in self._wants(ledger).items()
        }

    def rest(self, ledger: Ledger) -> dict[int, int]:
        """The number of rows, by stream, that queries have yet to meet when the stream is idle,
        although none of their windows can reach them."""
        return {
            stream_id: pending(_rest(ledger, stream_id), ledger.floor(stream_id))
            for stream_id in self._waiting(ledger)
        }

    def idle_in(self, ledger: Ledger) -> float | None:
        """The seconds until the first stream is idle that rows are to be matched of then; None
        where there is none."""
        waiting = [self._quiet[one][1] for one in self._waiting(ledger) if one in self._quiet]
        now = time.monotonic()
        return min((max(0.0, since + self._settings.idle - now) for since in waiting), default=None)

    def advance(self, ledger: Ledger) -> bool:
        """Takes one slice of the stream with least to do, and publishes its epoch; False where
        nothing was pending."""
        self._look(ledger)
        wants = self._wants(ledger) or {one: _rest(ledger, one) for one in self._idle(ledger)}
        if not wants:
            return False
        left = {one: pending(some, ledger.floor(one)) for one, some in wants.items()}
        stream_id = min(left, key=lambda stream: (left[stream], stream))
        self._advance(ledger, stream_id, wants[stream_id])
        self._say(ledger, stream_id)
        return True

    def _advance(self, ledger: Ledger, stream_id: int, wants: list[Want]) -> None:
        floor = ledger.floor(stream_id)
        start = top(wants, self._reached.get(stream_id, 0))
        work = bands(wants, self._rows, floor, start)
        started = time.monotonic()
        slices = self._slices(ledger, stream_id, work)
        outcomes = self._run(ledger, slices)
        written = {name: (files, ()) for name, files in by_table(outcomes).items()}
        ledger.commit_all(written, operation="BACKFILL")
        reached = work[-1].lo if work[-1].lo > floor else 0
        sharing = [one for one in wants if one.row_lo <= start]
        ledger.append({"coverage": ledger.coverage.extend(stream_id, sharing, reached)})
        ledger.publish("backfill")
        self._reached[stream_id] = reached
        if slices:
            self._resize(time.monotonic() - started)

    # ---- what is to do

    def _wants(self, ledger: Ledger) -> dict[int, list[Want]]:
        found = {
            stream_id: self._reaching.wants(ledger, stream_id)
            for stream_id in ledger.coverage.streams()
            if ledger.is_live(stream_id)
        }
        return {stream_id: wants for stream_id, wants in found.items() if wants}

    def _waiting(self, ledger: Ledger) -> list[int]:
        """The streams that have rows left for when they are idle."""
        if self._settings.rest is Rest.NEVER:
            return []
        streams = filter(ledger.is_live, ledger.coverage.streams())
        return [stream_id for stream_id in streams if _rest(ledger, stream_id)]

    def _idle(self, ledger: Ledger) -> list[int]:
        """The streams with rows left that are idle, or have so many cohorts that these had better
        become one."""
        since = time.monotonic() - self._settings.idle
        return [
            stream_id
            for stream_id in self._waiting(ledger)
            if self._quiet[stream_id][1] <= since
            or len(ledger.coverage.cohorts(stream_id)) > MAX_COHORTS
        ]

    def _look(self, ledger: Ledger) -> None:
        """Notes since when each stream has had no new rows."""
        now = time.monotonic()
        for stream_id in filter(ledger.is_live, ledger.coverage.streams()):
            high = ledger.high(stream_id)
            if self._quiet.get(stream_id, (-1, now))[0] != high:
                self._quiet[stream_id] = high, now

    def _run(self, ledger: Ledger, slices: list[Slice]) -> list[Outcome]:
        """Matches the rows of slices, all of one stream or of one composite."""
        composite = ledger.state.composites.get(slices[0].stream_id) if slices else None
        if composite is None:
            return run_tasks(self._spark, job_of(ledger), backfill, slices)
        work = CompositeBox(ledger, composite, self._settings).work
        units = [
            CombinationSlice(work, one.predicates, one.lo, one.hi, one.files) for one in slices
        ]
        return run_tasks(self._spark, job_of(ledger), match, units)

    def _slices(self, ledger: Ledger, stream_id: int, bands: list[Band]) -> list[Slice]:
        """Cuts the bands into tasks at the edges of blocks, and leaves out those that can match
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
        return slices

    def _cut(self, band: Band) -> list[tuple[int, int]]:
        blocks = -(-(band.hi - band.lo) // (self._parallelism << BLOCK_BITS))
        width = max(blocks, 1) << BLOCK_BITS
        edges = [band.lo, *range((band.lo // width + 1) * width, band.hi, width), band.hi]
        return list(zip(edges[:-1], edges[1:], strict=True))

    def _resize(self, took: float) -> None:
        aim = self._settings.slice_seconds
        factor = min(2.0, max(0.5, aim / max(took, 0.001)))
        least = min(_LEAST_ROWS, self._settings.slice_rows)
        self._rows = max(least, int(self._rows * factor))

    def _say(self, ledger: Ledger, stream_id: int) -> None:
        left = self.pending(ledger).get(stream_id, 0)
        rest = self.rest(ledger).get(stream_id, 0)
        stream = ledger.state.streams.get(stream_id)
        name = stream.schema.name if stream else f"composite {stream_id}"
        if left + rest and time.monotonic() - self._said < _SAY_EVERY:
            return
        self._said = time.monotonic()
        high = max(ledger.high(stream_id), 1)
        if left or not rest:
            log.info("back-fill of %s: %d %%, %d rows left", name, 100 - 100 * left // high, left)
        else:
            log.info("back-fill of %s: all that windows reach; %d other rows left", name, rest)


def _rest(ledger: Ledger, stream_id: int) -> list[Want]:
    """Wants that take all predicates of a stream to its first row."""
    floor = ledger.floor(stream_id)
    cohorts = ledger.coverage.cohorts(stream_id)
    return [
        Want(cohort.lo, cohort.hi, end, begin)
        for cohort in cohorts
        for begin, end in cohort.gaps_above(floor)
    ]


def _holds(file: DataFile, stream_id: int, predicates: tuple[int, ...]) -> bool:
    """Tells whether a file of the matches table may have pieces of some predicates of a stream."""
    low, high = file.low.get("predicate_id", 0), file.high.get("predicate_id", sys.maxsize)
    mine = file.partition["stream_id"] == str(stream_id)
    return mine and any(low <= one <= high for one in predicates)


def _meets(file: DataFile, lo: int, hi: int) -> bool:
    """Tells whether a file of the matches table may have pieces about the rows [lo, hi)."""
    first, last = file.low.get("lo", 0), file.high.get("hi", sys.maxsize)
    return bool(first < hi and last > lo)
