"""Rows in memory: a block is 65,536 row ids, and a part is a run of a block's rows.

Row ids ascend within a part and from part to part; some may be missing. Everything is immutable, so
a reader keeps its parts while a writer goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from datastem.codec import with_optional
from datastem.schema import Column

BLOCK_BITS = 16
BLOCK_ROWS = 1 << BLOCK_BITS
BLOCK_MASK = BLOCK_ROWS - 1
# The cached properties of a part that follow from its ids and times alone.
_BY_SYSTEM_COLUMNS = ("ids", "ts", "first", "stop", "dense", "bounds", "in_order", "by_time")
# An append copies at most this much of earlier rows, because it runs on a server's event loop.
MAX_MERGED_BYTES = 8 << 20


@dataclass(frozen=True)
class Part:
    """A run of a block's stem rows, at least one, by ascending row id."""

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
        """The number after the last row id."""
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
        """Whether ts never falls, so that a window is one slice."""
        return bool((self.ts[1:] >= self.ts[:-1]).all())

    @cached_property
    def by_time(self) -> Int64s:
        """The places of all rows in the order of (ts, row_id)."""
        # Ids ascend already, so a stable sort by ts orders by (ts, row_id).
        return np.argsort(self.ts, kind="stable")

    def overlaps(self, begin: int | None, end: int) -> bool:
        low, high = self.bounds
        return low < end and (begin is None or high >= begin)

    def span(self, begin: int | None, end: int) -> tuple[int, int]:
        """Return row ids `[lo, hi)` outside of which no row has its ts in `[begin, end)`."""
        if not self.in_order:
            return self.first, self.stop
        least, greatest = self.bounds
        low = 0 if begin is None or begin <= least else int(self.ts.searchsorted(begin))
        high = len(self.ts) if greatest < end else int(self.ts.searchsorted(end))
        if low >= high:
            return self.first, self.first
        return int(self.ids[low]), int(self.ids[high - 1]) + 1

    def find(self, ids: Int64s) -> Int64s:
        """Return the places of the rows with these ascending ids; ids that this part lacks are left
        out."""
        if self.dense:
            # Without gaps a place is a difference of ids; only ids outside have to be cut off.
            if len(ids) and (ids[0] < self.first or ids[-1] >= self.stop):
                ids = ids[ids.searchsorted(self.first) : ids.searchsorted(self.stop)]
            return ids - self.first
        places = np.searchsorted(self.ids, ids)
        # An id past the last one gets place 0, whose id is smaller, so the comparison drops it.
        places[places == len(self.ids)] = 0
        matches: Int64s = places[self.ids[places] == ids]
        return matches

    def numbers(self, name: str) -> Any:
        """Return the values of a column as integers of the same width, without a copy; None if a
        value is NULL, or the type has no such form."""
        if name not in self._numbers:
            column = self.rows.column(name)
            width = _INTEGERS.get(_bits(column.type))
            plain = width is not None and not column.null_count
            self._numbers[name] = column.view(width).to_numpy() if plain else None
        return self._numbers[name]

    @cached_property
    def _numbers(self) -> dict[str, Any]:
        return {}

    @cached_property
    def nbytes(self) -> int:
        return int(self.rows.nbytes)

    @cached_property
    def row_bytes(self) -> float:
        """The bytes of a row, on average."""
        return self.nbytes / len(self.ids)

    def widened(self, names: Sequence[str], optional: Mapping[str, Column]) -> Part:
        """Return a part with these columns; optional ones that it lacks have their default."""
        part = Part(with_optional(self.rows, names, optional))
        # What is cached of ids and times stays true; `vars` has the caches of properties.
        cached = {name: vars(self)[name] for name in _BY_SYSTEM_COLUMNS if name in vars(self)}
        vars(part).update(cached)
        return part

    def copied(self) -> Part:
        """Return a part with these rows in memory of its own."""
        return Part(pa.concat_batches([self.rows, self.rows.slice(0, 0)]))

    def below(self, high: int) -> Part | None:
        """Return the rows with an id less than `high`; None if there are none."""
        if self.stop <= high:
            return self
        count = int(np.searchsorted(self.ids, high))
        return Part(self.rows.slice(0, count)) if count else None


