"""Retention: rows that no request may see any more leave the tables.

A row is retained while ts > NOW - RETAIN; the grace is added on top, for clocks that differ and
answers that are under way. NOW is what the log says, less the jumps that nobody has confirmed: a
wrong clock, the engine's own included, deletes nothing. `Retain` drops whole files. A row of a
keyed stream is retained while it has no end, or end > NOW - RETAIN; `Thin` takes such rows out of
their files.
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
from psoup.engine.composites.upkeep import past_files
from psoup.engine.jobs import Outcome, SparkJob, by_table, job_of, run_tasks
from psoup.engine.ledger import JOINS, STEM, Ledger, stem_name, stream_of
from psoup.engine.maintain.merge import with_partition, write_closures
from psoup.engine.pieces import ROW_SEGMENT_BITS
from psoup.engine.settings import EngineSettings
from psoup.engine.worker import insert
from psoup.store.delta.files import DataFile
from psoup.store.delta.reading import reader
from psoup.store.layout import SEGMENTED
from psoup.store.state.losses import Hole
from psoup.store.state.streams import StreamState


class Retain:
    """Drops the files of which no row is retained, and what is left of dropped streams and of
    composites that have ended."""

    def __init__(self, settings: EngineSettings) -> None:
        self._grace = int(settings.grace * 1_000_000)
        self._every = settings.housekeeping
        self._next = 0.0

    def advance(self, ledger: Ledger) -> bool:
        if time.monotonic() < self._next:
            return False
        gone = {
            stem_name(stream.id): files
            for stream in ledger.state.streams.values()
            if (files := self._gone(ledger, stream))
        }
        for name in gone:
            ledger.histories.forget(stream_of(name))
        gone |= _of_ended_composites(ledger)
        gone |= {name: files for name, files in past_files(ledger) if files}
        for name, files in gone.items():
            ledger.commit(name, (), files, operation="RETAIN")
        orphans = {name: files for name in SEGMENTED if (files := _orphans(ledger, name))}
        for name, files in orphans.items():
            ledger.commit(name, (), files, operation="RETAIN")
        losses = ledger.state.losses
        ledger.state.losses = losses.only(lambda hole: not self._is_past(ledger, hole))
        if gone or orphans or losses != ledger.state.losses:
            ledger.publish("retain")
            return True
        self._next = time.monotonic() + self._every
        return False

    def _gone(self, ledger: Ledger, stream: StreamState) -> list[DataFile]:
        if stem_name(stream.id) not in ledger.tables:
            return []
        files = list(ledger.tables[stem_name(stream.id)].files.values())
        if stream.dropped:
            return files
        limit = None if stream.schema.key else retained_after(ledger, stream, self._grace)
        if limit is None:
            return []
        return [file for file in files if file.high.get("_ts", limit + 1) <= limit]

    def _is_past(self, ledger: Ledger, hole: Hole) -> bool:
        """True where the rows of a hole would be gone by now, had they not been lost."""
        stream = ledger.state.streams[hole.stream_id]
        if stream.dropped:
            return True
        limit = None if stream.schema.key else retained_after(ledger, stream, self._grace)
        return limit is not None and hole.ts_hi is not None and hole.ts_hi <= limit


def retained_after(ledger: Ledger, stream: StreamState, grace: int) -> int | None:
    """The instant up to which no row of a stream is retained; None where all are."""
    state = ledger.state
    now = stream.reached if stream.schema.ordered_by else state.clock
    if stream.schema.retain is None or now is None:
        return None
    return now - state.jumps.unconfirmed - stream.schema.retain - grace


def _of_ended_composites(ledger: Ledger) -> dict[str, list[DataFile]]:
    """The files of stems and joins that belong to no stream and to no composite, by table."""
    known = ledger.state.streams.keys() | ledger.state.composites.keys()
    return {
        name: list(snapshot.files.values())
        for name, snapshot in ledger.tables.items()
        if name.startswith((STEM, JOINS)) and snapshot.files and stream_of(name) not in known
    }


def _orphans(ledger: Ledger, name: str) -> list[DataFile]:
    """Files of segments without rows, of dropped streams and of composites that have ended."""
    numbers = filter(ledger.is_live, (*ledger.state.streams, *ledger.state.composites))
    held = {
        (str(number), str(file.low["_row_id"] >> ROW_SEGMENT_BITS))
        for number in numbers
        if stem_name(number) in ledger.tables
        for file in ledger.tables[stem_name(number)].files.values()
        if file.low
    }
    return [
        file
        for file in ledger.files(name)
        if (file.partition["stream_id"], file.partition["segment"]) not in held
    ]


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
    """Takes the rows of keyed streams out of their files that ended before the retention.

    A file is written anew when half of its rows are gone, so blocks have gaps from then on.
    """

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
        written = by_table(run_tasks(self._spark, job_of(ledger), rewrite, [*left, *closures]))
        for table, old in ((name, worn), ("closures", closures)):
            if old:
                removed = [one.file for one in old]
                ledger.commit(table, written.get(table, ()), removed, operation="RETAIN")
        ledger.histories.remove(stream_id, gone)
        ledger.publish("retain")
        return True

    def _some(self, worn: Iterable[Worn]) -> Iterator[Worn]:
        """Takes as many files as one go may read, and at least one."""
        size = 0
        for one in worn:
            if size and size + one.file.size > self._settings.merge_bytes:
                return
            size += one.file.size
            yield one


def rewrite(job: SparkJob, worn: Worn) -> list[Outcome]:
    """Writes a file again without the rows that are to go; runs in an executor."""
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
