"""Keyed rows as sorted runs: found by key and time without touching the rest.

Everything here is immutable. The order within a key is (ts, row_id).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from datastem.arrays import Int8s, Int64s, Mask
from datastem.codec import HISTORY_COLUMNS

FIRST, NEVER = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True)
class KeyedRows:
    """Of each row its key's digest, its ts, its id and what it does."""

    keys: Int64s
    ts: Int64s
    ids: Int64s
    ops: Int8s

    @classmethod
    def of(cls, rows: pa.RecordBatch | pa.Table) -> KeyedRows:
        """From stem rows, by ascending id."""
        columns = (rows.column(name) for name in HISTORY_COLUMNS)
        keys, ts, ids, ops = (column.to_numpy(zero_copy_only=False) for column in columns)
        return cls(keys, ts.astype("datetime64[us]").view(np.int64), ids, ops)

    @classmethod
    def joined(cls, parts: Sequence[KeyedRows]) -> KeyedRows:
        if len(parts) == 1:
            return parts[0]
        return cls(
            np.concatenate([_NO_IDS, *(part.keys for part in parts)]),
            np.concatenate([_NO_IDS, *(part.ts for part in parts)]),
            np.concatenate([_NO_IDS, *(part.ids for part in parts)]),
            np.concatenate([_NO_OPS, *(part.ops for part in parts)]),
        )

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def nbytes(self) -> int:
        return self.keys.nbytes + self.ts.nbytes + self.ids.nbytes + self.ops.nbytes

    @cached_property
    def last_id(self) -> int:
        return int(self.ids.max()) if len(self) else -1

    @cached_property
    def first_ts(self) -> int:
        return int(self.ts.min()) if len(self) else NEVER

    @cached_property
    def last_ts(self) -> int:
        return int(self.ts.max()) if len(self) else FIRST

    def take(self, places: Int64s | Mask | slice) -> KeyedRows:
        return KeyedRows(self.keys[places], self.ts[places], self.ids[places], self.ops[places])

    def sorted(self) -> KeyedRows:
        """By (key, ts, row_id)."""
        return self.take(np.lexsort((self.ids, self.ts, self.keys)))

    # ---- of sorted rows

    def ends(self) -> Int64s:
        """The ts of the next row of the same key; NEVER where there is none."""
        ends = np.full(len(self), NEVER, np.int64)
        same = self.keys[1:] == self.keys[:-1]
        ends[:-1][same] = self.ts[1:][same]
        return ends

    def last_of_each(self) -> KeyedRows:
        """The last row of each key."""
        last = np.ones(len(self), np.bool_)
        last[:-1] = self.keys[1:] != self.keys[:-1]
        return self.take(last)

    def of_keys(self, keys: Int64s) -> KeyedRows:
        """The rows of these keys, which ascend."""
        first = np.searchsorted(self.keys, keys, "left")
        lengths = np.searchsorted(self.keys, keys, "right") - first
        before = np.cumsum(lengths) - lengths
        return self.take(np.arange(int(lengths.sum())) + np.repeat(first - before, lengths))

    def find(self, others: KeyedRows) -> tuple[Int64s, Int64s, Int64s]:
        """For each of the others the rows of its key `[first, stop)`, and where those begin whose
        ts is greater than its own."""
        first = np.searchsorted(self.keys, others.keys, "left")
        stop = np.searchsorted(self.keys, others.keys, "right")
        low, high = first.copy(), stop.copy()
        doubt = np.flatnonzero(low < high)
        while len(doubt):
            middle = (low[doubt] + high[doubt]) // 2
            after = self.ts[middle] > others.ts[doubt]
            high[doubt[after]] = middle[after]
            low[doubt[~after]] = middle[~after] + 1
            doubt = doubt[low[doubt] < high[doubt]]
        return first, low, stop


_NO_IDS: Int64s = np.empty(0, np.int64)
_NO_OPS: Int8s = np.empty(0, np.int8)


@dataclass(frozen=True, slots=True)
class Runs:
    """Sorted runs, each at least twice the size of the next: rows are merged as a binary counter
    carries, so there are few runs and each row is moved a logarithmic number of times.

    Ids ascend from run to run.
    """

    runs: tuple[KeyedRows, ...] = ()

    def __len__(self) -> int:
        return sum(map(len, self.runs))

    @property
    def nbytes(self) -> int:
        return sum(run.nbytes for run in self.runs)

    def append(self, rows: KeyedRows) -> Runs:
        """Rows with ids greater than all that are here."""
        if not len(rows):
            return self
        runs, new = list(self.runs), [rows]
        while runs and len(runs[-1]) < 2 * sum(map(len, new)):
            new.insert(0, runs.pop())
        return Runs((*runs, KeyedRows.joined(new).sorted()))

    def whole(self) -> KeyedRows:
        """All rows, sorted."""
        rows = KeyedRows.joined(self.runs)
        return rows.sorted() if len(self.runs) > 1 else rows

    def pruned(self, cut: int) -> Runs:
        """Without the rows that have ended by the instant `cut`."""
        whole = self.whole()
        kept = whole.ends() > cut
        return Runs((whole if kept.all() else whole.take(kept),)) if kept.any() else Runs()

    def last_of_each(self, high: int, instant: int) -> KeyedRows:
        """Of each key the last row with an id below `high` and a ts up to the instant."""
        found = []
        for run in self.runs:
            if run.last_ts > instant or run.last_id >= high:
                run = run.take((run.ts <= instant) & (run.ids < high))
            found.append(run.last_of_each())
        if len(found) == 1:
            return found[0]
        return KeyedRows.joined(found).sorted().last_of_each()

    def between(self, low: int, high: int) -> KeyedRows:
        """The rows with ids in `[low, high)`, in no order."""
        runs = (run for run in self.runs if run.last_id >= low)
        return KeyedRows.joined([run.take((run.ids >= low) & (run.ids < high)) for run in runs])

    def of_keys(self, keys: Int64s) -> Runs:
        """The rows of these keys, which ascend."""
        return Runs(tuple(run.of_keys(keys) for run in self.runs))

    def ends(self, rows: KeyedRows) -> Int64s:
        """When each of these rows, which are here, ended; NEVER where it has not."""
        ends = np.full(len(rows), NEVER, np.int64)
        for run in self.runs:
            first, place, stop = run.find(rows)
            before = np.maximum(place - 1, 0)
            level = (place > first) & (run.ts[before] == rows.ts) & (run.ids[before] > rows.ids)
            ends[level] = rows.ts[level]
            after = (place < stop) & ~level
            ends[after] = np.minimum(ends[after], run.ts[place[after]])
        return ends
