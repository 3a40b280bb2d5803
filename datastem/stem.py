"""The data SteM of a stream: `insert` rows as they come, `probe` them by time.

Blocks stay in memory as long as the budget allows. A probe reads missing ones again: from the
stem's files, or, if rows are in no file yet, from the inserts that brought them.

Thread safety: `insert`, `alter`, `cover` and `view` may be called from one thread while views are
probed from others.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from datastem.block_times import BlockTimes
from datastem.blocks import BLOCK_BITS, Block, Part, SplitRows
from datastem.memory import Memory
from datastem.schema import Column
from datastem.segments import RowSegment, SegmentIndex, extended, from_id
from datastem.stem_view import StemView

NO_IDS: Int64s = np.empty(0, np.int64)


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
    inserts: all its rows come with `cover`. Rows with one of the `erased` ids, which ascend, are
    left out, wherever they are read from.
    """

    def __init__(
        self,
        memory: Memory,
        read: SegmentReader,
        pick: RowPicker | None = None,
        stored: bool = False,
        erased: Int64s = NO_IDS,
    ) -> None:
        self.erased = erased
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

    def without(self, erased: Int64s) -> DataStem:
        """Return the stem without the rows of these ascending ids, which contain those of
        `self.erased`; this one is forgotten. Blocks that have none of the ids stay in memory."""
        stem = DataStem(self._memory, self._read, self._pick, self._stored, erased)
        touched = set(np.unique(erased >> BLOCK_BITS).tolist())
        with self._lock:
            stem._index, stem._high, stem._columns = self._index, self._high, self._columns
            stem._tail, stem._tail_times = dict(self._tail), self._tail_times
            stem._placed = self._placed
            stem._bounds = {n: ends for n, ends in self._bounds.items() if n not in touched}
            blocks = {n: block for n, block in self._blocks.items() if n not in touched}
        self.forget()
        with stem._lock:
            for number, block in blocks.items():
                stem._keep(number, block)
        self._memory.shrink()
        return stem

    def _unerased(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that are not erased, of some with ascending ids."""
        if not len(self.erased) or not rows.num_rows:
            return rows
        ids = rows.column("_row_id").to_numpy()
        low, high = np.searchsorted(self.erased, [ids[0], ids[-1] + 1])
        if low == high:
            return rows
        return rows.filter(pa.array(~np.isin(ids, self.erased[low:high])))

    def _widened(self, part: Part) -> Part:
        """Return a part with all columns: it may have been read before they were altered."""
        if self._columns is None or part.rows.schema.names == self._columns[0]:
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

    def empty(self) -> None:
        """Drop all blocks; those that are needed are read again from the files of the present
        index."""
        with self._lock:
            for number in list(self._blocks):
                self._memory.drop((self, number))
            self._blocks.clear()
            self._bounds.clear()

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
        return Part(self._unerased(self._pick(segments, ids, names)))

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
        rows = self._unerased(self._read(view.segments(number, floor), start, floor))
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
        return Part(self._unerased(self._read(segments, lo, hi, names)))

    def _keep(self, number: int, block: Block) -> None:
        self._blocks[number] = block
        growing = (number + 1) << BLOCK_BITS > self._index.high and not self._stored
        # Rows that have a place, or are in files, can be read again.
        pinned = growing and not self._placed
        self._memory.hold((self, number), block.nbytes, pinned)


def _present(part: Part | None) -> Sequence[Part]:
    return () if part is None else (part,)
