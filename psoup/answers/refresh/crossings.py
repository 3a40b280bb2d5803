"""The events that first took streams to an instant: what a refresh point over several streams is
known by.

A batch is found by its rows, which say how far their stream had come before them. A heartbeat is
found among those of the log's tail or, where the engine has consumed it, in the table `reached`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from datastem.instants import SINCE_EVER
from datastem.stem import StemView
from psoup.answers.caches import Memo
from psoup.store import DataFile, Snapshot
from psoup.store.delta.reading import reader
from psoup.store.heartbeats import BeatsView


@dataclass(frozen=True, slots=True)
class Crossing:
    """A stream with event time, and the events that took it from instant to instant: its rows, the
    heartbeats in the log's tail (`beats`), and those in the table, which took it to `stored` at
    most; None: nobody knows how far. Of its rows those count whose ts is at least `oldest`: others
    may be gone."""

    stream_id: int
    stem: StemView
    beats: BeatsView
    stored: int | None
    oldest: int | None


@dataclass(frozen=True, slots=True)
class CrossingFinder:
    """Finds events. The heartbeats of an epoch (`files` of the table at `root`) are read only where
    rows don't tell, and remembered."""

    root: Path
    files: Snapshot
    memo: Memo

    def position(self, instant: int, crossings: Iterable[Crossing]) -> int | None:
        """The position of the event that took the last of some streams, which have reached an
        instant, to it; None where none of them tells."""
        found = [self._first(one, instant) for one in crossings]
        return max((one for one in found if one is not None), default=None)

    def reached_at(self, stamp: int, crossing: Crossing, oldest: int) -> int | None:
        """Return what a stream had reached before the first heartbeat with a later stamp that took
        it to `oldest` or past it, SINCE_EVER for nothing; None if there is no such one."""
        stream_id, values = crossing.stream_id, []
        for file in self.files.files.values():
            if _may_have(file, stream_id, oldest) and file.high.get("stamp", stamp + 1) > stamp:
                columns = self._columns(file)
                later = (columns.stamps > stamp) & (columns.reached >= oldest)
                chosen = columns.before[(columns.streams == stream_id) & later]
                values += [int(chosen.min())] if len(chosen) else []
        return min(values) if values else crossing.beats.reached_at(stamp, oldest)

    def _first(self, crossing: Crossing, instant: int) -> int | None:
        """The event that first took a stream to an instant.

        None where the stream does not retain the instant any more, unless a row that it retains
        took it there. Where the event is not known for other reasons, the row of a keyed stream
        being gone or the heartbeat older than the table, the last batch before it stands for it.
        """
        if crossing.oldest is not None and instant < crossing.oldest:
            return _retained_leap(crossing.stem, instant, crossing.oldest)
        batch, reaches = crossing.stem.last_before(instant)
        if batch is not None and reaches:
            return batch
        stored = crossing.stored is None or crossing.stored >= instant
        found = self._stored(crossing, instant) if stored else None
        beat = crossing.beats.first_to(instant) if found is None else found
        if beat is not None and not self._came_later(crossing, batch, beat):
            return beat
        return 0 if batch is None else batch

    def _came_later(self, crossing: Crossing, batch: int | None, beat: int) -> bool:
        """Tells whether a batch came between the last one before the instant and a heartbeat."""
        high = 0 if batch is None else crossing.stem.high_at("_position", batch)[0]
        following = crossing.stem.first_from(high, "_position")
        return following is not None and following < beat

    def _stored(self, crossing: Crossing, instant: int) -> int | None:
        """The position of the first heartbeat in the table that took a stream to an instant."""
        stream_id, found = crossing.stream_id, []
        for file in self.files.files.values():
            if _may_have(file, stream_id, instant):
                columns = self._columns(file)
                there = (columns.streams == stream_id) & (columns.reached >= instant)
                chosen = columns.positions[there]
                found += [int(chosen.min())] if len(chosen) else []
        return min(found, default=None)

    def _columns(self, file: DataFile) -> _Columns:
        key = "reached", file.path
        columns = self.memo.get(key)
        if not isinstance(columns, _Columns):
            table = reader(self.root, file).whole()
            names = ("stream_id", "reached", "position", "stamp", "before")
            columns = _Columns(*(_int64s(table.column(name)) for name in names))
            self.memo.put(key, columns, sum(column.nbytes for column in columns))
        return columns


class _Columns(NamedTuple):
    """The columns of a file of heartbeats. NULL is SINCE_EVER."""

    streams: Int64s
    reached: Int64s
    positions: Int64s
    stamps: Int64s
    before: Int64s


def _int64s(column: pa.ChunkedArray) -> Int64s:
    return np.asarray(column.cast(pa.int64()).fill_null(SINCE_EVER).to_numpy(), np.int64)


def _retained_leap(stem: StemView, instant: int, oldest: int) -> int | None:
    """The position of the first batch with a row of `oldest` or later, where it took the stream
    past an earlier instant; else None."""
    before = stem.first_from(0, "_before", oldest)
    if before is None or before >= instant:
        return None
    return stem.first_from(0, "_position", oldest)


def _may_have(file: DataFile, stream_id: int, instant: int) -> bool:
    first, last = (side.get("stream_id", stream_id) for side in (file.low, file.high))
    return first <= stream_id <= last and file.high.get("reached", instant) >= instant
