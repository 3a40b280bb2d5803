"""Batches of a stream out of a reader's pieces, each with the marks of its records."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from psoup.source.errors import PlaceLost
from psoup.source.feeding.piece import (
    ASIDE,
    REACHED,
    ROW,
    BadRow,
    Mark,
    Piece,
    PushedReader,
    Reader,
    good_before,
    row_metadata,
)
from psoup.source.readers.chunk import row_fields

BATCH_ROWS = 10_000
BATCH_BYTES = 8 << 20
BATCH_SECONDS = 0.25
# How long a reader may wait for its first record.
POLL_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class BatchSegment:
    """Records of a batch that come from one piece. `start` is the place of the first in the batch.

    The first is record `row` after the mark `at`, and record `offset` of its piece.
    """

    start: int
    at: Mark
    row: int
    offset: int
    mark_before: Callable[[int], Mark] | None

    def mark(self, record: int) -> dict[str, Any]:
        """Return where to go on at a record of the batch."""
        count = record - self.start
        if self.mark_before is not None:
            return dict(self.mark_before(self.offset + count))
        return counted_mark(self.at, self.row + count)


@dataclass(frozen=True, slots=True)
class Batch:
    """Records for one publish: good rows, bad ones by place, and the marks before and after."""

    table: pa.Table
    bad: tuple[BadRow, ...]
    segments: tuple[BatchSegment, ...]
    mark: Mark
    is_last: bool = False

    @property
    def records(self) -> int:
        return int(self.table.num_rows) + len(self.bad)

    @property
    def nbytes(self) -> int:
        return int(self.table.nbytes) + sum(len(row.raw) for row in self.bad)

    def mark_before(self, record: int) -> dict[str, Any]:
        """Return where to go on at a record of the batch."""
        segment = next(s for s in reversed(self.segments) if s.start <= record)
        return segment.mark(record)

    def mark_after(self, record: int) -> Mark | None:
        """Return where to go on after a record of the batch; None if that is not possible.

        Records that come from one message, or from a snapshot, have the same place.
        """
        place = self.mark_before(record)
        later = map(self.mark_before, range(record + 1, self.records))
        mark = next((mark for mark in later if mark != place), self.mark)
        return None if mark == place else mark

    def head(self, records: int) -> Batch:
        """Return the first records of the batch."""
        bad = tuple(row for row in self.bad if row.record < records)
        table = self.table.slice(0, good_before(self.bad, records))
        return Batch(table, bad, self.segments, self.mark_before(records))

    def tail(self, records: int) -> Batch:
        """Return the batch without its first records."""
        bad = tuple(
            replace(row, record=row.record - records) for row in self.bad if row.record >= records
        )
        segments = tuple(_moved(segment, records) for segment in self._reaching(records))
        table = self.table.slice(good_before(self.bad, records))
        return Batch(table, bad, segments, self.mark, self.is_last)

    def _reaching(self, record: int) -> list[BatchSegment]:
        """Return the segments from the one with this record on."""
        first = max(n for n, s in enumerate(self.segments) if n == 0 or s.start <= record)
        return list(self.segments[first:])

    def without_bad(self) -> Batch:
        """Return the batch as if its bad records had not been there; its marks stay."""
        return replace(self, bad=())

    def with_bad(self, row: int, reason: str, message: str) -> Batch:
        """Return the batch with one of its good rows, by its index in the table, as a bad one."""
        bad_places = {bad.record for bad in self.bad}
        places = (place for place in range(self.records) if place not in bad_places)
        record = next(place for index, place in enumerate(places) if index == row)
        fields = row_fields(
            dict(zip(self.table.column_names, self.table.columns, strict=True)), row
        )
        place, metadata = str(self.mark_before(record)), row_metadata(fields)
        bad = BadRow(record, place, reason, message, fields, metadata)
        table = pa.concat_tables([self.table.slice(0, row), self.table.slice(row + 1)])
        return replace(
            self, table=table, bad=tuple(sorted((*self.bad, bad), key=lambda b: b.record))
        )


def _moved(segment: BatchSegment, records: int) -> BatchSegment:
    """Return a segment of a batch that begins `records` later."""
    if segment.start >= records:
        return replace(segment, start=segment.start - records)
    passed = records - segment.start
    return replace(segment, start=0, row=segment.row + passed, offset=segment.offset + passed)


def counted_mark(at: Mark, row: int) -> dict[str, Any]:
    return {**at, ROW: row} if row else dict(at)


class Assembler:
    """Batches of a reader, which close after BATCH_SECONDS, `most_bytes` or BATCH_ROWS.

    It begins at the mark that the store has: records that are counted there are skipped, and bad
    ones that were put aside are dropped.
    """

    def __init__(
        self, reader: Reader, mark: Mark, schema: pa.Schema, most_bytes: int = BATCH_BYTES
    ) -> None:
        self._reader = reader
        self._most_bytes = most_bytes
        self._is_pushed = isinstance(reader, PushedReader)
        self._empty = schema.empty_table()
        self._skip = int(mark.get(ROW, 0))
        self._aside = int(mark.get(ASIDE, 0))
        self._at: Mark = own_mark(mark)
        self._row = 0
        self._piece: Piece | None = None
        self._offset = 0
        self._failure: Exception | None = None

    def next(self) -> Batch | None:
        """Return the next batch; None if there was nothing within POLL_SECONDS. Raises what the
        reader does, once the records before are returned.
        """
        if self._failure is not None:
            raise self._failure
        tables, bad, segments = list[pa.Table](), list[BadRow](), list[BatchSegment]()
        records = rows = size = 0
        started, deadline, is_last, moved = time.monotonic(), 0.0, False, False
        while rows < BATCH_ROWS and size < self._most_bytes and not is_last:
            if self._piece is None:
                wait = max(0.0, deadline - time.monotonic()) if moved else POLL_SECONDS
                if moved and not wait:
                    break
                # What has not arrived by now is for the next batch.
                wait = 0.0 if moved and self._is_pushed else wait
                try:
                    self._piece, self._offset = self._reader.poll(wait), 0
                except Exception as error:
                    if not moved:
                        raise
                    # What was read before it goes into the store first.
                    self._failure = error
                    break
                if self._piece is None:
                    if not moved:
                        return None
                    if self._is_pushed:
                        break
                    continue
                if self._piece.is_restart:
                    self._skip = self._aside = 0
            piece, start = self._piece, self._offset
            stop = self._skipped(piece, start)
            if stop == start:
                stop = _stop(piece, start, BATCH_ROWS - rows, self._most_bytes - size)
                segments.append(
                    BatchSegment(records, self._at, self._row, start, piece.mark_before)
                )
                table, misfits = _cut(piece, start, stop)
                bad += [
                    replace(
                        row,
                        record=row.record - start + records,
                        is_aside=row.record - start < self._aside,
                    )
                    for row in misfits
                ]
                self._aside = max(0, self._aside - (stop - start))
                tables.append(table)
                records += stop - start
                rows, size = rows + table.num_rows, size + table.nbytes
            is_last = self._pass(piece, start, stop)
            if self._skip:
                # The place is before the mark that the store has, which must not go back.
                if time.monotonic() > started + BATCH_SECONDS:
                    return None
            elif not moved:
                moved, deadline = True, time.monotonic() + BATCH_SECONDS
        table = pa.concat_tables([*tables, self._empty], promote_options="default")
        return Batch(table, tuple(bad), tuple(segments), self._mark(), is_last)

    def _mark(self) -> dict[str, Any]:
        mark = counted_mark(self._at, self._row)
        return {**mark, ASIDE: self._aside} if self._aside else mark

    def _skipped(self, piece: Piece, start: int) -> int:
        """Return the end of the records from `start` on that the store has already."""
        count = min(self._skip, piece.records - start)
        self._skip -= count
        if self._skip and piece.is_last:
            raise PlaceLost(
                f"the input ends {self._skip:,} records before the mark {self._mark()}: it is not "
                "the one that was read before"
            )
        return start + count

    def _pass(self, piece: Piece, start: int, stop: int) -> bool:
        """Move behind records of a piece, and return whether they are the last ones."""
        self._row += stop - start
        self._offset = stop
        if stop < piece.records:
            return False
        self._piece = None
        if piece.mark is not None:
            self._at, self._row = piece.mark, 0
        return piece.is_last


def own_mark(mark: Mark) -> dict[str, Any]:
    """Return what the reader itself wrote of a mark."""
    return {key: value for key, value in mark.items() if key not in (ROW, ASIDE, REACHED)}


def _stop(piece: Piece, start: int, rows: int, size: int) -> int:
    """Return the end of a cut from `start` on with at most this many rows and bytes."""
    stop = min(piece.records, start + rows)
    while stop - start > 1 and _cut(piece, start, stop)[0].nbytes > size:
        stop = start + (stop - start) // 2
    return stop


def _cut(piece: Piece, start: int, stop: int) -> tuple[pa.Table, list[BadRow]]:
    if not piece.bad:
        return piece.table.slice(start, stop - start), []
    first, last = good_before(piece.bad, start), good_before(piece.bad, stop)
    bad = [row for row in piece.bad if start <= row.record < stop]
    return piece.table.slice(first, last - first), bad
