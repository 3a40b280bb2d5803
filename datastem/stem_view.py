"""The rows that a stem held at one moment, and how they are searched: by time, by id, by value."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from datastem.block_times import BlockTimes
from datastem.blocks import BLOCK_BITS, Block, Part
from datastem.instants import FOR_EVER, SINCE_EVER
from datastem.segments import RowSegment, SegmentIndex

if TYPE_CHECKING:
    # Only for types: a stem makes its views.
    from datastem.stem import DataStem

# A column whose values never fall as row ids rise; NULL counts as before all time.
SystemColumn = Literal["_stamp", "_before", "_reached", "_position", "_row_id"]


class NotInMemory(Exception):
    """Rows that a view needs are not in memory, and it must not read files."""


@dataclass(frozen=True, slots=True)
class StemView:
    """The rows that a stem held at one moment: those with ids below `high`."""

    stem: DataStem
    high: int
    blocks: Mapping[int, Block]
    index: SegmentIndex
    tail: Mapping[int, RowSegment]
    # The full blocks of the tail.
    tail_times: BlockTimes
    reads_files: bool = True

    @property
    def erased_rows(self) -> int:
        """The number of rows that were erased. It only grows, so it goes into the keys of caches:
        what was computed before an erasure is not used after it."""
        return len(self.stem.erased)

    def in_memory(self) -> StemView:
        """Return a view that reads no files: a probe raises NotInMemory instead."""
        return replace(self, reads_files=False)

    def released(self) -> StemView:
        """Return a view that keeps no rows alive: a probe looks for them in memory, then in
        files."""
        return replace(self, blocks={})

    def probe(
        self, begin: int | None, end: int, high: int | None = None, low: int = 0
    ) -> Iterator[Part]:
        """Yield the parts that may hold rows with ts in `[begin, end)` and ids in `[low, high)`.

        The parts come by ascending row id. Files are read if rows are not in memory.
        """
        limit = self.high if high is None else min(high, self.high)
        for number in self.numbers(begin, end, limit):
            if (number + 1) << BLOCK_BITS > low:
                for part in self._chosen(number, begin, end, limit):
                    if part.stop > low:
                        yield part

    def probe_memory(self, begin: int | None, end: int, high: int, most: int) -> list[Part] | None:
        """Return the parts that `probe` yields if all are in memory and in at most `most` blocks;
        else None."""
        limit = min(high, self.high)
        numbers = self.numbers(begin, end, limit)
        if len(numbers) > most or any(self._lacks(number) for number in numbers):
            return None
        return [part for number in numbers for part in self._chosen(number, begin, end, limit)]

    def high_at(self, column: SystemColumn, most: int) -> tuple[int, int | None]:
        """Return the first row id whose value in the column is greater than `most`, and the
        position of the row before it, or None if there is no row before it.

        The search starts at the newest blocks and goes back in steps that double.
        """
        numbers = self.numbers(None, FOR_EVER, self.high)
        top, step = len(numbers), 1
        # Blocks are in the order of the column. After the loop the last block that begins with a
        # value up to `most` is in `numbers[low:top]`, if there is one. Recent values read few
        # blocks.
        low = max(0, top - step)
        while low and self._first(column, numbers[low]) > most:
            top, step = low, 2 * step
            low = max(0, top - step)
        top = bisect_right(numbers, most, low, top, key=lambda number: self._first(column, number))
        # A block without rows sorts as SINCE_EVER, so several blocks may have to be passed.
        for number in reversed(numbers[:top]):
            for part in reversed(list(self._parts(number, None, FOR_EVER))):
                count = int(np.searchsorted(_values(part, column), most, "right"))
                if count:
                    position = part.rows.column("_position")[count - 1].as_py()
                    return int(part.ids[count - 1]) + 1, position
        return 0, None

    def first_from(self, high: int, column: SystemColumn, oldest: int | None = None) -> int | None:
        """Return the column's value of the first row with an id of at least `high` and a ts of at
        least `oldest`; None without a row.

        NULL is returned as SINCE_EVER.
        """
        for part in self.probe(oldest, FOR_EVER, low=high):
            place = int(np.searchsorted(part.ids, high))
            if oldest is not None:
                later = part.ts[place:] >= oldest
                place = place + int(later.argmax()) if later.any() else len(part.ids)
            if place < len(part.ids):
                return int(_values(part, column)[place])
        return None

    def last_before(self, instant: int) -> tuple[int | None, bool]:
        """Return the position of the last batch that came before the stream had reached an instant,
        None without one; and True if that batch took it there or past it."""
        # `_before` is what the stream had reached before a row's batch. So rows with ids below
        # `high` came before the stream reached the instant.
        high, position = self.high_at("_before", instant - 1)
        if position is None:
            return None, False
        reached = self.first_from(high - 1, "_reached")
        return position, reached is not None and reached >= instant

    def has_rows_of(self, position: int, oldest: int) -> bool:
        """Return whether the batch at a position has a row with a ts of at least `oldest`."""
        (low, _), (high, _) = (self.high_at("_position", most) for most in (position - 1, position))
        parts = self.probe(oldest, FOR_EVER, high, low)
        return any((part.ts[part.ids >= low] >= oldest).any() for part in parts)

    def earliest(self) -> int | None:
        """Return a lower bound of the ts of all rows, without reading files; None if there are no
        rows."""
        stored = self.index.times.low
        lows = [int(stored.min())] if len(stored) else []
        lows += [segment.ts_lo for segment in self.tail.values()]
        lows += [part.bounds[0] for block in self.blocks.values() for part in block.parts]
        return min(lows, default=None)

    def parts(self, number: int, high: int) -> list[Part]:
        """Return all rows of a block with ids below `high`. Files are read if they are not in
        memory."""
        parts = (part.below(high) for part in self._parts(number, None, FOR_EVER))
        return [part for part in parts if part is not None]

    def columns(self, names: Sequence[str], lo: int) -> Iterator[pa.RecordBatch]:
        """Yield the named columns, `_row_id` among them, of the rows with ids from `lo` on,
        ascending.

        For blocks that are not in memory only these columns are read from the files, and not
        cached.
        """
        for number in range(lo >> BLOCK_BITS, ((self.high - 1) >> BLOCK_BITS) + 1):
            stop = (number + 1) << BLOCK_BITS
            block = self.blocks.get(number)
            floor = stop if block is None else block.floor
            parts = () if block is None else block.parts
            if lo < floor and (segments := self.segments(number, floor)):
                if not self.reads_files:
                    raise NotInMemory
                parts = (self.stem.read(segments, number << BLOCK_BITS, floor, names), *parts)
            for part in parts:
                first = int(np.searchsorted(part.ids, lo))
                yield part.rows.select(list(names)).slice(first)

    def latest(self, number: int) -> int:
        """Return an upper bound of the ts of the block's rows, without reading files."""
        block = self.blocks.get(number)
        tops = [part.bounds[1] for part in block.parts] if block else []
        if block is None or block.floor > number << BLOCK_BITS:
            exact = self.stem.bounds_of(number) if block is None else None
            segments = self.segments(number, (number + 1) << BLOCK_BITS)
            tops += [exact[1]] if exact else [segment.ts_hi for segment in segments]
        return max(tops, default=SINCE_EVER)

    def first_id(self, begin: int | None, end: int) -> int:
        """Return a lower bound of the ids of rows with ts in `[begin, end)`, without reading
        files."""
        for number in self.index.times.overlapping(begin, end):
            row_ids = [
                segment.row_lo
                for segment in self.index.segments[number]
                if segment.ts_lo < end and (begin is None or segment.ts_hi >= begin)
            ]
            if row_ids:
                return min(row_ids)
        return self.index.high

    def is_whole(self, low: int) -> bool:
        """Return True if the files hold rows of all ids from `low` on, so that none of them was
        deleted."""
        numbers = range(low >> BLOCK_BITS, ((self.index.high - 1) >> BLOCK_BITS) + 1)
        # A segment is listed under each block that it touches; the set has it once.
        spans = {
            (segment.row_lo, segment.row_hi)
            for number in numbers
            for segment in self.index.segments.get(number, ())
        }
        reached = low
        for first, stop in sorted(spans):
            if first > reached:
                return False
            reached = max(reached, stop)
        return reached >= self.index.high

    def _first(self, column: SystemColumn, number: int) -> int:
        """Return the column's value of the block's first row; SINCE_EVER for NULL or an empty
        block."""
        for part in self._parts(number, None, FOR_EVER):
            first = part.rows.column(column).slice(0, 1).view(pa.int64())[0].as_py()
            return SINCE_EVER if first is None else int(first)
        return SINCE_EVER

    def numbers(self, begin: int | None, end: int, high: int) -> list[int]:
        """Return the blocks that may hold rows with ts in `[begin, end)` and ids below `high`,
        ascending.

        Rows beyond the index that stay in memory may have any ts.
        """
        # Three sources, in the order of ids: blocks in files, full blocks of the tail by their
        # times, and the blocks after those, which are looked at one by one.
        last, times = (high - 1) >> BLOCK_BITS, self.tail_times
        stored = [n for n in self.index.times.overlapping(begin, end) if n <= last]
        later = [n for n in times.overlapping(begin, end) if n <= last]
        first = int(times.numbers[-1]) + 1 if len(times.numbers) else self.index.high >> BLOCK_BITS
        later += [n for n in range(first, last + 1) if self._tail_may_overlap(n, begin, end)]
        # A block may have rows on both sides of the index's end.
        return stored + (later[1:] if stored[-1:] == later[:1] else later)

    def _tail_may_overlap(self, number: int, begin: int | None, end: int) -> bool:
        """Return True if rows of a block beyond the index may have a ts in `[begin, end)`."""
        rows = self.tail.get(number)
        if rows is None:
            return number in self.blocks
        return rows.ts_lo < end and (begin is None or rows.ts_hi >= begin)

    def segments(self, number: int, floor: int) -> list[RowSegment]:
        """Return the segments to read the rows of a block with ids below `floor` from."""
        later = [self.tail[number]] if number in self.tail else []
        return [s for s in (*self.index.segments.get(number, ()), *later) if s.row_lo < floor]

    def _chosen(self, number: int, begin: int | None, end: int, limit: int) -> Iterator[Part]:
        for part in self._parts(number, begin, end):
            below = part.below(limit)
            if below is not None and below.overlaps(begin, end):
                yield below

    def _parts(self, number: int, begin: int | None, end: int) -> Iterator[Part]:
        start = number << BLOCK_BITS
        block = self.blocks.get(number)
        floor = start + (1 << BLOCK_BITS) if block is None else block.floor
        # Rows below the floor come first, because parts are returned by ascending id.
        if floor > start and self._may_overlap(number, floor, begin, end):
            if not self.reads_files:
                raise NotInMemory
            yield from self.stem.load(self, number, floor)
        if block is not None:
            self.stem.touch(number)
            yield from block.parts

    def _lacks(self, number: int) -> bool:
        block = self.blocks.get(number)
        return block is None or block.floor > number << BLOCK_BITS

    def _may_overlap(self, number: int, floor: int, begin: int | None, end: int) -> bool:
        exact = None if number in self.blocks else self.stem.bounds_of(number)
        spans = [exact] if exact else [(s.ts_lo, s.ts_hi) for s in self.segments(number, floor)]
        return any(low < end and (begin is None or high >= begin) for low, high in spans)


def _values(part: Part, column: SystemColumn) -> Int64s:
    values: Int64s = part.rows.column(column).view(pa.int64()).fill_null(SINCE_EVER).to_numpy()
    return values
