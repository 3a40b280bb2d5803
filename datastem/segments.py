"""Runs of a stem's rows that can be read again: from a file, or from the inserts they came with."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from datastem.arrays import Int64s
from datastem.blocks import BLOCK_BITS, Part


@dataclass(frozen=True, slots=True)
class RowSegment:
    """Rows with ids in `[row_lo, row_hi)` and ts in `[ts_lo, ts_hi]`.

    `source` is what the stem's reader finds a file by, or the Inserts of rows that no file has yet.
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
class Inserts:
    """The inserts some rows of one block came with: the place of each, and the id its rows end at.

    A place is a number that means something to the stem's reader: 16 bytes an insert, however many
    rows it has. The arrays are shared with later versions of the same block and only ever grow; a
    version consists of the inserts from `first` up to `count`.
    """

    first: int = 0
    count: int = 0
    _places: array[int] = field(default_factory=lambda: array("q"))
    _ends: array[int] = field(default_factory=lambda: array("q"))

    def places(self, lo: int, hi: int) -> list[int]:
        """The places of rows with ids in `[lo, hi)`, each once, in the order of the inserts."""
        first = bisect_right(self._ends, lo, self.first, self.count)
        last = min(bisect_left(self._ends, hi, first, self.count) + 1, self.count)
        return list(dict.fromkeys(self._places[first:last]))

    def extended(self, place: int, end: int) -> Inserts:
        """A version with one more insert; call it on the newest one, in one thread at a time."""
        self._places.append(place)
        self._ends.append(end)
        return replace(self, count=self.count + 1)

    def from_id(self, low: int) -> Inserts:
        """A version without the inserts that end at `low` or below."""
        return replace(self, first=bisect_right(self._ends, low, self.first, self.count))


def extended(segment: RowSegment | None, part: Part, place: int) -> RowSegment:
    """The tail of a block with the rows of one more insert; without a segment, the first."""
    low, high = part.bounds
    if segment is None:
        return RowSegment(part.first, part.stop, low, high, Inserts().extended(place, part.stop))
    source = segment.source.extended(place, part.stop)
    bounds = min(segment.ts_lo, low), max(segment.ts_hi, high)
    return RowSegment(segment.row_lo, part.stop, *bounds, source)


def from_id(segment: RowSegment, low: int) -> RowSegment:
    """The tail of a block without the rows with ids below `low`."""
    if segment.row_lo >= low:
        return segment
    return replace(segment, row_lo=low, source=segment.source.from_id(low))


@dataclass(frozen=True, slots=True)
class SegmentIndex:
    """The segments of rows with ids below `high`: by block, and the blocks by time."""

    high: int
    segments: Mapping[int, Sequence[RowSegment]]
    _numbers: Int64s
    _low: Int64s
    _high: Int64s
    _in_order: bool

    @classmethod
    def of(cls, segments: Iterable[RowSegment], high: int) -> SegmentIndex:
        held: dict[int, list[RowSegment]] = {}
        for segment in segments:
            for number in segment.blocks:
                held.setdefault(number, []).append(segment)
        numbers = sorted(held)
        low = np.array([min(s.ts_lo for s in held[number]) for number in numbers], np.int64)
        top = np.array([max(s.ts_hi for s in held[number]) for number in numbers], np.int64)
        rising = bool((low[1:] >= low[:-1]).all() and (top[1:] >= top[:-1]).all())
        return cls(high, held, np.array(numbers, np.int64), low, top, rising)

    @property
    def least(self) -> int:
        """The least row id; `high` where there are no rows."""
        first = self.segments[int(self._numbers[0])] if len(self._numbers) else ()
        return min((segment.row_lo for segment in first), default=self.high)

    def overlapping(self, begin: int | None, end: int) -> list[int]:
        """The numbers of the blocks that may hold rows with ts in `[begin, end)`, ascending."""
        if self._in_order:
            first = 0 if begin is None else int(self._high.searchsorted(begin))
            found: list[int] = self._numbers[first : self._low.searchsorted(end)].tolist()
            return found
        chosen = self._low < end
        if begin is not None:
            chosen &= self._high >= begin
        numbers: list[int] = self._numbers[chosen].tolist()
        return numbers
