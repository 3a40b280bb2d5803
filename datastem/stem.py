"""The data SteM of a stream: `insert` rows as they come, `probe` them by time.

Blocks are kept as long as the memory's budget allows, and read again when they are asked for: from
the stem's files, or for rows that those don't have yet from wherever they came (datastem.tail).

Thread safety: `insert`, `cover` and `view` may be called from one thread while views are probed
from others.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa

from datastem.arrays import Array, Int64s
from datastem.blocks import BLOCK_BITS, Block, Part, split
from datastem.memory import Memory
from datastem.tail import Inserts


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of rows that can be read: ids in `[row_lo, row_hi)`, ts in `[ts_lo, ts_hi]`.

    `source` is the reader's, of a file; or Inserts, of rows that are in none.
    """

    row_lo: int
    row_hi: int
    ts_lo: int
    ts_hi: int
    source: Any

    @property
    def blocks(self) -> range:
        return range(self.row_lo >> BLOCK_BITS, ((self.row_hi - 1) >> BLOCK_BITS) + 1)


@dataclass(frozen=True, slots=True)
class SegmentIndex:
    """Which segments hold a block, and which blocks a stretch of time; rows below `high`."""

    high: int
    segments: Mapping[int, Sequence[Segment]]
    _numbers: Array
    _low: Array
    _high: Array
    _in_order: bool

    @classmethod
    def of(cls, segments: Iterable[Segment], high: int) -> SegmentIndex:
        held: dict[int, list[Segment]] = {}
        for segment in segments:
            for number in segment.blocks:
                held.setdefault(number, []).append(segment)
        numbers = sorted(held)
        low = np.array([min(s.ts_lo for s in held[number]) for number in numbers], np.int64)
        top = np.array([max(s.ts_hi for s in held[number]) for number in numbers], np.int64)
        rising = bool((low[1:] >= low[:-1]).all() and (top[1:] >= top[:-1]).all())
        return cls(high, held, np.array(numbers, np.int64), low, top, rising)

    def overlapping(self, begin: int | None, end: int) -> list[int]:
        """Ascending."""
        if self._in_order:
            first = 0 if begin is None else int(self._high.searchsorted(begin))
            found: list[int] = self._numbers[first : self._low.searchsorted(end)].tolist()
            return found
        chosen = self._low < end
        if begin is not None:
            chosen &= self._high >= begin
        numbers: list[int] = self._numbers[chosen].tolist()
        return numbers


_FOREVER = 1 << 62

# What never falls as row ids rise; NULL comes before all time.
Mark = Literal["_stamp", "_before", "_position"]


class Reader(Protocol):
    def __call__(
        self, segments: Sequence[Segment], lo: int, hi: int, names: Sequence[str] | None = None
    ) -> pa.RecordBatch:
        """The rows of the segments with ids in `[lo, hi)`, ascending; only the named columns."""


