"""New queries over old rows, a slice at a time, newest rows first.

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
from psoup.engine.coverage import Band
from psoup.engine.implied import WiderPredicates
from psoup.engine.jobs import Outcome, by_table, job_of, run_tasks
from psoup.engine.ledger import Ledger, stem_name
from psoup.engine.settings import EngineSettings
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

    def pending(self, ledger: Ledger) -> dict[int, int]:
        """The number of rows still to go through, by stream."""
        rows = {
            stream_id: ledger.coverage.pending(stream_id, ledger.floor(stream_id))
            for stream_id in ledger.coverage.streams()
            if ledger.is_live(stream_id)
        }
        return {stream_id: count for stream_id, count in rows.items() if count}

    def advance(self, ledger: Ledger) -> bool:
        """Takes one slice of the stream with least to do, and publishes its epoch; False where
        nothing was pending."""
        pending = self.pending(ledger)
        if not pending:
            return False
        stream_id = min(pending, key=lambda stream: (pending[stream], stream))
        floor = ledger.floor(stream_id)
        top = ledger.coverage.top(stream_id, floor, self._reached.get(stream_id, 0))
        bands = ledger.coverage.bands(stream_id, self._rows, floor, top)
        started = time.monotonic()
        slices = self._slices(ledger, stream_id, bands)
        outcomes = self._run(ledger, slices)
        written = {name: (files, ()) for name, files in by_table(outcomes).items()}
        ledger.commit_all(written, operation="BACKFILL")
        reached = bands[-1].lo if bands[-1].lo > floor else 0
        ledger.append({"coverage": ledger.coverage.extend(stream_id, reached, top)})
        ledger.publish("backfill")
        self._reached[stream_id] = reached
        if slices:
            self._resize(time.monotonic() - started)
        self._say(ledger, stream_id, pending[stream_id])
        return True

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

    def _say(self, ledger: Ledger, stream_id: int, before: int) -> None:
        left = self.pending(ledger).get(stream_id, 0)
        stream = ledger.state.streams.get(stream_id)
        name = stream.schema.name if stream else f"composite {stream_id}"
        if left and time.monotonic() - self._said < _SAY_EVERY:
            return
        self._said = time.monotonic()
        high = max(ledger.high(stream_id), 1)
        done = 100 - 100 * left // high
        log.info("back-fill of %s: %d %%, %d rows left", name, done, left)


def _holds(file: DataFile, stream_id: int, predicates: tuple[int, ...]) -> bool:
    """Tells whether a file of the matches table may have pieces of some predicates of a stream."""
    low, high = file.low.get("predicate_id", 0), file.high.get("predicate_id", sys.maxsize)
    mine = file.partition["stream_id"] == str(stream_id)
    return mine and any(low <= one <= high for one in predicates)


def _meets(file: DataFile, lo: int, hi: int) -> bool:
    """Tells whether a file of the matches table may have pieces about the rows [lo, hi)."""
    first, last = file.low.get("lo", 0), file.high.get("hi", sys.maxsize)
    return bool(first < hi and last > lo)
