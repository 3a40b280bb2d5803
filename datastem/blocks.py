"""Rows in memory: a block is 65,536 row ids, a part is one run of its rows.

Row ids ascend within a part and from part to part; some may be missing. Everything here is
immutable, so a reader keeps what it was given while a writer goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

BLOCK_BITS = 16
BLOCK_ROWS = 1 << BLOCK_BITS

Int64s = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Part:
    """`rows` are stem rows, at least one, by ascending row id."""

    rows: pa.RecordBatch

    @cached_property
    def ids(self) -> Int64s:
        return _integers(self.rows.column("_row_id"))

    @cached_property
    def ts(self) -> Int64s:
        return _integers(self.rows.column("_ts"))

    @cached_property
    def first(self) -> int:
        return int(self.ids[0])

    @cached_property
    def stop(self) -> int:
        """One past the last row id."""
        return int(self.ids[-1]) + 1

    @cached_property
    def dense(self) -> bool:
        return self.stop - self.first == len(self.ids)

    @cached_property
    def bounds(self) -> tuple[int, int]:
        """The least and the greatest ts."""
        if self.in_order:
            return int(self.ts[0]), int(self.ts[-1])
        return int(self.ts.min()), int(self.ts.max())

    @cached_property
    def in_order(self) -> bool:
        """Whether ts never falls: then a window is one slice."""
        return bool((self.ts[1:] >= self.ts[:-1]).all())

    @cached_property
    def by_time(self) -> Int64s:
        """The places of all rows by (ts, row_id)."""
        return np.argsort(self.ts, kind="stable")

    def overlaps(self, begin: int | None, end: int) -> bool:
        low, high = self.bounds
        return low < end and (begin is None or high >= begin)

    def span(self, begin: int | None, end: int) -> tuple[int, int]:
        """Row ids `[lo, hi)` outside of which no row has its ts in `[begin, end)`."""
        if not self.in_order:
            return self.first, self.stop
        low = 0 if begin is None else int(np.searchsorted(self.ts, begin, "left"))
        high = int(np.searchsorted(self.ts, end, "left"))
        if low >= high:
            return self.first, self.first
        return int(self.ids[low]), int(self.ids[high - 1]) + 1

    def find(self, ids: Int64s) -> Int64s:
        """Where in `rows` the given ascending ids stand; ids that are not here are left out."""
        if self.dense:
            low, high = np.searchsorted(ids, [self.first, self.stop])
            return ids[low:high] - self.first
        places = np.searchsorted(self.ids, ids)
        places[places == len(self.ids)] = 0
        found: Int64s = places[self.ids[places] == ids]
        return found

    def below(self, high: int) -> Part | None:
        """The rows with an id less than `high`."""
        if self.stop <= high:
            return self
        count = int(np.searchsorted(self.ids, high))
        return Part(self.rows.slice(0, count)) if count else None


@dataclass(frozen=True, slots=True)
class Block:
    """The rows of one block with ids from `floor` on; below it the files know.

    Parts are merged as a binary counter carries: a part is at least twice the size of the next,
    so a block has at most 17 parts and each row is copied at most 16 times.
    """

    floor: int
    parts: tuple[Part, ...] = ()

    @property
    def nbytes(self) -> int:
        return sum(part.rows.nbytes for part in self.parts)

    def append(self, part: Part) -> Block:
        parts = list(self.parts)
        while parts and len(parts[-1].ids) < 2 * len(part.ids):
            part = _join(parts.pop(), part)
        return Block(self.floor, (*parts, part))

    def prepend(self, part: Part | None, floor: int) -> Block:
        """The same block with the rows between `floor` and the old floor put before it."""
        return Block(floor, self.parts if part is None else (part, *self.parts))


def split(rows: pa.RecordBatch) -> dict[int, Part]:
    """Stem rows with ascending ids, by block."""
    if not rows.num_rows:
        return {}
    ids = _integers(rows.column("_row_id"))
    blocks = np.arange(ids[0] >> BLOCK_BITS, (ids[-1] >> BLOCK_BITS) + 1)
    cuts = np.searchsorted(ids, np.append(blocks, blocks[-1] + 1) << BLOCK_BITS)
    return {
        int(block): Part(rows.slice(low, high - low))
        for block, low, high in zip(blocks, cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)
        if low < high
    }


def _join(first: Part, second: Part) -> Part:
    return Part(pa.concat_batches([first.rows, second.rows]))


def _integers(column: pa.Array) -> Int64s:
    numbers: Int64s = column.view(pa.int64()).to_numpy()
    return numbers
