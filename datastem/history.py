"""The keyed history of a stream: `insert` rows as they come, read which were `current` at an
instant.

A row is current at t if ts <= t < its end. Its end is the ts of the next row of its stream key by
(ts, row_id), among the rows below the requested id. So at most one row of a key is current: the
last with ts <= t. A delete is a row of this order that is never current itself.

A `History` is an immutable value: `insert` and `prune` return another one, and any thread may read
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from datastem.arrays import Int64s
from datastem.instants import FOR_EVER, SINCE_EVER
from datastem.keyed_rows import KeyedRows, SortedRuns
from datastem.schema import OP_ROW

# New rows that `_Live` collects before it prunes the rows that have ended.
PRUNE_AFTER_ROWS = 4096
# Rows whose closures are derived together: sorting more of them takes longer per row.
RANGE_ROWS = 1 << 18


@dataclass(frozen=True, slots=True)
class _Live:
    """The rows that had not ended by the instant `since`, and all rows that came later.

    They decide which rows are current at any instant from `since` on, provided that all rows with a
    ts up to `since` are known; their ids are below `settled`. At the last pruning the greatest ts
    was `reached` and `keys` stream keys had a row; `fresh` rows have come since then.
    """

    runs: SortedRuns = SortedRuns()
    since: int = SINCE_EVER
    settled: int = 0
    reached: int = SINCE_EVER
    keys: int = 0
    fresh: int = 0

    def insert(self, rows: KeyedRows) -> _Live:
        # Late rows change what was current at `since`. As known from fewer ids, that can't be
        # answered from these runs, so `settled` moves past them.
        late = rows.take(rows.ts <= self.since)
        live = replace(
            self,
            runs=self.runs.append(rows),
            settled=max(self.settled, late.last_id + 1),
            fresh=self.fresh + len(rows),
        )
        # Pruning sorts all live rows. It waits for about as many new rows as keys, so that its cost
        # per row stays bounded.
        if live.fresh <= PRUNE_AFTER_ROWS + live.keys:
            return live
        return live._advanced(max(self.reached, rows.last_ts))

    def _advanced(self, reached: int) -> _Live:
        """Return the rows pruned at the greatest ts of the previous pruning, if there was one. So
        the instants just behind NOW stay cheap to look up."""
        since = self.reached if self.reached > SINCE_EVER else reached
        settled = (run.take(run.ts <= since).last_id + 1 for run in self.runs.runs)
        runs = self.runs.pruned(since)
        keys = sum(int((run.ts <= since).sum()) for run in runs.runs)
        return _Live(runs, since, max([self.settled, *settled]), reached, keys)


@dataclass(frozen=True, slots=True)
class History:
    """All rows with ids below `high` that had not ended by the instant `cut`."""

    high: int = 0
    cut: int = SINCE_EVER
    runs: SortedRuns = SortedRuns()
    live: _Live = _Live()

    def __len__(self) -> int:
        return len(self.runs)

    @property
    def nbytes(self) -> int:
        return self.runs.nbytes + self.live.runs.nbytes

    @property
    def last_ts(self) -> int:
        """The greatest ts of all rows."""
        return max((run.last_ts for run in self.runs.runs), default=SINCE_EVER)

    def insert(self, rows: KeyedRows, high: int) -> History:
        """Return the history with the rows from `self.high` up to `high`, by ascending id; ids may
        be missing."""
        return replace(self, high=high, runs=self.runs.append(rows), live=self.live.insert(rows))

    def closures(self, rows: KeyedRows) -> Closures:
        """Return the ends, of these rows and of earlier ones, that inserting these rows makes
        known.

        The ids ascend and are greater than those of the history.
        """
        return closures_among(self.runs.runs, rows)

    def current(self, high: int, instant: int, cut: int = SINCE_EVER) -> KeyedRows:
        """Return the rows current at the instant, as known from ids below `high`; by ascending id.

        Rows that had ended by `cut`, judged from all ids, are not retained and left out.
        """
        rows = self._from(high, instant).last_of_each(high, instant)
        rows = rows.take(rows.ops == OP_ROW)
        # As known from all ids, a row that is current at the cut or later has not ended by the cut.
        # Only otherwise its real end has to be looked up.
        if cut > SINCE_EVER and (high < self.high or instant < cut):
            rows = rows.take(self.runs.ends(rows) > cut)
        return rows.take(np.argsort(rows.ids))

    def current_at(self, keys: Int64s, instants: Int64s, highs: Int64s) -> Int64s:
        """Return, for each key, the id of the row that was current at `instants[n]`, as known from
        ids below `highs[n]`; −1 if none was."""
        rows = self.runs.last_at(keys, instants, highs)
        return np.where(rows.ops == OP_ROW, rows.ids, -1)

    def last(self, keys: Int64s) -> KeyedRows:
        """Return the last row of each key by (ts, row_id), be it a delete; with the id −1 if there
        is none."""
        for_ever = np.full(len(keys), FOR_EVER)
        return self._from(self.high, FOR_EVER).last_at(keys, for_ever, for_ever)

    def changed(self, old: int, new: int, instant: int) -> tuple[KeyedRows, KeyedRows]:
        """Return the rows that were current as known from ids below `old` and no longer are from
        ids below `new`, and the rows that have become current; by ascending id.

        `instant` is NOW at `old`: no row with an id below `old` may be later. Nor may a row below
        `new` be later than NOW at `new`. The cost grows with the number of keys that have rows in
        between.
        """
        runs = self._from(old, instant)
        among = runs.of_keys(np.unique(runs.between(old, new).keys))
        # No row is later than NOW, so the last row of a key is its current one.
        before, after = (among.last_of_each(high, FOR_EVER) for high in (old, new))
        before, after = (rows.take(rows.ops == OP_ROW) for rows in (before, after))
        removed = before.take(~np.isin(before.ids, after.ids))
        removed = removed.take(np.argsort(removed.ids))
        added = after.take(~np.isin(after.ids, before.ids))
        return removed, added.take(np.argsort(added.ids))

    def least_ts(self, old: int, new: int) -> int:
        """Return the least ts of the rows with ids in `[old, new)`; FOR_EVER without any."""
        return self._from(old, FOR_EVER).between(old, new).first_ts

    def _from(self, high: int, instant: int) -> SortedRuns:
        """Return runs that hold every row which is current at `instant` or later, as known from the
        ids below `high` or below any greater number."""
        live = self.live
        return live.runs if instant >= live.since and high >= live.settled else self.runs

    def prune(self, cut: int) -> History:
        """Return the history without the rows that had ended by the instant `cut`.

        The remaining rows of a key are the last ones of its order, so no end changes.
        """
        return replace(self, cut=max(self.cut, cut), runs=self.runs.pruned(cut))

    def _check(self) -> None:
        """Assert that every run is sorted, ids ascend from run to run, and no live row is
        missing."""
        for runs in (self.runs, self.live.runs):
            for run in runs.runs:
                order = np.lexsort((run.ids, run.ts, run.keys))
                assert len(run) and (order == np.arange(len(run))).all()
        least = -1
        for run in self.runs.runs:
            assert int(run.ids.min()) > least
            least = run.last_id
        assert least < self.high
        every = self.runs.whole()
        alive = every.take(every.ends() > self.live.since)
        live_ids = {int(row_id) for run in self.live.runs.runs for row_id in run.ids}
        assert live_ids >= set(alive.ids.tolist())


# ---- closures
#
# Rows arrive one after another. A row ends its predecessor in its key's order at its
# own ts; and it has an end itself if a successor arrived earlier. So the end of a row as known from
# ids below `high` is the least one of its closures with `by < high`, however rows were batched.


@dataclass(frozen=True, slots=True)
class Closures:
    """Ends of rows: row `ids[n]` ended at `ends[n]`, which the row `by[n]` made known."""

    ids: Int64s
    ends: Int64s
    by: Int64s


def all_closures(rows: KeyedRows, range_rows: int = RANGE_ROWS) -> list[Closures]:
    """Return the closures of all rows of a stream, which ascend by id: those that `closures` would
    return for rows inserted in any portions. One range of keys at a time."""
    ranges = key_ranges(rows.keys, -(-len(rows) // range_rows))
    # The places of the rows by range, and by id within a range.
    places = np.argsort(ranges, kind="stable")
    edges = np.flatnonzero(np.diff(ranges[places])) + 1
    return [History().closures(rows.take(part)) for part in np.split(places, edges)]


def key_ranges(keys: Int64s, count: int) -> Int64s:
    """Return the number of each stream key's range, of `count` ranges. Keys are digests, so their
    highest bits are spread evenly."""
    # The upper 32 bits, as numbers without a sign: the product fits 64 bits.
    upper = keys.view(np.uint64) >> np.uint64(32)
    return ((upper * np.uint64(max(count, 1))) >> np.uint64(32)).astype(np.int64)


def closures_among(runs: Sequence[KeyedRows], rows: KeyedRows) -> Closures:
    """Return the closures that rows cause among those of sorted runs, all of which have smaller
    ids."""
    new = rows.sorted()
    before_ts, before_id, after_ts = _among(new)
    # Per new row: ts and id of the latest predecessor, and ts of the earliest successor, over the
    # batch itself and all runs.
    for run in runs:
        # In this run the rows of the same key are `[first, place)` with a ts up to the new row's,
        # and `[place, stop)` with a later one. All have smaller ids than the new rows.
        first, place, stop = run.find(new)
        places = np.flatnonzero(place > first)
        last = place[places] - 1
        ts, ids = run.ts[last], run.ids[last]
        later = (ts > before_ts[places]) | ((ts == before_ts[places]) & (ids > before_id[places]))
        before_ts[places[later]], before_id[places[later]] = ts[later], ids[later]
        places = np.flatnonzero(place < stop)
        after_ts[places] = np.minimum(after_ts[places], run.ts[place[places]])
    # `ends`: new rows that end their predecessor. `closed`: new rows whose successor was there
    # before them.
    ends, closed = before_id >= 0, after_ts < FOR_EVER
    return Closures(
        np.concatenate([before_id[ends], new.ids[closed]]),
        np.concatenate([new.ts[ends], after_ts[closed]]),
        np.concatenate([new.ids[ends], new.ids[closed]]),
    )


def _among(new: KeyedRows) -> tuple[Int64s, Int64s, Int64s]:
    """Return the neighbours of each sorted row among the rows of the batch that came before it.

    They are the ts and the id of its predecessor (SINCE_EVER and -1 without one), and the ts of its
    successor (FOR_EVER without one).
    """
    before = _nearest_earlier(new.keys, new.ids)
    # In reverse order successors are predecessors. -1, which stands for none, becomes len(new).
    after = len(new) - 1 - _nearest_earlier(new.keys[::-1], new.ids[::-1])[::-1]
    has, gets = before >= 0, after < len(new)
    before_ts, before_id = np.full(len(new), SINCE_EVER), np.full(len(new), -1)
    before_ts[has], before_id[has] = new.ts[before[has]], new.ids[before[has]]
    after_ts = np.full(len(new), FOR_EVER)
    after_ts[gets] = new.ts[after[gets]]
    return before_ts, before_id, after_ts


def _nearest_earlier(keys: Int64s, ids: Int64s) -> Int64s:
    """Return the nearest place before each place that has the same key and a smaller id, or -1.

    `least[n]` has the least id of every 2^n places in a row. Each search walks back over places
    whose ids are all larger, in steps that are halved each time.
    """
    places = np.arange(len(ids))
    heads = np.ones(len(ids), np.bool_)
    heads[1:] = keys[1:] != keys[:-1]
    # `start[n]` is the first place of the key at place n.
    start = np.maximum.accumulate(np.where(heads, places, 0))
    behind = places[~heads]
    # Only these are searched: elsewhere the place just before has a smaller id.
    behind = behind[ids[behind] < ids[behind - 1]]
    nearest = np.where(heads, -1, places - 1)
    if not len(behind):
        return nearest
    least = [ids]
    # No search goes back further than to the first place of its key, so longer steps are not
    # needed.
    while 1 << len(least) <= int((behind - start[behind]).max()):
        width = 1 << (len(least) - 1)
        least.append(np.minimum(least[-1][:-width], least[-1][width:]))
    at = behind.copy()
    for power in reversed(range(len(least))):
        step = at - (1 << power)
        fits = step >= start[behind]
        skip = np.zeros(len(at), np.bool_)
        skip[fits] = least[power][step[fits]] > ids[behind[fits]]
        at[skip] = step[skip]
    nearest[behind] = np.where(at > start[behind], at - 1, -1)
    return nearest
