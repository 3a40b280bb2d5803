"""Retention: the removal of rows that no request may see any more.

A row is retained while ts > NOW - RETAIN - grace; the grace is for clocks that differ and answers
in progress. NOW is that of the log, less the unconfirmed jumps: a wrong clock deletes nothing, not
even the engine's. `Retain` removes whole files. A row of a keyed stream is retained while it has no
end, or end > NOW - RETAIN - grace; so is one with a validity, which ends with that, in a stream
without a stream key. `Thin` removes such rows from their files.
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
from psoup.engine.ledger import JOINS, STEM, Ledger, stem_name, stream_of
from psoup.engine.maintain.merge import with_partition, write_closures
from psoup.engine.maintain.rewriting import WithoutRows
from psoup.engine.maintain.validity import ended_rows
from psoup.engine.settings import EngineSettings
from psoup.engine.spark.jobs import Outcome, SparkJob, by_table, job_of, run_tasks
from psoup.engine.steps.pieces import ROW_SEGMENT_BITS
from psoup.engine.steps.worker import insert
from psoup.store.delta.files import DataFile
from psoup.store.delta.reading import reader
from psoup.store.layout import SEGMENTED
from psoup.store.state.losses import Hole
from psoup.store.state.streams import StreamState


class Retain:
    """The chore that removes files without a retained row, and those of dropped streams and ended
    composites."""

    def __init__(self, settings: EngineSettings) -> None:
        self._grace = int(settings.grace * 1_000_000)
        self._every = settings.housekeeping
        self._next = 0.0

    def advance(self, ledger: Ledger) -> bool:
        if time.monotonic() < self._next:
            return False
        removed = {
            stem_name(stream.id): files
            for stream in ledger.state.streams.values()
            if (files := self._expired_files(ledger, stream))
        }
        for name in removed:
            ledger.histories.forget(stream_of(name))
        removed |= _of_ended_composites(ledger)
        removed |= {name: files for name, files in past_files(ledger) if files}
        for name, files in removed.items():
            ledger.commit(name, (), files, operation="RETAIN")
        # After the commits to the stems, which may have removed the last rows of a segment.
        orphans = {name: files for name in SEGMENTED if (files := _orphans(ledger, name))}
        for name, files in orphans.items():
            ledger.commit(name, (), files, operation="RETAIN")
        losses = ledger.state.losses
        ledger.state.losses = losses.only(lambda hole: not self._is_past(ledger, hole))
        if removed or orphans or losses != ledger.state.losses:
            ledger.publish("retain")
            return True
        self._next = time.monotonic() + self._every
        return False

    def _expired_files(self, ledger: Ledger, stream: StreamState) -> list[DataFile]:
        if stem_name(stream.id) not in ledger.tables:
            return []
        files = list(ledger.tables[stem_name(stream.id)].files.values())
        if stream.dropped:
            return files
        limit = None if stream.schema.key else retained_after(ledger, stream, self._grace)
        if limit is None:
            return []
        # A file without bounds of its ts is kept.
        return [file for file in files if file.high.get("_ts", limit + 1) <= limit]

    def _is_past(self, ledger: Ledger, hole: Hole) -> bool:
        """Return True if the rows of a hole would not be retained any more."""
        stream = ledger.state.streams[hole.stream_id]
        if stream.dropped:
            return True
        limit = None if stream.schema.key else retained_after(ledger, stream, self._grace)
        return limit is not None and hole.ts_hi is not None and hole.ts_hi <= limit


def retained_after(ledger: Ledger, stream: StreamState, grace: int) -> int | None:
    """Return the instant up to which no row of a stream is retained; None if all are."""
    state = ledger.state
    now = state.clock if stream.schema.now_is_clock else stream.reached
    retain = stream.schema.retain
    if retain is None or now is None:
        return None
    return now - state.jumps.unconfirmed - retain - grace


def ended_before(ledger: Ledger, stream: StreamState, grace: int) -> int | None:
    """Return the instant up to which rows of a stream must end to be removed one by one; None if
    none are."""
    if stream.schema.key:
        return retained_after(ledger, stream, grace)
    if stream.schema.validity is None or stream.schema.retention is None:
        return None
    state = ledger.state
    return state.clock - state.jumps.unconfirmed - stream.schema.retention - grace


def _of_ended_composites(ledger: Ledger) -> dict[str, list[DataFile]]:
    """Return the files of stems and joins that belong to no stream or composite, by table."""
    live_ids = ledger.state.streams.keys() | ledger.state.composites.keys()
    return {
        name: list(snapshot.files.values())
        for name, snapshot in ledger.tables.items()
        if name.startswith((STEM, JOINS)) and snapshot.files and stream_of(name) not in live_ids
    }


def _orphans(ledger: Ledger, name: str) -> list[DataFile]:
    """Return files of segments without rows, of dropped streams and of ended composites."""
    numbers = filter(ledger.is_live, (*ledger.state.streams, *ledger.state.composites))
    used_segments = {
        (str(number), str(file.low["_row_id"] >> ROW_SEGMENT_BITS))
        for number in numbers
        if stem_name(number) in ledger.tables
        for file in ledger.tables[stem_name(number)].files.values()
        if file.low
    }
    return [
        file
        for file in ledger.files(name)
        if (file.partition["stream_id"], file.partition["segment"]) not in used_segments
    ]


# A stream is checked again when its history has grown by an eighth, or after an eighth of RETAIN.
_CHECKS_PER_RETENTION = 8


@dataclass(frozen=True, slots=True)
class FileThinning:
    """A file to write again without the rows with these ascending ids."""

    table: str
    stream_id: int
    segment: int
    file: DataFile
    ids: Int64s


class Thin:
    """The chore that removes rows of keyed streams, and of those with a validity, that ended before
    the retention.

    A file is written again when half of its rows are to be removed. So blocks may have gaps.
    """

    def __init__(self, spark: SparkSession, settings: EngineSettings) -> None:
        self._spark = spark
        self._settings = settings
        self._grace = int(settings.grace * 1_000_000)
        self._next = 0.0
        self._checked: dict[int, tuple[int, int]] = {}

    def advance(self, ledger: Ledger) -> bool:
        if time.monotonic() < self._next:
            return False
        for stream in ledger.state.streams.values():
            # Closures that are being derived are those of the rows that were there.
            if stream.dropped or stream.id in ledger.unclosed:
                continue
            cut = ended_before(ledger, stream, self._grace)
            if cut is None or stem_name(stream.id) not in ledger.tables:
                continue
            if self._due(stream, cut):
                if self._thin(ledger, stream, cut):
                    return True
                self._checked[stream.id] = cut, stream.high
        self._next = time.monotonic() + self._settings.housekeeping
        return False

    def _due(self, stream: StreamState, cut: int) -> bool:
        if stream.id not in self._checked:
            return True
        then, high = self._checked[stream.id]
        age = (stream.schema.retention or 0) // _CHECKS_PER_RETENTION
        return cut - then > age or stream.high - high > high // _CHECKS_PER_RETENTION

    def _thin(self, ledger: Ledger, stream: StreamState, cut: int) -> bool:
        stream_id, name = stream.id, stem_name(stream.id)
        files = [file for file in ledger.files(name) if file.low]
        if stream.schema.key:
            ended = ledger.histories.of(stream_id, files).ended(cut)
        else:
            assert stream.schema.validity is not None, "only such streams have rows that end"
            root = ledger.folder(name).root
            ended = ended_rows(root, files, stream.schema.validity.ends, cut)
        thinnings = list(self._batch(_thinnings(name, stream_id, files, ended)))
        if not thinnings:
            return False
        # The closures of removed rows are removed, too.
        removed_ids = np.sort(np.concatenate([thinning.ids for thinning in thinnings]))
        closures = _closures(
            ledger, stream_id, {thinning.segment for thinning in thinnings}, removed_ids
        )
        # Files without remaining rows are only removed.
        rewritten = [thinning for thinning in thinnings if len(thinning.ids) < thinning.file.rows]
        written = by_table(run_tasks(self._spark, job_of(ledger), rewrite, [*rewritten, *closures]))
        for table, old in ((name, thinnings), ("closures", closures)):
            if old:
                removed = [thinning.file for thinning in old]
                ledger.commit(table, written.get(table, ()), removed, operation="RETAIN")
        if stream.schema.key:
            ledger.histories.remove(stream_id, removed_ids)
        ledger.publish("retain")
        return True

    def _batch(self, thinnings: Iterable[FileThinning]) -> Iterator[FileThinning]:
        """Yield as many files as one job may read, and at least one."""
        size = 0
        for thinning in thinnings:
            if size and size + thinning.file.size > self._settings.merge_bytes:
                return
            size += thinning.file.size
            yield thinning


def rewrite(job: SparkJob, thinning: FileThinning) -> list[Outcome]:
    """Write a file again without the rows to remove; runs in an executor."""
    rows = reader(Path(job.root) / thinning.table, thinning.file).whole()
    if thinning.table != "closures":
        return insert(job, thinning.stream_id, WithoutRows(thinning.ids)(rows))
    remaining = rows.filter(pa.array(~np.isin(rows.column("row_id").to_numpy(), thinning.ids)))
    whole = with_partition(remaining, thinning.table, thinning.stream_id, thinning.segment)
    return write_closures(job, thinning.stream_id, whole)


def _thinnings(
    name: str, stream_id: int, files: Iterable[DataFile], ended: Int64s
) -> Iterator[FileThinning]:
    """Yield the files of which at least half of the rows have ended, oldest first."""
    for file in sorted(files, key=lambda file: file.low["_row_id"]):
        # `ended` ascends, so the ids within a file are one slice of it.
        low, high = np.searchsorted(ended, [file.low["_row_id"], file.high["_row_id"] + 1])
        if high > low and 2 * (high - low) >= file.rows:
            segment = file.low["_row_id"] >> ROW_SEGMENT_BITS
            yield FileThinning(name, stream_id, segment, file, ended[low:high])


def _closures(
    ledger: Ledger, stream_id: int, segments: set[int], removed_ids: Int64s
) -> list[FileThinning]:
    """Return the files with closures of rows to remove."""
    thinnings = []
    for file in ledger.files("closures"):
        segment = int(file.partition["segment"])
        if int(file.partition["stream_id"]) == stream_id and segment in segments and file.low:
            low, high = np.searchsorted(removed_ids, [file.low["row_id"], file.high["row_id"] + 1])
            if low < high:
                thinnings.append(
                    FileThinning("closures", stream_id, segment, file, removed_ids[low:high])
                )
    return thinnings