class DataStem:
    """`read` may raise; the error reaches whoever probes, and nothing here has changed."""

    def __init__(self, memory: Memory, read: Reader) -> None:
        self._memory = memory
        self._read = read
        self._lock = threading.Lock()
        self._blocks: dict[int, Block] = {}
        self._index = SegmentIndex.of((), 0)
        self._tail: dict[int, Segment] = {}
        self._bounds: dict[int, tuple[int, int]] = {}
        self._high = 0
        self._forgotten = False

    @property
    def high(self) -> int:
        """The next row id."""
        return self._high

    def insert(self, rows: pa.RecordBatch, first: int, high: int, place: int | None = None) -> None:
        """Takes the rows with ids in `[first, high)`; those that `rows` lacks are not there.

        `place` is where the reader finds them again. Without it they stay in memory until a file
        has them; all inserts of a stem have one, or none has.

        A batch that did not decode is an insert without rows. Raises ValueError where `first` is
        not `self.high`: a block claims all ids up to its last, so a gap would hide the files' rows.
        """
        with self._lock:
            if not first == self._high <= high:
                raise ValueError(f"rows [{first}, {high}) do not follow those below {self._high}")
            parts = split(rows)
            for number, part in parts.items():
                floor = max(self._high, number << BLOCK_BITS)
                # A slice would keep the whole batch in memory for as long as it is there itself.
                own = part.copied() if len(parts) > 1 else part
                if place is not None:
                    self._tail[number] = _extended(self._tail.get(number), own, place)
                self._keep(number, self._blocks.get(number, Block(floor)).append(own))
            self._high = high
        self._memory.shrink()

    def cover(self, high: int, segments: Iterable[Segment]) -> None:
        """From now on the rows below `high` are in these segments, and may leave memory."""
        index = SegmentIndex.of(segments, high)
        with self._lock:
            self._index = index
            self._high = max(self._high, high)
            self._tail = {
                number: _from_id(segment, high)
                for number, segment in self._tail.items()
                if segment.row_hi > high
            }
            for number in self._blocks:
                if (number + 1) << BLOCK_BITS <= high:
                    self._memory.unpin((self, number))
        self._memory.shrink()

    def view(self) -> StemView:
        """All rows there are now."""
        with self._lock:
            return StemView(self, self._high, dict(self._blocks), self._index, dict(self._tail))

    def forget(self) -> None:
        """Gives back the memory. Views go on with what they have; what they read is not kept."""
        with self._lock:
            self._forgotten = True
            for number in list(self._blocks):
                self._memory.drop((self, number))
            self._blocks.clear()

    def evict(self, number: int) -> None:
        """The memory's word that a block which was not pinned has left its budget."""
        with self._lock:
            self._blocks.pop(number, None)

    def touch(self, number: int) -> None:
        self._memory.touch((self, number))

    def bounds_of(self, number: int) -> tuple[int, int] | None:
        """The ts of a full block's rows, once they have been read."""
        return self._bounds.get(number)

    def load(self, view: StemView, number: int, floor: int) -> Part | None:
        """Reads the rows of a block below `floor` from the view's files, and keeps them if that
        makes the block in memory whole."""
        start, end = number << BLOCK_BITS, (number + 1) << BLOCK_BITS
        rows = self._read(view.segments(number, floor), start, floor)
        part = Part(rows) if rows.num_rows else None
        full = view.high >= end
        with self._lock:
            if self._forgotten:
                return part
            block = self._blocks.get(number)
            if block is None and floor == end and (full or self._high == view.high):
                block = Block(floor)
            if block is not None and block.floor == floor:
                self._keep(number, block.prepend(part, start))
            if part is not None and full and floor == end:
                self._bounds[number] = part.bounds
        self._memory.shrink()
        return part

    def read(self, segments: Sequence[Segment], lo: int, hi: int, names: Sequence[str]) -> Part:
        """Some columns from the files, `_row_id` among them. Nothing is kept."""
        return Part(self._read(segments, lo, hi, names))

    def _keep(self, number: int, block: Block) -> None:
        self._blocks[number] = block
        pinned = (number + 1) << BLOCK_BITS > self._index.high and number not in self._tail
        self._memory.hold((self, number), block.nbytes, pinned)


