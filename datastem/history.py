"""The keyed history of a stream: `insert` rows as they come, ask which were `current` when.

A row is current at t where ts <= t < its end; its end is the ts of the next row of its key by
(ts, row_id), among the rows known at the position asked. So at most one row of a key is current:
the last with ts <= t. A delete is a row of this order that is never current itself.

A `History` is a value: inserting and pruning give another one, and it may be asked from any thread.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from datastem.arrays import Int64s
from datastem.instants import FOR_EVER, SINCE_EVER
from datastem.keyed_rows import KeyedRows, SortedRuns
from datastem.schema import OP_ROW

# How many new rows the live ones may gather before the rows that have ended leave them.
_SLACK = 4096


@dataclass(frozen=True, slots=True)
class _Live:
    """The rows that had not ended by the instant `since`, and all rows that came later.

    They are enough to tell the current rows of any instant from `since` on, if all rows with a ts
    up to `since` are known, which those with ids below `settled` are. At the last pruning, when
    the greatest ts was `reached`, `keys` keys had a row; `fresh` rows have come since then.
    """

    runs: SortedRuns = SortedRuns()
    since: int = SINCE_EVER
    settled: int = 0
    reached: int = SINCE_EVER
    keys: int = 0
    fresh: int = 0

    def insert(self, rows: KeyedRows) -> _Live:
        late = rows.take(rows.ts <= self.since)
        live = replace(
            self,
            runs=self.runs.append(rows),
            settled=max(self.settled, late.last_id + 1),
            fresh=self.fresh + len(rows),
        )
        if live.fresh <= _SLACK + live.keys:
            return live
        return live._advanced(max(self.reached, rows.last_ts))

    def _advanced(self, reached: int) -> _Live:
        """Prunes, with `since` at the greatest ts of the pruning before, if there was one: so the
        instants just behind NOW stay cheap to ask about."""
        since = self.reached if self.reached > SINCE_EVER else reached
        known = (run.take(run.ts <= since).last_id + 1 for run in self.runs.runs)
        runs = self.runs.pruned(since)
        keys = sum(int((run.ts <= since).sum()) for run in runs.runs)
        return _Live(runs, since, max([self.settled, *known]), reached, keys)


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
        """The history with the rows from `self.high` up to `high`, by ascending id; ids may be
        missing."""
        return replace(self, high=high, runs=self.runs.append(rows), live=self.live.insert(rows))

    def closures(self, rows: KeyedRows) -> Closures:
        """The ends, of these rows and of earlier ones, that inserting these rows makes known.

        The ids ascend and are greater than those of the history.
        """
        return _closures(self.runs, rows)

    def current(self, high: int, instant: int, cut: int = SINCE_EVER) -> KeyedRows:
        """The rows current at the instant, as known from ids below `high`; by ascending id.

        Rows that, as known from all ids, had ended by `cut` are not retained, and left out.
        """
        found = self._from(high, instant).last_of_each(high, instant)
        found = found.take(found.ops == OP_ROW)
        if cut > SINCE_EVER and (high < self.high or instant < cut):
            found = found.take(self.runs.ends(found) > cut)
        return found.take(np.argsort(found.ids))

    def current_at(self, keys: Int64s, instants: Int64s, highs: Int64s) -> Int64s:
        """The id of the row of each key that was current at an instant, as known from ids below a
        high one; −1 where none was."""
        found = self.runs.last_at(keys, instants, highs)
        return np.where(found.ops == OP_ROW, found.ids, -1)

    def changed(self, old: int, new: int, instant: int) -> tuple[KeyedRows, KeyedRows]:
        """The rows that were current as known from ids below `old` and no longer are from ids below
        `new`, and the rows that have become current; by ascending id.

        No row with an id below `old` may be later than `instant`, NOW of that time, and none below
        `new` later than NOW of its time. The cost follows the keys that have rows in between.
        """
        runs = self._from(old, instant)
        among = runs.of_keys(np.unique(runs.between(old, new).keys))
        before, after = (among.last_of_each(high, FOR_EVER) for high in (old, new))
        before, after = (rows.take(rows.ops == OP_ROW) for rows in (before, after))
        gone = before.take(~np.isin(before.ids, after.ids))
        gone = gone.take(np.argsort(gone.ids))
        come = after.take(~np.isin(after.ids, before.ids))
        return gone, come.take(np.argsort(come.ids))

    def least_ts(self, old: int, new: int) -> int:
        """The least ts of the rows with ids in `[old, new)`; FOR_EVER without any."""
        return self._from(old, FOR_EVER).between(old, new).first_ts

    def _from(self, high: int, instant: int) -> SortedRuns:
        """Runs that hold every row which is current at `instant` or later, as known from the ids
        below `high` or below any greater number."""
        live = self.live
        return live.runs if instant >= live.since and high >= live.settled else self.runs

    def ended(self, cut: int) -> Int64s:
        """The ids of the rows that had ended by the instant `cut`, ascending."""
        whole = self.runs.whole()
        return np.sort(whole.ids[whole.ends() <= cut])

    def prune(self, cut: int) -> History:
        """The history without the rows that had ended by the instant `cut`.

        The rows left of a key are the last ones of its order, so no end changes.
        """
        return replace(self, cut=max(self.cut, cut), runs=self.runs.pruned(cut))

    def without(self, ids: Int64s) -> History:
        """The history without the rows with these ascending ids, all of which have ended."""
        kept = (run.take(~np.isin(run.ids, ids, kind="sort")) for run in self.runs.runs)
        return replace(self, runs=SortedRuns(tuple(run for run in kept if len(run))))

    def _check(self) -> None:
        """Every run is sorted; ids ascend from run to run; the live rows are rows of it."""
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
        kept = {int(one) for run in self.live.runs.runs for one in run.ids}
        assert kept >= set(alive.ids.tolist())


# ---- closures
#
# Rows come one after another. A row gives its predecessor in its key's order an end, its own ts;
# and it has an end itself where a successor was there before. So the end of a row as known from ids
# below `high` is the least one of its closures with `by < high`, whatever came together in a batch.


@dataclass(frozen=True, slots=True)
class Closures:
    """Ends of rows: row `ids[n]` ended at `ends[n]`, which the row `by[n]` made known."""

    ids: Int64s
    ends: Int64s
    by: Int64s


def _closures(runs: SortedRuns, rows: KeyedRows) -> Closures:
    new = rows.sorted()
    before_ts, before_id, after_ts = _among(new)
    # The predecessor is the latest, the successor the earliest, over the batch itself and all runs.
    for run in runs.runs:
        first, place, stop = run.find(new)
        found = np.flatnonzero(place > first)
        last = place[found] - 1
        ts, ids = run.ts[last], run.ids[last]
        later = (ts > before_ts[found]) | ((ts == before_ts[found]) & (ids > before_id[found]))
        before_ts[found[later]], before_id[found[later]] = ts[later], ids[later]
        found = np.flatnonzero(place < stop)
        after_ts[found] = np.minimum(after_ts[found], run.ts[place[found]])
    ends, closed = before_id >= 0, after_ts < FOR_EVER
    return Closures(
        np.concatenate([before_id[ends], new.ids[closed]]),
        np.concatenate([new.ts[ends], after_ts[closed]]),
        np.concatenate([new.ids[ends], new.ids[closed]]),
    )


def _among(new: KeyedRows) -> tuple[Int64s, Int64s, Int64s]:
    """The neighbours of each sorted row among the rows of the batch that came before it.

    They are the ts and the id of its predecessor (SINCE_EVER and -1 without one), and the ts of its
    successor (FOR_EVER without one).
    """
    before = _nearest_earlier(new.keys, new.ids)
    after = len(new) - 1 - _nearest_earlier(new.keys[::-1], new.ids[::-1])[::-1]
    has, gets = before >= 0, after < len(new)
    before_ts, before_id = np.full(len(new), SINCE_EVER), np.full(len(new), -1)
    before_ts[has], before_id[has] = new.ts[before[has]], new.ids[before[has]]
    after_ts = np.full(len(new), FOR_EVER)
    after_ts[gets] = new.ts[after[gets]]
    return before_ts, before_id, after_ts


def _nearest_earlier(keys: Int64s, ids: Int64s) -> Int64s:
    """The nearest place before each place that has the same key and a smaller id, or -1.

    `least[n]` has the least id of every 2^n places in a row. Each search walks back over places
    whose ids are all larger, in steps that are halved each time.
    """
    places = np.arange(len(ids))
    heads = np.ones(len(ids), np.bool_)
    heads[1:] = keys[1:] != keys[:-1]
    start = np.maximum.accumulate(np.where(heads, places, 0))
    behind = places[~heads]
    behind = behind[ids[behind] < ids[behind - 1]]
    found = np.where(heads, -1, places - 1)
    if not len(behind):
        return found
    least = [ids]
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
    found[behind] = np.where(at > start[behind], at - 1, -1)
    return found
