"""Sets of rows: as bits while a probe makes them, and as the matches that it returns.

Bits are a matrix of uint64 words, one line a set. Row r of a batch has bit `shift + r`, so that a
line can begin with a block's word.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from datastem.arrays import Array, Int64s, Mask, UInt32s, UInt64s
from querystem.index.regroup import GroupedRows, regroup
from results.bitmaps import encode_lines, encode_lists, set_bits

WORD = 64
# Shorter lines are faster joined many at a time, though each is then joined several times.
_LONG_LINE_WORDS = 128


def words_for(bits: int) -> int:
    """Return the number of words that hold so many bits."""
    return -(-bits // WORD)


def pack(mask: Mask, shift: int = 0) -> UInt64s:
    """Return the line of the rows for which a mask is true."""
    if shift:
        mask = np.concatenate([np.zeros(shift, np.bool_), mask])
    line = np.zeros(words_for(len(mask)), np.uint64)
    packed = np.packbits(mask, bitorder="little")
    line.view(np.uint8)[: len(packed)] = packed
    return line


def scatter(lines: Array, into: UInt64s, shift: int = 0) -> None:
    """Overwrite the lines of `into`: row r has its bit in line `lines[r]` alone."""
    # Eight rows apart, rows have the same bit of different bytes, so one step sets all of those.
    into[:] = 0
    octets = into.view(np.uint8)
    for first in range(min(8, len(lines))):
        chosen = lines[first::8]
        octet, bit = divmod(shift + first, 8)
        octets[chosen, np.arange(octet, octet + len(chosen))] |= np.uint8(1 << bit)


def accumulate(matrix: UInt64s) -> UInt64s:
    """Join each line with all lines before it, in place."""
    count, width = matrix.shape
    if width >= _LONG_LINE_WORDS:
        for line in range(1, count):
            np.bitwise_or(matrix[line], matrix[line - 1], out=matrix[line])
        return matrix
    step = 1
    while step < count:
        matrix[step:] |= matrix[:-step].copy()
        step *= 2
    return matrix


@dataclass(frozen=True, slots=True)
class RowLists:
    """Matches of few rows each: predicate `ids[i]` has the next `counts[i]` rows, ascending."""

    ids: Int64s
    counts: Int64s
    rows: UInt32s

    def lists(self) -> RowLists:
        return self

    def between(self, lo: int, hi: int) -> RowLists:
        """Return the matches of predicates with lo <= id < hi."""
        if not len(self.ids) or (lo <= self.ids[0] and self.ids[-1] < hi):
            return self
        begin, end = np.searchsorted(self.ids, [lo, hi])
        # The rows of predicate i end before place `ends[i]`.
        ends = np.append(0, np.cumsum(self.counts))
        rows = self.rows[ends[begin] : ends[end]]
        return RowLists(self.ids[begin:end], self.counts[begin:end], rows)

    def bitmaps(self) -> pa.Array:
        return encode_lists(self.counts, self.rows.astype(np.uint16))


@dataclass(frozen=True, slots=True)
class RowLines:
    """Matches of many rows: predicate `ids[i]` has the `counts[i]` bits of `words[lines[i]]`; the
    first column is word `first`."""

    ids: Int64s
    counts: Int64s
    words: UInt64s
    lines: Int64s
    first: int

    def lists(self) -> RowLists:
        return RowLists(self.ids, self.counts, set_bits(self.words[self.lines], self.first))

    def between(self, lo: int, hi: int) -> RowLines:
        """Return the matches of predicates with lo <= id < hi."""
        begin, end = np.searchsorted(self.ids, [lo, hi])
        if end - begin == len(self.ids):
            return self
        chosen = slice(begin, end)
        ids, counts, lines = self.ids[chosen], self.counts[chosen], self.lines[chosen]
        return RowLines(ids, counts, self.words, lines, self.first)

    def bitmaps(self) -> pa.Array:
        return encode_lines(self.words, self.lines, self.counts, self.first)


RowSets = RowLists | RowLines


@dataclass(frozen=True, slots=True)
class Matches:
    """The matches of all predicates that have any: each predicate is in one of the parts.

    Predicates ascend in each part. Rows are numbered as they were for the probe.
    """

    parts: tuple[RowSets, ...]

    def __len__(self) -> int:
        return sum(len(part.ids) for part in self.parts)

    def __iter__(self) -> Iterator[tuple[int, UInt32s]]:
        """Yield each predicate and its rows, in the order of predicates."""
        rows_of: dict[int, UInt32s] = {}
        for part in self.parts:
            lists = part.lists()
            ends = np.cumsum(lists.counts)
            begins = ends - lists.counts
            for id_, begin, end in zip(lists.ids.tolist(), begins, ends, strict=True):
                rows_of[id_] = lists.rows[begin:end]
        yield from sorted(rows_of.items(), key=lambda item: item[0])

    def renumbered(self, numbers: UInt32s, first: int) -> Matches:
        """Return these matches with row `first + i` called `numbers[i]`, which must ascend."""
        lists = [part.lists() for part in self.parts]
        return Matches(tuple(RowLists(a.ids, a.counts, numbers[a.rows - first]) for a in lists))

    def bitmaps(self) -> tuple[Int64s, Int64s, pa.Array]:
        """Return the predicates in order, the number of rows of each, and its rows as portable
        roaring bytes.

        Rows must be numbered below 65,536.
        """
        parts = [part for part in self.parts if len(part.ids)]
        if len(parts) == 1:
            return parts[0].ids, parts[0].counts, parts[0].bitmaps()
        ids = np.concatenate([np.empty(0, np.int64), *[part.ids for part in parts]])
        counts = np.concatenate([np.empty(0, np.int64), *[part.counts for part in parts]])
        encoded = pa.concat_arrays([pa.array([], pa.binary()), *[p.bitmaps() for p in parts]])
        if (ids[1:] > ids[:-1]).all():
            return ids, counts, encoded
        order = np.argsort(ids, kind="stable")
        return ids[order], counts[order], encoded.take(pa.array(order))


def lines_of(ids: Int64s, lines: Int64s, words: UInt64s, first: int) -> RowLines:
    """Return the matches of ascending predicates from their lines; a line may be -1, or without
    a bit.

    Row number `first` is the first that the words hold.
    """
    counts = np.append(np.bitwise_count(words).sum(axis=1, dtype=np.int64), 0)[lines]
    has_rows = counts > 0
    return RowLines(ids[has_rows], counts[has_rows], words, lines[has_rows], first // WORD)


def lists_of(ids: Int64s, numbers: Array, rows: Array, first: int) -> RowLists:
    """Return the matches of pairs in the order of rows, no two of which are equal: predicate
    `ids[numbers[i]]` matches row `rows[i]` of a batch that is numbered from `first` on. The ids
    ascend."""
    if len(rows) and rows[0] == rows[-1]:
        # A single row, so that nothing is to be grouped.
        groups = GroupedRows(np.sort(numbers), np.ones(len(numbers), np.int64), rows)
    else:
        groups = regroup(numbers, rows)
    numbered = (groups.rows + first).astype(np.uint32)
    return RowLists(ids.take(groups.numbers), groups.counts, numbered)
