"""Runs of a stem's rows that can be read again: from a file, or from the inserts they came with."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from datastem.block_times import BlockTimes
from datastem.blocks import BLOCK_BITS, Part


@dataclass(frozen=True, slots=True)
class RowSegment:
    """Rows with ids in `[row_lo, row_hi)` and ts in `[ts_lo, ts_hi]`.

    `source` identifies the file for the stem's reader, or holds the Inserts of rows that no file
    has yet.
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
    """The inserts that brought the rows of one block: the place of each, and the id its rows end
    at.

    A place is a number from which the stem's reader finds the rows: 16 bytes an insert, however
    many rows it has. Later versions of the same block share the arrays, which only grow; a version
    consists of the inserts from `first` up to `count`.
    """

    first: int = 0
    count: int = 0
    _places: array[int] = field(default_factory=lambda: array("q"))
    _ends: array[int] = field(default_factory=lambda: array("q"))

    def places(self, lo: int, hi: int) -> list[int]:
        """Return the places of rows with ids in `[lo, hi)`, each once, in the order of the
        inserts."""
        # Insert n brought the rows from the end of the one before it up to `_ends[n]`, which
        # ascend. The first insert that ends at `hi` or later still has rows below `hi`.
        first = bisect_right(self._ends, lo, self.first, self.count)
        last = min(bisect_left(self._ends, hi, first, self.count) + 1, self.count)
        return list(dict.fromkeys(self._places[first:last]))

    def extended(self, place: int, end: int) -> Inserts:
        """Return a version with one more insert; call it on the newest one, in one thread at a
        time."""
        self._places.append(place)
        self._ends.append(end)
        return replace(self, count=self.count + 1)

    def from_id(self, low: int) -> Inserts:
        """Return a version without the inserts that end at `low` or below."""
        return replace(self, first=bisect_right(self._ends, low, self.first, self.count))


def extended(segment: RowSegment | None, part: Part, place: int) -> RowSegment:
    """Return the tail of a block with the rows of one more insert; without a segment, the first."""
    low, high = part.bounds
    if segment is None:
        return RowSegment(part.first, part.stop, low, high, Inserts().extended(place, part.stop))
    source = segment.source.extended(place, part.stop)
    bounds = min(segment.ts_lo, low), max(segment.ts_hi, high)
    return RowSegment(segment.row_lo, part.stop, *bounds, source)


def from_id(segment: RowSegment, low: int) -> RowSegment:
    """Return the tail of a block without the rows with ids below `low`."""
    if segment.row_lo >= low:
        return segment
    return replace(segment, row_lo=low, source=segment.source.from_id(low))


@dataclass(frozen=True, slots=True)
class SegmentIndex:
    """The segments of rows with ids below `high`: by block, in their order there, and the blocks by
    time."""

    high: int
    segments: Mapping[int, Sequence[RowSegment]]
    times: BlockTimes
    # All segments, by `id()`: an index made from an earlier one compares these.
    _by_identity: Mapping[int, RowSegment]

    @classmethod
    def of(
        cls, segments: Iterable[RowSegment], high: int, before: SegmentIndex | None = None
    ) -> SegmentIndex:
        """Return the index of all these segments. Blocks that are unchanged since `before` cost
        nothing."""
        if before is None:
            before = cls(0, {}, BlockTimes.nothing(), {})
        # Both indexes keep their segments alive, so that no `id()` is used twice.
        by_identity = {id(segment): segment for segment in segments}
        added = by_identity.keys() - before._by_identity.keys()
        removed = before._by_identity.keys() - by_identity.keys()
        # Lists are copied before their first change: views go on reading those of the earlier
        # index.
        changed: dict[int, list[RowSegment]] = {}
        for segment in (before._by_identity[identity] for identity in removed):
            for number in segment.blocks:
                changed.setdefault(number, [*before.segments[number]]).remove(segment)
        for segment in (by_identity[identity] for identity in added):
            for number in segment.blocks:
                changed.setdefault(number, [*before.segments.get(number, ())]).append(segment)
        for block_segments in changed.values():
            block_segments.sort(key=lambda segment: segment.row_lo)
        by_block = {**before.segments, **changed}
        for number in [number for number, block_segments in changed.items() if not block_segments]:
            del by_block[number]
        return cls(high, by_block, before.times.changed(_bounds(changed)), by_identity)

    @property
    def least(self) -> int:
        """The least row id; `high` if there are no rows."""
        numbers = self.times.numbers
        first = self.segments[int(numbers[0])] if len(numbers) else ()
        return min((segment.row_lo for segment in first), default=self.high)

    def _check(self) -> None:
        """Assert every invariant."""
        assert sorted(self.segments) == self.times.numbers.tolist()
        assert all(
            n in segment.blocks
            for n, block_segments in self.segments.items()
            for segment in block_segments
        )
        identities = {
            id(segment) for block_segments in self.segments.values() for segment in block_segments
        }
        assert identities == self._by_identity.keys()
        bounds = _bounds(self.segments)
        times = zip(self.times.low.tolist(), self.times.high.tolist(), strict=True)
        assert [*times] == [bounds[number] for number in self.times.numbers.tolist()]
        self.times._check()


def _bounds(by_block: Mapping[int, Sequence[RowSegment]]) -> dict[int, tuple[int, int] | None]:
    """Return the least and the greatest ts of blocks; None for one without segments."""
    return {
        number: (
            min(segment.ts_lo for segment in segments),
            max(segment.ts_hi for segment in segments),
        )
        if segments
        else None
        for number, segments in by_block.items()
    }
