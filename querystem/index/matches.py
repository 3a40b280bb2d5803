"""What a probe finds: which rows of the batch satisfy which predicate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s, UInt32s, UInt64s
from querystem.index.bitmaps import WORD
from results.bitmaps import encode_lines, encode_lists, set_bits


@dataclass(frozen=True, slots=True)
class Lists:
    """Of few rows each: predicate `ids[i]` has the next `counts[i]` of `rows`, ascending."""

    ids: Int64s
    counts: Int64s
    rows: UInt32s

    def lists(self) -> Lists:
        return self

    def bitmaps(self) -> pa.Array:
        return encode_lists(self.counts, self.rows.astype(np.uint16))


@dataclass(frozen=True, slots=True)
class Lines:
    """Of many rows: predicate `ids[i]` has the bits of `words[lines[i]]`, from word `first` on."""

    ids: Int64s
    counts: Int64s
    words: UInt64s
    lines: Int64s
    first: int

    def lists(self) -> Lists:
        return Lists(self.ids, self.counts, set_bits(self.words[self.lines], self.first))

    def bitmaps(self) -> pa.Array:
        return encode_lines(self.words, self.lines, self.counts, self.first)


@dataclass(frozen=True, slots=True)
class Matches:
    """Parts of any number of predicates; each predicate is in one, ascending, and has a row.

    Rows are numbered as they were for the probe.
    """

    parts: tuple[Lists | Lines, ...]

    def __len__(self) -> int:
        return sum(len(part.ids) for part in self.parts)

    def __iter__(self) -> Iterator[tuple[int, UInt32s]]:
        """In the order of predicates."""
        found: dict[int, UInt32s] = {}
        for part in self.parts:
            lists = part.lists()
            ends = np.cumsum(lists.counts)
            begins = ends - lists.counts
            for id_, begin, end in zip(lists.ids.tolist(), begins, ends, strict=True):
                found[id_] = lists.rows[begin:end]
        yield from sorted(found.items(), key=lambda item: item[0])

    def renumbered(self, numbers: UInt32s, first: int) -> Matches:
        """Row `first + i` is called `numbers[i]`; those must ascend."""
        lists = [part.lists() for part in self.parts]
        return Matches(tuple(Lists(a.ids, a.counts, numbers[a.rows - first]) for a in lists))

    def bitmaps(self) -> tuple[Int64s, Int64s, pa.Array]:
        """Predicates in order, how many rows each has, and these as portable roaring bytes.

        Rows must be numbered below 65,536.
        """
        held = [part for part in self.parts if len(part.ids)]
        if len(held) == 1:
            return held[0].ids, held[0].counts, held[0].bitmaps()
        ids = np.concatenate([np.empty(0, np.int64), *[part.ids for part in held]])
        counts = np.concatenate([np.empty(0, np.int64), *[part.counts for part in held]])
        encoded = pa.concat_arrays([pa.array([], pa.binary()), *[p.bitmaps() for p in held]])
        order = np.argsort(ids, kind="stable")
        return ids[order], counts[order], encoded.take(pa.array(order))


def lines_of(ids: Int64s, lines: Int64s, words: UInt64s, first: int) -> Lines:
    """Of predicates, ascending, whose line is -1 or may be empty; the first row is `first`."""
    counts = np.append(np.bitwise_count(words).sum(axis=1, dtype=np.int64), 0)[lines]
    held = counts > 0
    return Lines(ids[held], counts[held], words, lines[held], first // WORD)
