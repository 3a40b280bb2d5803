"""The data SteM of a stream: `insert` rows as they come, `probe` them by time.

Blocks stay in memory as long as the budget allows. A probe reads missing ones again: from the
stem's files, or, if rows are in no file yet, from the inserts that brought them.

Thread safety: `insert`, `alter`, `cover` and `view` may be called from one thread while views are
probed from others.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from datastem.block_times import BlockTimes
from datastem.blocks import BLOCK_BITS, Block, Part, SplitRows
from datastem.instants import FOR_EVER, SINCE_EVER
from datastem.memory import Memory
from datastem.schema import Column
from datastem.segments import RowSegment, SegmentIndex, extended, from_id

# A column whose values never fall as row ids rise; NULL counts as before all time.
SystemColumn = Literal["_stamp", "_before", "_position", "_row_id"]


class NotInMemory(Exception):
    """Rows that a view needs are not in memory, and it must not read files."""


class SegmentReader(Protocol):
    def __call__(
        self, segments: Sequence[RowSegment], lo: int, hi: int, names: Sequence[str] | None = None
    ) -> pa.RecordBatch:
        """Return the rows of the segments with ids in `[lo, hi)`, ascending; with `names`, only
        those columns."""


class RowPicker(Protocol):
    def __call__(
        self, segments: Sequence[RowSegment], ids: Int64s, names: Sequence[str]
    ) -> pa.RecordBatch:
        """Return the rows of segments of files with these ascending ids, ascending, with these
        columns and `_row_id`; ids without a row are left out."""


class DataStem:
    """The rows of one stream, in blocks.

    `read` and `pick` may raise; the error reaches the caller that probes, and the stem is
    unchanged. Without `pick`, whole blocks are read for a few rows. A `stored` stem takes no
    inserts: all its rows come with `cover`.
    """

    def __init__(
        self,
        memory: Memory,
        read: SegmentReader,
        pick: RowPicker | None = None,
        stored: bool = False,
    ) -> None:
        self._memory = memory
        self._read = read
        self._pick = pick
        self._stored = stored
        self._lock = threading.Lock()
        # Blocks in memory by number. Each has all rows from its floor on.
        self._blocks: dict[int, Block] = {}
        # The rows that files have, and per block the rows after them with the inserts they came
        # with.
        self._index = SegmentIndex.of((), 0)
        self._tail: dict[int, RowSegment] = {}
        # True once an insert had a place: no block needs a pin then.
        self._placed = False
        # Only the full blocks of the tail: the bounds of the last one still change.
        self._tail_times = BlockTimes.nothing()
        # Exact bounds of ts of full blocks that were read once. They outlive the blocks in memory,
        # and are narrower than the bounds of files, which may span many blocks.
        self._bounds: dict[int, tuple[int, int]] = {}
        self._high = 0
        self._forgotten = False
        # The columns since they were altered; None before.
        self._columns: tuple[Sequence[str], Mapping[str, Column]] | None = None

    @property
    def high(self) -> int:
        """The next row id."""
        return self._high

    def insert(self, rows: SplitRows, first: int, high: int, place: int | None = None) -> None:
        """Add the rows with ids in `[first, high)`; an id that `rows` lacks has no row.

        `place` is where the reader finds these rows again. Without it they stay in memory until a
        file has them; either all inserts of a stem have a place, or none has.

        A batch that did not decode is an insert without rows. Raise ValueError if `first` is not
        `self.high`: a block claims all ids up to its last, so a gap would hide the files' rows.
        """
        with self._lock:
            if not first == self._high <= high:
                raise ValueError(f"rows [{first}, {high}) do not follow those below {self._high}")
            for number, narrow in rows.parts.items():
                part = self._widened(narrow)
                # A block that is not in memory begins with this insert. Its earlier rows are read
                # again if they are needed.
                floor = max(self._high, number << BLOCK_BITS)
                if place is not None:
                    self._placed = True
                    self._tail[number] = extended(self._tail.get(number), part, place)
                self._keep(number, self._blocks.get(number, Block(floor)).append(part))
            # The blocks that this insert completes. Their bounds are final, so they can be searched
            # by time.
            full = range(self._high >> BLOCK_BITS, high >> BLOCK_BITS)
            self._high = high
            if full:
                self._tail_times = self._tail_times.changed(self._tail_bounds(full))
        # Without the lock: the memory calls `evict`, which takes it.
        self._memory.shrink()

    def alter(self, names: Sequence[str], optional: Mapping[str, Column]) -> None:
        """Give all rows these columns; optional ones that they lack have their default.

        Views keep the columns that they have.
        """
        with self._lock:
            self._columns = names, optional
            for number, block in self._blocks.items():
                self._blocks[number] = block.widened(names, optional)

    def _widened(self, part: Part) -> Part:
        """Return a part with all columns: it may have been read before they were altered."""
        if self._columns is None or part.rows.num_columns == len(self._columns[0]):
            return part
        return part.widened(*self._columns)

    def _tail_bounds(self, numbers: Iterable[int]) -> dict[int, tuple[int, int] | None]:
        """Return the least and the greatest ts of those blocks that are in the tail."""
        blocks = ((number, self._tail[number]) for number in numbers if number in self._tail)
        return {number: (segment.ts_lo, segment.ts_hi) for number, segment in blocks}

    def indexed(self, high: int, segments: Iterable[RowSegment]) -> SegmentIndex:
        """Return the index to `cover` the stem with, of the segments that have all rows with ids
        below `high`. It changes nothing, and may be called from any thread."""
        index = SegmentIndex.of(segments, high, self._index)
        index.times.follow()
        return index

    def cover(self, index: SegmentIndex) -> None:
        """Accept that the rows with ids below the index's high are in its segments, and may leave
                memory.

        A stored stem has no other rows: blocks whose rows differ now leave memory.
        """
        high = index.high
        with self._lock:
            if self._stored:
                self._drop_changed(index)
            self._index = index
            self._high = max(self._high, high)
            self._tail = {
                number: from_id(segment, high)
                for number, segment in self._tail.items()
                if segment.row_hi > high
            }
            full = range(high >> BLOCK_BITS, self._high >> BLOCK_BITS)
            self._tail_times = BlockTimes.nothing().changed(self._tail_bounds(full))
            for number in self._blocks:
                # Pinned rows can be read again only if the files have all of the block.
                if (number + 1) << BLOCK_BITS <= high:
                    self._memory.unpin((self, number))
        self._memory.shrink()

    def _drop_changed(self, index: SegmentIndex) -> None:
        """Drop the blocks that lost rows, and the last one, which may have new ones."""
        low = 0 if index.least == self._index.least else index.least
        for number in [*self._blocks]:
            if number << BLOCK_BITS < low or (number + 1) << BLOCK_BITS > self._high:
                self._memory.drop((self, number))
                del self._blocks[number]
        remaining = {number for number in self._bounds if number << BLOCK_BITS >= low}
        self._bounds = {number: self._bounds[number] for number in remaining}

    def view(self) -> StemView:
        """Return a view of all rows there are now."""
        with self._lock:
            # Copies of the dictionaries: later inserts must not show in the view.
            tail = dict(self._tail), self._tail_times
            return StemView(self, self._high, dict(self._blocks), self._index, *tail)

    def forget(self) -> None:
        """Release the memory. Views keep the blocks they have; blocks they read later are not
        cached."""
        with self._lock:
            self._forgotten = True
            for number in list(self._blocks):
                self._memory.drop((self, number))
            self._blocks.clear()

    def evict(self, number: int) -> None:
        """Drop a block; the memory calls this for one that was not pinned."""
        with self._lock:
            self._blocks.pop(number, None)

    def touch(self, number: int) -> None:
        self._memory.touch((self, number))

    def bounds_of(self, number: int) -> tuple[int, int] | None:
        """Return the least and greatest ts of a full block, once it has been read; None before."""
        return self._bounds.get(number)

    def holds(self, view: StemView, number: int) -> bool:
        """Return True if all rows of a block that the view has are in memory."""
        block = view.blocks.get(number)
        if block is None:
            with self._lock:
                block = self._blocks.get(number) if self._is_current(view) else None
        return block is not None and block.floor <= number << BLOCK_BITS

    def pick(self, segments: Sequence[RowSegment], ids: Int64s, names: Sequence[str]) -> Part:
        """Read some columns of the rows with these ascending ids from files, without caching."""
        assert self._pick is not None
        return Part(self._pick(segments, ids, names))

    @property
    def picks(self) -> bool:
        """Whether a few rows can be read without the rest of their blocks."""
        return self._pick is not None

    def load(self, view: StemView, number: int, floor: int) -> Sequence[Part]:
        """Return the rows of a block below `floor`.

        They come from memory if another reader loaded them after the view was made, otherwise from
        the view's files. They are cached if that makes the block in memory whole.
        """
        start, end = number << BLOCK_BITS, (number + 1) << BLOCK_BITS
        with self._lock:
            block = self._blocks.get(number) if self._is_current(view) else None
        if block is not None and block.floor <= start:
            self.touch(number)
            below = [part.below(min(floor, view.high)) for part in block.parts]
            return [part for part in below if part is not None]
        # Read without the lock, because it may take long and inserts must not wait for it.
        rows = self._read(view.segments(number, floor), start, floor)
        part = Part(rows) if rows.num_rows else None
        full = view.high >= end
        with self._lock:
            if self._forgotten or not self._is_current(view):
                return _present(part)
            block = self._blocks.get(number)
            part = None if part is None else self._widened(part)
            # A block claims all ids from its floor on. A new one is cached only if the view has
            # them all: the block is full, or nothing was inserted since the view was made.
            if block is None and floor == end and (full or self._high == view.high):
                block = Block(floor)
            # Another reader may have prepended these rows meanwhile.
            if block is not None and block.floor == floor:
                self._keep(number, block.prepend(part, start))
            if part is not None and full and floor == end:
                self._bounds[number] = part.bounds
        self._memory.shrink()
        return _present(part)

    def _is_current(self, view: StemView) -> bool:
        """Return True if blocks in memory have the rows that the view's files have. Rows of a
        stream never change; those of a stored stem may leave it."""
        return not self._stored or view.index is self._index

    def read(self, segments: Sequence[RowSegment], lo: int, hi: int, names: Sequence[str]) -> Part:
        """Read some columns from the files, `_row_id` among them, without caching."""
        return Part(self._read(segments, lo, hi, names))

    def _keep(self, number: int, block: Block) -> None:
        self._blocks[number] = block
        growing = (number + 1) << BLOCK_BITS > self._index.high and not self._stored
        # Rows that have a place, or are in files, can be read again.
        pinned = growing and not self._placed
        self._memory.hold((self, number), block.nbytes, pinned)


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
        # The rows of the last of these batches are `[low, high)`.
        low, _ = self.high_at("_position", position - 1)
        parts = self.probe(instant, FOR_EVER, high, low)
        return position, any((part.ts[part.ids >= low] >= instant).any() for part in parts)

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


def _present(part: Part | None) -> Sequence[Part]:
    return () if part is None else (part,)
