"""Folds: a summary of all rows of a region, put together from summaries of runs of them.

A run is a chunk, up to 4,096 rows of a part that are next to each other in time (or by id, if the
region cuts by id); or a part; or a block; or 16 blocks, 256, and so on. Summaries of runs that lie
wholly in the region are cached. So an answer computes the chunks at the edges of its window and
merges at most 30 runs a level, however long the window.

Rows never change, so the summary of a run stays true until rows pass their retention. Therefore a
cached summary has the bounds of its rows' ts, and is used only in a region that holds all of them,
where none can be missing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Generic, Protocol, TypeVar

import numpy as np

from datastem.arrays import Int64s
from datastem.blocks import BLOCK_BITS, BLOCK_ROWS, Part
from datastem.stem_view import StemView
from psoup.answers.caches import Memo
from querystem.pace import spending
from results.region import Region

CHUNK_ROWS = 1 << 12
_LEVEL_BITS = 4
# Units (`querystem.pace`) of a row that is summarised.
_ROW_UNITS = 40
# A summary that takes more than this part of the cache is not cached.
_LARGEST_SHARE = 8
_FANOUT = 1 << _LEVEL_BITS


class Sized(Protocol):
    @property
    def nbytes(self) -> int: ...


T = TypeVar("T", bound=Sized)


@dataclass(frozen=True, slots=True)
class FoldedRun(Generic[T]):
    """The summary of all rows with ids in `[first, stop)`; their ts are in `[low, high]`."""

    first: int
    stop: int
    low: int
    high: int
    value: T


@dataclass(frozen=True)
class Fold(Generic[T]):
    """How the rows of a region are summarised.

    `of` summarises the rows at some ascending places of a part, as far as they are in the region;
    `merge` makes one summary of several. `subject` names the two: under one subject, equal rows
    have equal summaries. Summaries of runs are cached in `memo`. `last` is the column with the
    latest instant of a row, which differs from its ts if the row is a combination of others.
    """

    memo: Memo
    subject: Hashable
    stem: StemView
    region: Region
    of: Callable[[Part, Int64s], T]
    merge: Callable[[Sequence[T]], T]
    last: str = "_ts"

    def values(self) -> list[T]:
        """Return summaries of disjoint runs that together are the region's rows."""
        region = self.region
        if region.empty:
            return []
        # The blocks, ascending, that may have rows in the region, by time and by id.
        numbers = [
            number
            for number in self.stem.numbers(region.begin, region.end, region.hi)
            if (number + 1) << BLOCK_BITS > region.lo
        ]
        # The lowest level at which the run with index 0 holds all these blocks.
        level = 1
        while numbers and numbers[-1] >> _LEVEL_BITS * (level - 1):
            level += 1
        return self._node(level, 0, numbers)[0] if numbers else []

    def _node(
        self, level: int, index: int, numbers: Sequence[int]
    ) -> tuple[list[T], FoldedRun[T] | None]:
        """Return the summaries of a run, and its entry if all of it is in the region.

        `numbers` are the blocks of it that may have rows in the region, ascending.
        """
        if cached := self._cached((level, index)):
            return [cached.value], cached
        if level == 1:
            return self._block(index)
        values: list[T] = []
        entries: list[FoldedRun[T] | None] = []
        # A child is a run of the level below; the shift turns a block's number into its index.
        shift = _LEVEL_BITS * (level - 2)
        for child, below in groupby(numbers, key=lambda number: number >> shift):
            summaries, entry = self._node(level - 1, child, list(below))
            values += summaries
            entries.append(entry)
        whole = [entry for entry in entries if entry is not None]
        # A child that the region cuts, or that has no rows, has no entry: the run is not whole.
        if len(whole) < _FANOUT:
            return values, None
        low, high = min(entry.low for entry in whole), max(entry.high for entry in whole)
        ids = _stop(level, index - 1), _stop(level, index)
        entry = self._store((level, index), ids, values, low, high)
        return [entry.value], entry

    def _block(self, number: int) -> tuple[list[T], FoldedRun[T] | None]:
        parts = self.stem.parts(number, self.region.hi)
        stop = _stop(1, number)
        # The last block of a stream may get more rows, so it is never cached as a whole.
        if parts and stop <= self.region.hi and all(self._contains(part) for part in parts):
            bounds = [self._bounds(part) for part in parts]
            low, high = min(low for low, _ in bounds), max(high for _, high in bounds)
            values = [self._of(part, _all(part)) for part in parts]
            entry = self._store((1, number), (stop - BLOCK_ROWS, stop), values, low, high)
            return [entry.value], entry
        return [value for part in parts for value in self._part(part)], None

    def _contains(self, part: Part) -> bool:
        return self.region.contains(*self._bounds(part), part.first, part.stop)

    def _bounds(self, part: Part) -> tuple[int, int]:
        """Return the least and the greatest instant of a part's rows."""
        if self.last == "_ts":
            return part.bounds
        return part.bounds[0], int(part.numbers(self.last).max())

    def _part(self, part: Part) -> Iterator[T]:
        if part.stop <= self.region.lo or not part.overlaps(self.region.begin, self.region.end):
            return
        # The same ends and the same count mean the same rows: they can only have become fewer.
        name = (part.first, part.stop, len(part.ids))
        if self._contains(part):
            yield self._run((name, "all"), part, lambda: _all(part))
            return
        # Chunks follow what the region cuts by, time or id, so that it cuts few of them.
        cuts_ids = part.first < self.region.lo
        for number, chunk in _chunks(part, self.region, cuts_ids):
            yield self._run((name, cuts_ids, number), part, chunk)

    def _run(self, place: Hashable, part: Part, chunk: Callable[[], Int64s]) -> T:
        entry = self._cached(place)
        if entry is None:
            places = chunk()
            value = self._of(part, places)
            last = part.ts if self.last == "_ts" else part.numbers(self.last)
            bounds = int(part.ts[places].min()), int(last[places].max())
            ids = _ends(part.ids[places])
            # If the region cuts this chunk, the summary lacks rows that another region may have.
            if not self.region.contains(*bounds, *ids):
                return value
            entry = self._store(place, ids, [value], *bounds)
        return entry.value

    def _of(self, part: Part, places: Int64s) -> T:
        spending()(len(places) * _ROW_UNITS)
        return self.of(part, places)

    def _store(
        self, place: Hashable, ids: tuple[int, int], values: Sequence[T], low: int, high: int
    ) -> FoldedRun[T]:
        value = self.merge(values)
        entry = FoldedRun(*ids, low, high, value)
        # A summary that holds values grows with its rows. A large one would evict many others.
        if value.nbytes <= self.memo.limit // _LARGEST_SHARE:
            self.memo.put((self.subject, place), entry, value.nbytes)
        return entry

    def _cached(self, place: Hashable) -> FoldedRun[T] | None:
        """Return the cached entry of a run; None if the region does not hold all of it."""
        entry = self.memo.get((self.subject, place))
        if not isinstance(entry, FoldedRun):
            return None
        inside = self.region.contains(entry.low, entry.high, entry.first, entry.stop)
        return entry if inside else None


