"""The events that first took streams to an instant, which identify refresh points over several
streams.

A batch is found by its rows, which say what their stream had reached before them. A heartbeat is
found in the log's tail or, if the engine has consumed it, in the table `reached`.
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
from datastem.stem_view import StemView
from psoup.answers.caches import Memo
from psoup.store import DataFile, Snapshot
from psoup.store.delta.reading import reader
from psoup.store.heartbeats import BeatsView


@dataclass(frozen=True, slots=True)
class Crossing:
    """An event-time stream, and the events that took it from instant to instant: its rows, the
    heartbeats in the log's tail (`beats`), and those in the table, which took it to `stored` at
    most; None if that is unknown. Only rows with a ts of at least `oldest` count: others may be
    deleted."""

    stream_id: int
    stem: StemView
    beats: BeatsView
    stored: int | None
    oldest: int | None


@dataclass(frozen=True, slots=True)
class CrossingFinder:
    """A finder of events. The heartbeats of an epoch (`files` of the table at `root`) are read only
    if rows don't decide, and cached."""

    root: Path
    files: Snapshot
    memo: Memo

    def position(self, instant: int, crossings: Iterable[Crossing]) -> int | None:
        """Return the position of the event that took the last of some streams to an instant, which
        all must have reached; None if it is not known for any of them."""
        positions = [self._first(crossing, instant) for crossing in crossings]
        return max((position for position in positions if position is not None), default=None)

    def reached_at(self, stamp: int, crossing: Crossing, oldest: int) -> int | None:
        """Return what a stream had reached before the first heartbeat with a later stamp that took
        it to `oldest` or past it, SINCE_EVER for nothing; None if there is no such heartbeat."""
        stream_id, values = crossing.stream_id, []
        for file in self.files.files.values():
            if _may_have(file, stream_id, oldest) and file.high.get("stamp", stamp + 1) > stamp:
                columns = self._columns(file)
                later = (columns.stamps > stamp) & (columns.reached >= oldest)
                chosen = columns.before[(columns.streams == stream_id) & later]
                values += [int(chosen.min())] if len(chosen) else []
        # What a stream has reached never falls, so the least value is that of the first heartbeat.
        # The table has older heartbeats than the log's tail.
        return min(values) if values else crossing.beats.reached_at(stamp, oldest)

    def _first(self, crossing: Crossing, instant: int) -> int | None:
        """Return the position of the event that first took a stream to an instant.

        None if the stream no longer retains the instant, unless a retained row took it there. If
        the event is unknown for other reasons, the last batch before it is returned: the row of a
        keyed stream may be deleted, or the heartbeat older than the table.
        """
        if crossing.oldest is not None and instant < crossing.oldest:
            return _retained_leap(crossing.stem, instant, crossing.oldest)
        batch, reaches = crossing.stem.last_before(instant)
        if batch is not None and reaches:
            return batch
        # Without a heartbeat in the table that reached the instant, no file is read.
        stored = crossing.stored is None or crossing.stored >= instant
        position = self._stored(crossing, instant) if stored else None
        beat = crossing.beats.first_to(instant) if position is None else position
        if beat is not None and not self._came_later(crossing, batch, beat):
            return beat
        return 0 if batch is None else batch

    def _came_later(self, crossing: Crossing, batch: int | None, beat: int) -> bool:
        """Return True if a batch came between the last one before the instant and a heartbeat."""
        high = 0 if batch is None else crossing.stem.high_at("_position", batch)[0]
        following = crossing.stem.first_from(high, "_position")
        return following is not None and following < beat

    def _stored(self, crossing: Crossing, instant: int) -> int | None:
        """Return the position of the first heartbeat in the table that took a stream to an
        instant."""
        stream_id, positions = crossing.stream_id, []
        for file in self.files.files.values():
            if _may_have(file, stream_id, instant):
                columns = self._columns(file)
                # A mask of heartbeats. Positions ascend with time, so the least is the first.
                mask = (columns.streams == stream_id) & (columns.reached >= instant)
                chosen = columns.positions[mask]
                positions += [int(chosen.min())] if len(chosen) else []
        return min(positions, default=None)

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
    """The columns of a file of heartbeats, a value for each. NULL is SINCE_EVER."""

    streams: Int64s
    reached: Int64s
    positions: Int64s
    stamps: Int64s
    before: Int64s


def _int64s(column: pa.ChunkedArray) -> Int64s:
    return np.asarray(column.cast(pa.int64()).fill_null(SINCE_EVER).to_numpy(), np.int64)


def _retained_leap(stem: StemView, instant: int, oldest: int) -> int | None:
    """Return the position of the batch that took the stream to an instant, if it has a row of
    `oldest` or later; else None."""
    batch, reaches = stem.last_before(instant)
    has_retained = batch is not None and reaches and stem.has_rows_of(batch, oldest)
    return batch if has_retained else None


def _may_have(file: DataFile, stream_id: int, instant: int) -> bool:
    first, last = (side.get("stream_id", stream_id) for side in (file.low, file.high))
    return first <= stream_id <= last and file.high.get("reached", instant) >= instant
