"""Probes: rows of one side that are stored in the order of their keys, looked up by keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from datastem.arrays import Int64s, Mask


@dataclass(frozen=True, slots=True)
class SideRows:
    """The rows of one side in a run, sorted by (bucket, key, ts). The bucket of a hash is its
    highest bits, so rows of an equality are sorted by (key, ts)."""

    buckets: Int64s
    keys: Int64s
    ids: Int64s
    ts: Int64s
    positions: Int64s

    def within(self, low: int, high: int) -> SideRows:
        """Return the rows with an id in `[low, high)`."""
        return self._taken((self.ids >= low) & (self.ids < high))

    def in_buckets(self, low: int, high: int) -> SideRows:
        """Return the rows of the buckets `[low, high)`."""
        return self._taken(slice(*np.searchsorted(self.buckets, [low, high])))

    def _taken(self, rows: Mask | slice) -> SideRows:
        return SideRows(*(values[rows] for values in self._arrays))

    @property
    def _arrays(self) -> tuple[Int64s, ...]:
        return self.buckets, self.keys, self.ids, self.ts, self.positions

    @classmethod
    def joined(cls, parts: Sequence[SideRows]) -> SideRows:
        """Return the rows of several runs, one run after the other."""
        nothing = [np.empty(0, np.int64)] * len(cls.__slots__)
        columns = zip(nothing, *(part._arrays for part in parts), strict=True)
        return cls(*map(np.concatenate, columns))


@dataclass(frozen=True, slots=True)
class SideMatches:
    """The matches of probes in one side of a run: probe `first + n` matches the rows `[starts[n],
    starts[n] + counts[n])` of it. Other probes match none."""

    rows: SideRows
    first: int
    starts: Int64s
    counts: Int64s

    @property
    def probes(self) -> slice:
        """The probes that may match a row."""
        return slice(self.first, self.first + len(self.counts))

    def pairs(self, begin: int, end: int) -> tuple[Int64s, Int64s]:
        """Return the pairs of the probes `[begin, end)`: the number of the probe and the place of
        the row, for each pair."""
        begin, end = (min(max(probe - self.first, 0), len(self.counts)) for probe in (begin, end))
        counts = self.counts[begin:end]
        ends = np.cumsum(counts)
        # Pair k of a probe is the row at its start + k: shift the running pair number to that.
        shifts = np.repeat(self.starts[begin:end] - (ends - counts), counts)
        probes = np.repeat(np.arange(self.first + begin, self.first + end), counts)
        return probes, np.arange(len(shifts)) + shifts


@dataclass(frozen=True)
class HashProbes:
    """Probes by hashes, which must ascend. Probe n has parts whose ts are in `[firsts[n],
    lasts[n]]`; rows that are further than `span` from one of them are left out."""

    hashes: Int64s
    buckets: Int64s
    firsts: Int64s
    lasts: Int64s
    span: int | None

    def find(self, rows: SideRows) -> Iterator[SideMatches]:
        """Yield the rows with each hash."""
        if not len(rows.keys):
            return
        # A run has the rows of few buckets, so that few of the hashes are within its bounds.
        first = int(np.searchsorted(self.hashes, rows.keys[0]))
        last = int(np.searchsorted(self.hashes, rows.keys[-1], "right"))
        hashes = self.hashes[first:last]
        starts = np.searchsorted(rows.keys, hashes)
        ends = np.searchsorted(rows.keys, hashes, "right")
        if self.span is not None:
            # A row is near enough to all parts if its ts is in [last - span, first + span].
            starts = first_from(rows.ts, starts, ends, self.lasts[first:last] - self.span)
            ends = first_after(rows.ts, starts, ends, self.firsts[first:last] + self.span)
        yield SideMatches(rows, first, starts, ends - starts)


@dataclass(frozen=True)
class RangeProbes:
    """Probes by ranges of keys: probe n finds the keys in `[lows[n], highs[n]]`, of the rows in the
    buckets `[first_buckets[n], last_buckets[n]]`, which are stretches of time. Some of them may be
    further apart than the span."""

    lows: Int64s
    highs: Int64s
    first_buckets: Int64s
    last_buckets: Int64s

    @cached_property
    def buckets(self) -> Int64s:
        """The buckets in which rows are looked up, ascending."""
        buckets = [self.first_buckets + place for place in range(self._width)]
        return np.unique(np.concatenate([np.empty(0, np.int64), *buckets]))

    @property
    def _width(self) -> int:
        """The most buckets of a probe."""
        widths = self.last_buckets - self.first_buckets + 1
        return int(widths.max(initial=0))

    def find(self, rows: SideRows) -> Iterator[SideMatches]:
        """Yield the rows with a key in each range, bucket by bucket."""
        for place in range(self._width):
            buckets = self.first_buckets + place
            starts = np.searchsorted(rows.buckets, buckets)
            ends = np.searchsorted(rows.buckets, buckets, "right")
            ends = np.where(buckets <= self.last_buckets, ends, starts)
            if (starts < ends).any():
                starts = first_from(rows.keys, starts, ends, self.lows)
                ends = first_after(rows.keys, starts, ends, self.highs)
                yield SideMatches(rows, 0, starts, ends - starts)


def first_from(values: Int64s, begins: Int64s, ends: Int64s, limits: Int64s) -> Int64s:
    """Return the first place in each `[begin, end)` whose value is not below its limit, or `end`.
    Values must ascend within each range."""
    return _first(values, begins, ends, limits, is_after=False)


def first_after(values: Int64s, begins: Int64s, ends: Int64s, limits: Int64s) -> Int64s:
    """Return the first place in each `[begin, end)` whose value is above its limit, or `end`.
    Values must ascend within each range."""
    return _first(values, begins, ends, limits, is_after=True)


def _first(
    values: Int64s, begins: Int64s, ends: Int64s, limits: Int64s, *, is_after: bool
) -> Int64s:
    # A binary search in all ranges at once.
    low, high = begins.copy(), ends.copy()
    searching = np.flatnonzero(low < high)
    while len(searching):
        middle = (low[searching] + high[searching]) >> 1
        value, limit = values[middle], limits[searching]
        below = value <= limit if is_after else value < limit
        low[searching] = np.where(below, middle + 1, low[searching])
        high[searching] = np.where(below, high[searching], middle)
        searching = searching[low[searching] < high[searching]]
    return low