def _stop(level: int, index: int) -> int:
    """Return one past the last row id of a run of 16^(level - 1) blocks."""
    return (index + 1) << (BLOCK_BITS + _LEVEL_BITS * (level - 1))


def _ends(ids: Int64s) -> tuple[int, int]:
    return int(ids[0]), int(ids[-1]) + 1


def _all(part: Part) -> Int64s:
    return np.arange(len(part.ids))


def _chunks(
    part: Part, region: Region, cuts_ids: bool
) -> Iterator[tuple[int, Callable[[], Int64s]]]:
    """Yield the numbered chunks of a part that have rows in the region, by time or by id."""
    # `order` has the places of all rows in the order of chunks; `[low, high)` of it are needed.
    if cuts_ids:
        order, (low, high) = _all(part), np.searchsorted(part.ids, [region.lo, region.hi])
    else:
        order = _all(part) if part.in_order else part.by_time
        ts = part.ts[order]
        begin = ts[0] if region.begin is None else region.begin
        low, high = np.searchsorted(ts, [begin, region.end])
    # Chunks are numbered from the start of the part, so that all regions have the same ones.
    for number in range(int(low) // CHUNK_ROWS, -(-int(high) // CHUNK_ROWS)):
        start = number * CHUNK_ROWS
        # The places are sorted only if the chunk is not cached. `of` takes ascending places.
        yield number, partial(np.sort, order[start : start + CHUNK_ROWS])