@dataclass(frozen=True, slots=True)
class Block:
    """The rows of one block with ids from `floor` on; those below it are in the files.

    Parts are merged as a binary counter carries: a part is at least twice the size of the next,
    so a block has at most 17 parts and each row is copied at most 16 times. Parts that would have
    more than MAX_MERGED_BYTES together stay apart, so blocks of long rows have more.
    """

    floor: int
    parts: tuple[Part, ...] = ()

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts)

    def append(self, part: Part) -> Block:
        unmerged, count, nbytes = len(self.parts), len(part.ids), part.nbytes
        while unmerged and len(self.parts[unmerged - 1].ids) < 2 * count:
            nbytes += self.parts[unmerged - 1].nbytes
            if nbytes > MAX_MERGED_BYTES:
                break
            unmerged -= 1
            count += len(self.parts[unmerged].ids)
        return Block(self.floor, (*self.parts[:unmerged], _join([*self.parts[unmerged:], part])))

    def widened(self, names: Sequence[str], optional: Mapping[str, Column]) -> Block:
        """Return the block with these columns; optional ones that it lacks have their default."""
        return Block(self.floor, tuple(part.widened(names, optional) for part in self.parts))

    def prepend(self, part: Part | None, floor: int) -> Block:
        """Return the block with the rows of `part`, which lie between `floor` and the old floor,
        put first."""
        return Block(floor, self.parts if part is None else (part, *self.parts))


# Rows of some parts: ascending places, none or more of each.
Picked = Sequence[tuple[Part, Int64s]]


def gather(picked: Picked, names: Sequence[str], schema: pa.Schema) -> pa.RecordBatch:
    """Return one batch of the picked rows; each value is copied once.

    `names` are the columns to read from the parts, `schema` their names and types in the batch.
    """
    # Consecutive places become slices, which are copied as one stretch of memory.
    runs = [(part, _as_slice(places)) for part, places in picked if len(places)]
    count = sum(len(places) for _, places in picked)
    columns = [
        _column(runs, name, type_, count) for name, type_ in zip(names, schema.types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def in_order(picked: Picked) -> bool:
    """Return True if the parts alone prove that `gather` returns the rows by (ts, row_id)."""
    bounds = [part.bounds for part, _ in picked]
    rising = all(before[1] <= after[0] for before, after in pairwise(bounds))
    return rising and all(part.in_order for part, _ in picked)


def _as_slice(places: Int64s) -> Int64s | slice:
    first, last = int(places[0]), int(places[-1])
    return slice(first, last + 1) if last - first + 1 == len(places) else places


def _column(
    runs: Sequence[tuple[Part, Any]], name: str, type_: pa.DataType, count: int
) -> pa.Array:
    # For a few rows Arrow's `take` costs many times what numpy does.
    integers = [(part.numbers(name), places) for part, places in runs]
    if integers and all(numbers is not None for numbers, _ in integers):
        values = [numbers[places] for numbers, places in integers]
        joined = values[0] if len(values) == 1 else np.concatenate(values)
        return pa.Array.from_buffers(type_, count, [None, pa.py_buffer(joined)])
    slices = [_slice_column(part.rows.column(name), places) for part, places in runs]
    return pa.concat_arrays(slices) if slices else pa.array([], type_)


def _slice_column(column: pa.Array, places: Any) -> pa.Array:
    if isinstance(places, slice):
        return column.slice(places.start, places.stop - places.start)
    return column.take(pa.array(places))


@dataclass(frozen=True, slots=True)
class SplitRows:
    """Stem rows, whose ids ascend: all of them, and as parts by the number of their block.

    Each part has memory of its own: a slice would keep the whole batch in memory as long as the
    part lives.
    """

    rows: pa.RecordBatch
    parts: Mapping[int, Part]

    @classmethod
    def of(cls, rows: pa.RecordBatch) -> SplitRows:
        """Split rows, and compute what an insert needs of each part. For a large batch that takes
        long; any thread may do it before the insert."""
        parts = _split(rows)
        # A single part is the whole batch, so it keeps no other rows alive.
        if len(parts) > 1:
            parts = {number: part.copied() for number, part in parts.items()}
        for part in parts.values():
            # These are cached properties. Read here, they are not computed under the stem's lock.
            _ = part.first, part.stop, part.bounds, part.nbytes
        return cls(rows, parts)


def _split(rows: pa.RecordBatch) -> dict[int, Part]:
    if not rows.num_rows:
        return {}
    ids = _integers(rows.column("_row_id"))
    blocks = np.arange(ids[0] >> BLOCK_BITS, (ids[-1] >> BLOCK_BITS) + 1)
    # `cuts[n]` is the first row of block n or later; the last cut is the number of rows.
    cuts = np.searchsorted(ids, np.append(blocks, blocks[-1] + 1) << BLOCK_BITS)
    return {
        int(block): Part(rows.slice(low, high - low))
        for block, low, high in zip(blocks, cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)
        if low < high
    }


_INTEGERS = {32: pa.int32(), 64: pa.int64()}


def _bits(type_: pa.DataType) -> int:
    return type_.bit_width if pa.types.is_primitive(type_) else 0


def _join(parts: Sequence[Part]) -> Part:
    return parts[0] if len(parts) == 1 else Part(pa.concat_batches([part.rows for part in parts]))


def _integers(column: pa.Array) -> Int64s:
    numbers: Int64s = column.view(pa.int64()).to_numpy()
    return numbers