@dataclass(frozen=True, slots=True)
class StemView:
    """The rows of a stem at one moment, with ids below `high`."""

    stem: DataStem
    high: int
    blocks: Mapping[int, Block]
    index: SegmentIndex
    tail: Mapping[int, Segment]

    def probe(
        self, begin: int | None, end: int, high: int | None = None, low: int = 0
    ) -> Iterator[Part]:
        """The parts that may hold rows with ts in `[begin, end)` and ids in `[low, high)`.

        By ascending row id. Reads files where the rows are not in memory.
        """
        limit = self.high if high is None else min(high, self.high)
        for number in self.numbers(begin, end, limit):
            if (number + 1) << BLOCK_BITS > low:
                for part in self._chosen(number, begin, end, limit):
                    if part.stop > low:
                        yield part

    def held(self, begin: int | None, end: int, high: int, most: int) -> list[Part] | None:
        """What `probe` gives, where that is in memory and of at most `most` blocks; else None."""
        limit = min(high, self.high)
        numbers = self.numbers(begin, end, limit)
        if len(numbers) > most or any(self._lacks(number) for number in numbers):
            return None
        return [part for number in numbers for part in self._chosen(number, begin, end, limit)]

    def high_at(self, mark: Mark, most: int) -> tuple[int, int | None]:
        """The rows whose mark is at most `most`: the next row id after them, the last's position.

        The position is None where there are none. Looks at the newest blocks first, then at ever
        older ones in ever larger steps.
        """
        numbers = self.numbers(None, _FOREVER, self.high)
        top, step = len(numbers), 1
        low = max(0, top - step)
        while low and self._first(mark, numbers[low]) > most:
            top, step = low, 2 * step
            low = max(0, top - step)
        top = bisect_right(numbers, most, low, top, key=lambda number: self._first(mark, number))
        for number in reversed(numbers[:top]):
            for part in reversed(list(self._parts(number, None, _FOREVER))):
                count = int(np.searchsorted(_marks(part, mark), most, "right"))
                if count:
                    position = part.rows.column("_position")[count - 1].as_py()
                    return int(part.ids[count - 1]) + 1, position
        return 0, None

    def first_from(self, high: int, mark: Mark) -> int | None:
        """The mark of the first row with an id of at least `high`; None without such a row.

        A mark that is NULL is given as one before all time.
        """
        for number in self.numbers(None, _FOREVER, self.high):
            if (number + 1) << BLOCK_BITS > high:
                for part in self._parts(number, None, _FOREVER):
                    place = int(np.searchsorted(part.ids, high))
                    if place < len(part.ids):
                        return int(_marks(part, mark)[place])
        return None

    def parts(self, number: int, high: int) -> list[Part]:
        """All rows of a block with ids below `high`. Reads files where they are not in memory."""
        found = (part.below(high) for part in self._parts(number, None, _FOREVER))
        return [part for part in found if part is not None]

    def columns(self, names: Sequence[str], lo: int) -> Iterator[pa.RecordBatch]:
        """These columns, `_row_id` among them, of the rows with ids from `lo` on, ascending.

        What is not in memory is read from the files, those columns alone, and not kept.
        """
        for number in range(lo >> BLOCK_BITS, ((self.high - 1) >> BLOCK_BITS) + 1):
            stop = (number + 1) << BLOCK_BITS
            block = self.blocks.get(number)
            floor = stop if block is None else block.floor
            parts = () if block is None else block.parts
            if lo < floor and (segments := self.segments(number, floor)):
                parts = (self.stem.read(segments, number << BLOCK_BITS, floor, names), *parts)
            for part in parts:
                first = int(np.searchsorted(part.ids, lo))
                yield part.rows.select(list(names)).slice(first)

    def latest(self, number: int) -> int:
        """No row of the block has a greater ts. Reads nothing."""
        block = self.blocks.get(number)
        tops = [part.bounds[1] for part in block.parts] if block else []
        if block is None or block.floor > number << BLOCK_BITS:
            exact = self.stem.bounds_of(number) if block is None else None
            segments = self.segments(number, (number + 1) << BLOCK_BITS)
            tops += [exact[1]] if exact else [segment.ts_hi for segment in segments]
        return max(tops, default=-_FOREVER)

    def _first(self, mark: Mark, number: int) -> int:
        """Of the block's first row; before all time where the block is empty."""
        for part in self._parts(number, None, _FOREVER):
            first = part.rows.column(mark).slice(0, 1).view(pa.int64())[0].as_py()
            return -_FOREVER if first is None else int(first)
        return -_FOREVER

    def numbers(self, begin: int | None, end: int, high: int) -> list[int]:
        """The blocks that may hold rows with ts in `[begin, end)` and ids below `high`, ascending.

        Those after the index's may hold any ts.
        """
        last = (high - 1) >> BLOCK_BITS
        found = [number for number in self.index.overlapping(begin, end) if number <= last]
        for number in range(self.index.high >> BLOCK_BITS, last + 1):
            there = number in self.blocks or number in self.tail
            if there and number not in found[-1:]:
                found.append(number)
        return found

    def segments(self, number: int, floor: int) -> list[Segment]:
        """Where the rows of a block below an id can be read, ascending but for those of files."""
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
        if floor > start and self._may_overlap(number, floor, begin, end):
            part = self.stem.load(self, number, floor)
            if part is not None:
                yield part
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


def _extended(segment: Segment | None, part: Part, place: int) -> Segment:
    """What is known of the tail of a block, with the rows of one more insert."""
    low, high = part.bounds
    if segment is None:
        return Segment(part.first, part.stop, low, high, Inserts().extended(place, part.stop))
    source = segment.source.extended(place, part.stop)
    bounds = min(segment.ts_lo, low), max(segment.ts_hi, high)
    return Segment(segment.row_lo, part.stop, *bounds, source)


def _from_id(segment: Segment, low: int) -> Segment:
    if segment.row_lo >= low:
        return segment
    return replace(segment, row_lo=low, source=segment.source.from_id(low))


def _marks(part: Part, mark: Mark) -> Int64s:
    found: Int64s = part.rows.column(mark).view(pa.int64()).fill_null(-_FOREVER).to_numpy()
    return found
