"""Which slots of a segment may match rows of a batch, by their combination of values alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from datastem.arrays import Int64s, Mask
from querystem.index.hashed.segment import Segment

_LOW = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Found:
    """Slot `slots[i]`, ascending, is of combination `which[i]` of those that occur.

    Combination c has the rows `rows[begin:begin + count]`, ascending, by `row_begins[c]` and
    `row_counts[c]`.
    """

    rows: Int64s
    row_begins: Int64s
    row_counts: Int64s
    slots: Int64s
    which: Int64s

    @classmethod
    def of(cls, segment: Segment, rows: Int64s, places: Int64s) -> Found:
        """From rows of which each has the combination at `places` of the segment."""
        packed = np.sort(places << 32 | rows)
        places = packed >> 32
        begins = np.flatnonzero(np.append(True, places[1:] != places[:-1]))
        counts = np.diff(np.append(begins, len(places)))
        slots, which = _slots(segment, places[begins])
        return cls(packed & _LOW, begins, counts, slots, which)

    def of_combinations(self, chosen: Mask) -> Found:
        kept = chosen[self.which]
        return Found(
            self.rows, self.row_begins, self.row_counts, self.slots[kept], self.which[kept]
        )

    def rows_of(self, combination: int) -> slice:
        begin = int(self.row_begins[combination])
        return slice(begin, begin + int(self.row_counts[combination]))

    def pairs(self, most: int) -> Iterator[tuple[Int64s, Int64s]]:
        """Every slot with each of its rows, as places in `slots` and in `rows`.

        About `most` at a time, or as many as one slot has.
        """
        counts = self.row_counts.take(self.which)
        ends = np.cumsum(counts)
        shift = self.row_begins.take(self.which) - (ends - counts)
        edges = np.searchsorted(ends, np.arange(0, counts.sum(), most))
        done = 0
        for first, last in pairwise(np.unique(np.append(edges, len(ends))).tolist()):
            which = np.repeat(np.arange(first, last), counts[first:last])
            places = shift.take(which)
            places += np.arange(done, done + len(which))
            done += len(which)
            yield which, places


def _slots(segment: Segment, places: Int64s) -> tuple[Int64s, Int64s]:
    """The slots of some combinations, ascending, with which combination each is of."""
    begins = segment.begins[places]
    counts = segment.begins[places + 1] - begins
    which = np.repeat(np.arange(len(places)), counts)
    shift = begins - (np.cumsum(counts) - counts)
    slots = segment.slots[np.arange(len(which)) + shift.take(which)].astype(np.int64)
    if segment.has_dead:
        left = ~segment.dead[slots]
        slots, which = slots[left], which[left]
    packed = np.sort(slots << 32 | which)
    return packed >> 32, packed & _LOW
