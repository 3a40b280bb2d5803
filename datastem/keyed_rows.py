"""Keyed rows in sorted runs, searched by stream key and time.

Everything is immutable. The order within a key is (ts, row_id).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from datastem.arrays import Int8s, Int64s, Mask
from datastem.codec import HISTORY_COLUMNS
from datastem.instants import FOR_EVER, SINCE_EVER


@dataclass(frozen=True)
class KeyedRows:
    """Rows of a keyed stream: the digest of each row's stream key, its ts, its id and its
    operation."""

    keys: Int64s
    ts: Int64s
    ids: Int64s
    ops: Int8s

    @classmethod
    def of(cls, rows: pa.RecordBatch | pa.Table) -> KeyedRows:
        """Return the keyed rows of stem rows, in their order."""
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

    @classmethod
    def merged(cls, runs: Sequence[KeyedRows]) -> KeyedRows:
        """Return the rows of sorted runs as one sorted run."""
        if len(runs) == 1:
            return runs[0]
        # A stable sort finds the ascending runs and merges them, which takes a seventh of the time
        # of a sort by key, ts and id.
        rows = cls.joined(runs)
        rows = rows.take(np.argsort(rows.keys, kind="stable"))
        # Rows of a key are in the order of their runs now. Only keys with a row that is late are
        # sorted by ts and id.
        earlier = (rows.ts[1:] < rows.ts[:-1]) | (
            (rows.ts[1:] == rows.ts[:-1]) & (rows.ids[1:] < rows.ids[:-1])
        )
        late = earlier & (rows.keys[1:] == rows.keys[:-1])
        if not late.any():
            return rows
        places = rows.places_of(np.unique(rows.keys[1:][late]))
        unsorted = rows.take(places)
        order = np.arange(len(rows))
        order[places] = places[np.lexsort((unsorted.ids, unsorted.ts, unsorted.keys))]
        return rows.take(order)

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
        return int(self.ts.min()) if len(self) else FOR_EVER

    @cached_property
    def last_ts(self) -> int:
        return int(self.ts.max()) if len(self) else SINCE_EVER

    def take(self, places: Int64s | Mask | slice) -> KeyedRows:
        return KeyedRows(self.keys[places], self.ts[places], self.ids[places], self.ops[places])

    def sorted(self) -> KeyedRows:
        """Return these rows in the order of (key, ts, row_id)."""
        return self.take(np.lexsort((self.ids, self.ts, self.keys)))

    # ---- for sorted rows only

    def ends(self) -> Int64s:
        """Return the end of each row: the ts of the next row of its key, FOR_EVER without one."""
        ends = np.full(len(self), FOR_EVER, np.int64)
        same = self.keys[1:] == self.keys[:-1]
        ends[:-1][same] = self.ts[1:][same]
        return ends

    def last_of_each(self) -> KeyedRows:
        """Return the last row of each key."""
        last = np.ones(len(self), np.bool_)
        last[:-1] = self.keys[1:] != self.keys[:-1]
        return self.take(last)

    def of_keys(self, keys: Int64s) -> KeyedRows:
        """Return the rows of these keys, which ascend."""
        return self.take(self.places_of(keys))

    def places_of(self, keys: Int64s) -> Int64s:
        """Return the places of the rows of these keys, which ascend."""
        # Key n has the places `[first[n], first[n] + lengths[n])`. In the result its rows begin at
        # `before[n]`.
        first = np.searchsorted(self.keys, keys, "left")
        lengths = np.searchsorted(self.keys, keys, "right") - first
        before = np.cumsum(lengths) - lengths
        places: Int64s = np.arange(int(lengths.sum())) + np.repeat(first - before, lengths)
        return places

    def find(self, rows: KeyedRows) -> tuple[Int64s, Int64s, Int64s]:
        """Return three places in this run for each of `rows`: where the rows of its key begin,
        where those with a greater ts begin, and where they end."""
        first = np.searchsorted(self.keys, rows.keys, "left")
        stop = np.searchsorted(self.keys, rows.keys, "right")
        low, high = first.copy(), stop.copy()
        # One binary search for all rows at once; `doubt` holds those whose place is not decided
        # yet.
        doubt = np.flatnonzero(low < high)
        while len(doubt):
            middle = (low[doubt] + high[doubt]) // 2
            after = self.ts[middle] > rows.ts[doubt]
            high[doubt[after]] = middle[after]
            low[doubt[~after]] = middle[~after] + 1
            doubt = doubt[low[doubt] < high[doubt]]
        return first, low, stop

    def last_at(self, keys: Int64s, instants: Int64s, highs: Int64s) -> Int64s:
        """Return, for each key, the place of its last row with a ts up to `instants[n]` and an id
        below `highs[n]`; −1 without such a row."""
        first, after, _ = self.find(KeyedRows(keys, instants, keys, _NO_OPS))
        place = after - 1
        # Late rows are few: step back one row at a time while the row has a greater id.
        unknown = np.flatnonzero((place >= first) & (self.ids[place] >= highs))
        while len(unknown):
            place[unknown] -= 1
            candidates = place[unknown]
            unknown = unknown[
                (candidates >= first[unknown]) & (self.ids[candidates] >= highs[unknown])
            ]
        return np.where(place >= first, place, -1)


_NO_IDS: Int64s = np.empty(0, np.int64)
_NO_OPS: Int8s = np.empty(0, np.int8)


@dataclass(frozen=True, slots=True)
class SortedRuns:
    """Keyed rows in sorted runs; ids ascend from run to run.

    Each run is at least twice the size of the next: runs are merged as a binary counter carries,
    so there are few of them and each row is moved a logarithmic number of times.
    """

    runs: tuple[KeyedRows, ...] = ()

    def __len__(self) -> int:
        return sum(map(len, self.runs))

    @property
    def nbytes(self) -> int:
        return sum(run.nbytes for run in self.runs)

    def append(self, rows: KeyedRows) -> SortedRuns:
        """Return the runs with further rows, whose ids are greater than all ids in them."""
        if not len(rows):
            return self
        runs, new = list(self.runs), [rows.sorted()]
        while runs and len(runs[-1]) < 2 * sum(map(len, new)):
            new.insert(0, runs.pop())
        return SortedRuns((*runs, KeyedRows.merged(new)))

    def whole(self) -> KeyedRows:
        """Return all rows, sorted."""
        return KeyedRows.merged(self.runs)

    def pruned(self, cut: int) -> SortedRuns:
        """Return the runs without the rows that have ended by the instant `cut`."""
        whole = self.whole()
        alive = whole.ends() > cut
        return (
            SortedRuns((whole if alive.all() else whole.take(alive),))
            if alive.any()
            else SortedRuns()
        )

    def last_of_each(self, high: int, instant: int) -> KeyedRows:
        """Return the last row of each key among those with an id below `high` and a ts up to
        `instant`."""
        last_rows = []
        for run in self.runs:
            # A run that lies below both limits as a whole needs no copy.
            if run.last_ts > instant or run.last_id >= high:
                run = run.take((run.ts <= instant) & (run.ids < high))
            last_rows.append(run.last_of_each())
        if len(last_rows) == 1:
            return last_rows[0]
        return KeyedRows.joined(last_rows).sorted().last_of_each()

    def last_at(self, keys: Int64s, instants: Int64s, highs: Int64s) -> KeyedRows:
        """Return, for each key, its last row with a ts up to `instants[n]` and an id below
        `highs[n]`; with the id −1 if there is no such row."""
        # Sorted searches walk the runs from one end to the other, which is kind to the processor's
        # cache.
        order = np.lexsort((instants, keys))
        rows = self._last_at(keys[order], instants[order], highs[order])
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return rows.take(back)

    def _last_at(self, keys: Int64s, instants: Int64s, highs: Int64s) -> KeyedRows:
        ts, ids = np.full(len(keys), SINCE_EVER), np.full(len(keys), -1)
        ops = np.zeros(len(keys), np.int8)
        for run in self.runs:
            place = run.last_at(keys, instants, highs)
            queries = np.flatnonzero(place >= 0)
            place = place[queries]
            # Ids ascend from run to run, so of rows with equal ts the one in the later run is the
            # later.
            later = run.ts[place] >= ts[queries]
            queries, place = queries[later], place[later]
            ts[queries], ids[queries], ops[queries] = run.ts[place], run.ids[place], run.ops[place]
        return KeyedRows(keys, ts, ids, ops)

    def between(self, low: int, high: int) -> KeyedRows:
        """Return the rows with ids in `[low, high)`, in no order."""
        runs = (run for run in self.runs if run.last_id >= low)
        return KeyedRows.joined([run.take((run.ids >= low) & (run.ids < high)) for run in runs])

    def of_keys(self, keys: Int64s) -> SortedRuns:
        """Return the rows of these keys, which ascend."""
        return SortedRuns(tuple(run.of_keys(keys) for run in self.runs))

    def ends(self, rows: KeyedRows) -> Int64s:
        """Return the end of each of these rows, all of which are in the runs; FOR_EVER if it has
        none."""
        ends = np.full(len(rows), FOR_EVER, np.int64)
        for run in self.runs:
            first, place, stop = run.find(rows)
            before = np.maximum(place - 1, 0)
            # `place` is after all rows with the same ts. If the last of these has a greater id, the
            # row ended at its own ts.
            level = (place > first) & (run.ts[before] == rows.ts) & (run.ids[before] > rows.ids)
            ends[level] = rows.ts[level]
            after = (place < stop) & ~level
            ends[after] = np.minimum(ends[after], run.ts[place[after]])
        return ends
