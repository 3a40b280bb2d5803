"""The data SteM of a stream: `insert` rows as they come, `probe` them by time.

Rows not yet in files are pinned in memory. Blocks whose rows are all in files are kept as long as
the memory's budget allows, and read again when they are asked for.

Thread safety: `insert`, `cover` and `view` may be called from one thread while views are probed
from others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from datastem.blocks import BLOCK_BITS, Block, Part, split
from datastem.memory import Memory


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of rows in a file: ids in `[row_lo, row_hi)`, ts in `[ts_lo, ts_hi]`."""

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
    _numbers: np.ndarray[Any, Any]
    _low: np.ndarray[Any, Any]
    _high: np.ndarray[Any, Any]

    @classmethod
    def of(cls, segments: Iterable[Segment], high: int) -> SegmentIndex:
        held: dict[int, list[Segment]] = {}
        for segment in segments:
            for number in segment.blocks:
                held.setdefault(number, []).append(segment)
        low = np.array([min(s.ts_lo for s in group) for group in held.values()], np.int64)
        top = np.array([max(s.ts_hi for s in group) for group in held.values()], np.int64)
        return cls(high, held, np.array(list(held), np.int64), low, top)

    def overlapping(self, begin: int | None, end: int) -> set[int]:
        chosen = self._low < end
        if begin is not None:
            chosen &= self._high >= begin
        return set(self._numbers[chosen].tolist())


_FOREVER = 1 << 62

# The rows of the given segments with ids in [lo, hi), ascending.
Reader = Callable[[Sequence[Segment], int, int], pa.RecordBatch]


class DataStem:
    """`read` may raise; the error reaches whoever probes, and nothing here has changed."""

    def __init__(self, memory: Memory, read: Reader) -> None:
        self._memory = memory
        self._read = read
        self._lock = threading.Lock()
        self._blocks: dict[int, Block] = {}
        self._index = SegmentIndex.of((), 0)
        self._bounds: dict[int, tuple[int, int]] = {}
        self._high = 0

    @property
    def high(self) -> int:
        """The next row id."""
        return self._high

    def insert(self, rows: pa.RecordBatch, high: int) -> None:
        """Takes the rows with ids from `self.high` up to `high`; those it lacks are not there.

        A batch that did not decode is an insert without rows.
        """
        with self._lock:
            for number, part in split(rows).items():
                floor = max(self._high, number << BLOCK_BITS)
                block = self._blocks.get(number, Block(floor)).append(part)
                self._keep(number, block)
            self._high = high

    def cover(self, high: int, segments: Iterable[Segment]) -> None:
        """From now on the rows below `high` are in these segments, and may leave memory."""
        index = SegmentIndex.of(segments, high)
        with self._lock:
            self._index = index
            self._high = max(self._high, high)
            for number in self._blocks:
                if (number + 1) << BLOCK_BITS <= high:
                    self._memory.unpin((self, number))
        self._memory.shrink()

    def view(self) -> StemView:
        """All rows there are now."""
        with self._lock:
            return StemView(self, self._high, dict(self._blocks), self._index)

    def forget(self) -> None:
        """Gives back the memory of a dropped stream."""
        with self._lock:
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
        full = view.index.high >= end
        with self._lock:
            block = self._blocks.get(number)
            if block is None and floor == end and (full or self._high == view.high):
                block = Block(floor)
            if block is not None and block.floor == floor:
                self._keep(number, block.prepend(part, start))
            if part is not None and full and floor == end:
                self._bounds[number] = part.bounds
        self._memory.shrink()
        return part

    def _keep(self, number: int, block: Block) -> None:
        self._blocks[number] = block
        pinned = (number + 1) << BLOCK_BITS > self._index.high
        self._memory.hold((self, number), block.nbytes, pinned)


@dataclass(frozen=True, slots=True)
class StemView:
    """The rows of a stem at one moment, with ids below `high`."""

    stem: DataStem
    high: int
    blocks: Mapping[int, Block]
    index: SegmentIndex

    def probe(
        self, begin: int | None, end: int, high: int | None = None, low: int = 0
    ) -> Iterator[Part]:
        """The parts that may hold rows with ts in `[begin, end)` and ids in `[low, high)`.

        By ascending row id. Reads files where the rows are not in memory.
        """
        limit = self.high if high is None else min(high, self.high)
        for number in self.numbers(begin, end, limit):
            if (number + 1) << BLOCK_BITS <= low:
                continue
            for part in self._parts(number, begin, end):
                below = part.below(limit)
                if below is not None and below.stop > low and below.overlaps(begin, end):
                    yield below

    def high_at(self, stamp: int) -> tuple[int, int | None]:
        """How far the stream was at an instant: the next row id then, and the last position.

        The position is None where no row is as old. Stamps never fall as row ids rise.
        """
        numbers = self.numbers(None, _FOREVER, self.high)
        low, top = 0, len(numbers)
        while low < top:
            middle = (low + top) // 2
            if self._first_stamp(numbers[middle]) <= stamp:
                low = middle + 1
            else:
                top = middle
        for number in reversed(numbers[:low]):
            for part in reversed(list(self._parts(number, None, _FOREVER))):
                stamps = part.rows.column("_stamp").view(pa.int64()).to_numpy()
                count = int(np.searchsorted(stamps, stamp, "right"))
                if count:
                    position = part.rows.column("_position")[count - 1].as_py()
                    return int(part.ids[count - 1]) + 1, position
        return 0, None

    def parts(self, number: int, high: int) -> list[Part]:
        """All rows of a block with ids below `high`. Reads files where they are not in memory."""
        found = (part.below(high) for part in self._parts(number, None, _FOREVER))
        return [part for part in found if part is not None]

    def latest(self, number: int) -> int:
        """No row of the block has a greater ts. Reads nothing."""
        block = self.blocks.get(number)
        tops = [part.bounds[1] for part in block.parts] if block else []
        if block is None or block.floor > number << BLOCK_BITS:
            exact = self.stem.bounds_of(number) if block is None else None
            segments = self.index.segments.get(number, ())
            tops += [exact[1]] if exact else [segment.ts_hi for segment in segments]
        return max(tops, default=-_FOREVER)

    def _first_stamp(self, number: int) -> int:
        """Of the block's first row; before all time where the block is empty."""
        for part in self._parts(number, None, _FOREVER):
            return int(part.rows.column("_stamp").view(pa.int64())[0].as_py())
        return -_FOREVER

    def numbers(self, begin: int | None, end: int, high: int) -> list[int]:
        """The blocks that may hold rows with ts in `[begin, end)` and ids below `high`."""
        last = (high - 1) >> BLOCK_BITS
        tail = {n for n in self.blocks if (n + 1) << BLOCK_BITS > self.index.high}
        return sorted(n for n in tail | self.index.overlapping(begin, end) if n <= last)

    def segments(self, number: int, floor: int) -> list[Segment]:
        """What the files hold of a block below an id."""
        return [s for s in self.index.segments.get(number, ()) if s.row_lo < floor]

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

    def _may_overlap(self, number: int, floor: int, begin: int | None, end: int) -> bool:
        exact = None if number in self.blocks else self.stem.bounds_of(number)
        spans = [exact] if exact else [(s.ts_lo, s.ts_hi) for s in self.segments(number, floor)]
        return any(low < end and (begin is None or high >= begin) for low, high in spans)
