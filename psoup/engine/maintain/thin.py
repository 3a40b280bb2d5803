"""Thinning: rows of keyed streams that ended before the retention leave their files.

A row of a keyed stream is retained while it has no end, or end > NOW - RETAIN; the grace is added
on top. A file is written anew when half of its rows are gone, so blocks have gaps from then on.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from datastem.arrays import Int64s
from psoup.engine.ledger import Ledger, stem_name
from psoup.engine.maintain.merge import with_partition, write_closures
from psoup.engine.maintain.retain import retained_after
from psoup.engine.outcome import Outcome, by_table
from psoup.engine.pieces import ROW_SEGMENT_BITS
from psoup.engine.settings import EngineSettings
from psoup.engine.spread import spread
from psoup.engine.step import job_of
from psoup.engine.worker import Job, insert
from psoup.store.datafile import DataFile
from psoup.store.reading import reader
from psoup.store.state import StreamState

# Looked at again when the history has grown by this part of it, or time has by that of RETAIN.
_PART = 8


@dataclass(frozen=True, slots=True)
class Worn:
    """A file of which the rows with these ascending ids are to go."""

    table: str
    stream_id: int
    segment: int
    file: DataFile
    ids: Int64s


class Thin:
    def __init__(self, spark: SparkSession, settings: EngineSettings) -> None:
        self._spark = spark
        self._settings = settings
        self._grace = int(settings.grace * 1_000_000)
        self._next = 0.0
        self._looked: dict[int, tuple[int, int]] = {}

    def advance(self, ledger: Ledger) -> bool:
        if time.monotonic() < self._next:
            return False
        for stream in ledger.state.streams.values():
            if stream.schema.key and not stream.dropped and stem_name(stream.id) in ledger.tables:
                cut = retained_after(ledger, stream, self._grace)
                if cut is not None and self._due(stream, cut):
                    if self._thin(ledger, stream.id, cut):
                        return True
                    self._looked[stream.id] = cut, stream.high
        self._next = time.monotonic() + self._settings.housekeeping
        return False

    def _due(self, stream: StreamState, cut: int) -> bool:
        if stream.id not in self._looked:
            return True
        then, high = self._looked[stream.id]
        age = (stream.schema.retain or 0) // _PART
        return cut - then > age or stream.high - high > high // _PART

    def _thin(self, ledger: Ledger, stream_id: int, cut: int) -> bool:
        name = stem_name(stream_id)
        files = [file for file in ledger.files(name) if file.low]
        ended = ledger.histories.of(stream_id, files).ended(cut)
        worn = list(self._some(_worn(name, stream_id, files, ended)))
        if not worn:
            return False
        gone = np.sort(np.concatenate([one.ids for one in worn]))
        closures = _closures(ledger, stream_id, {one.segment for one in worn}, gone)
        left = [one for one in worn if len(one.ids) < one.file.rows]
        written = by_table(spread(self._spark, job_of(ledger), rewrite, [*left, *closures]))
        for table, old in ((name, worn), ("closures", closures)):
            if old:
                removed = [one.file for one in old]
                ledger.commit(table, written.get(table, ()), removed, operation="RETAIN")
        ledger.histories.remove(stream_id, gone)
        ledger.publish("retain")
        return True

    def _some(self, worn: Iterable[Worn]) -> Iterator[Worn]:
        """As many as one go may read, at least one."""
        size = 0
        for one in worn:
            if size and size + one.file.size > self._settings.merge_bytes:
                return
            size += one.file.size
            yield one


def rewrite(job: Job, worn: Worn) -> list[Outcome]:
    """Runs in an executor: the file without the rows that are to go."""
    rows = reader(Path(job.root) / worn.table, worn.file).whole()
    ids = rows.column("row_id" if worn.table == "closures" else "_row_id").to_numpy()
    left = rows.filter(pa.array(~np.isin(ids, worn.ids)))
    if worn.table == "closures":
        whole = with_partition(left, worn.table, worn.stream_id, worn.segment)
        return write_closures(job, worn.stream_id, whole)
    return insert(job, worn.stream_id, left)


def _worn(name: str, stream_id: int, files: Iterable[DataFile], ended: Int64s) -> Iterator[Worn]:
    """The files of which half is to go or more, oldest first."""
    for file in sorted(files, key=lambda file: file.low["_row_id"]):
        low, high = np.searchsorted(ended, [file.low["_row_id"], file.high["_row_id"] + 1])
        if high > low and 2 * (high - low) >= file.rows:
            segment = file.low["_row_id"] >> ROW_SEGMENT_BITS
            yield Worn(name, stream_id, segment, file, ended[low:high])


def _closures(ledger: Ledger, stream_id: int, segments: set[int], gone: Int64s) -> list[Worn]:
    """The files with closures of rows that are to go."""
    found = []
    for file in ledger.files("closures"):
        segment = int(file.partition["segment"])
        if int(file.partition["stream_id"]) == stream_id and segment in segments and file.low:
            low, high = np.searchsorted(gone, [file.low["row_id"], file.high["row_id"] + 1])
            if low < high:
                found.append(Worn("closures", stream_id, segment, file, gone[low:high]))
    return found
