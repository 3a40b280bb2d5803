"""The keyed history of a stream: `insert` rows as they come, ask which were `current` when.

A row is current at t where ts <= t < its end; its end is the ts of the next row of its key by
(ts, row_id), among the rows known at the position asked. So of each key one row is current at
most: the last with ts <= t. A delete is a row of this order that is never current itself.

A `History` is a value: inserting and pruning give another one, and whoever holds one may ask it
from any thread.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from datastem.arrays import Int64s
from datastem.closures import Closures, caused
from datastem.operations import OP_ROW
from datastem.runs import FIRST, NEVER, KeyedRows, Runs

# New rows that are looked at beside the live ones before what has ended leaves these.
_SLACK = 4096


@dataclass(frozen=True, slots=True)
class _Live:
    """The rows that had no end, or a later one than the instant `since`, and all that came after.

    What is current at `since` or later is among them where every row is known whose ts is not
    after it: those have ids below `settled`. `keys` had a row by then; `fresh` rows came since
    that was found out, when ts had come to `reached`.
    """

    runs: Runs = Runs()
    since: int = FIRST
    settled: int = 0
    reached: int = FIRST
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
        """Moves `since` to what was reached at the advance before, if there was one, so that the
        instants just behind NOW stay cheap to ask about."""
        since = self.reached if self.reached > FIRST else reached
        known = (run.take(run.ts <= since).last_id + 1 for run in self.runs.runs)
        runs = self.runs.pruned(since)
        keys = sum(int((run.ts <= since).sum()) for run in runs.runs)
        return _Live(runs, since, max([self.settled, *known]), reached, keys)


@dataclass(frozen=True, slots=True)
class History:
    """All rows with ids below `high`, but for those that had ended by the instant `cut`."""

    high: int = 0
    cut: int = FIRST
    runs: Runs = Runs()
    live: _Live = _Live()

    def __len__(self) -> int:
        return len(self.runs)

    @property
    def nbytes(self) -> int:
        return self.runs.nbytes + self.live.runs.nbytes

    @property
    def last_ts(self) -> int:
        """The greatest ts of its rows."""
        return max((run.last_ts for run in self.runs.runs), default=FIRST)

    def insert(self, rows: KeyedRows, high: int) -> History:
        """With the rows from `self.high` up to `high`, by ascending id; some may be missing."""
        return replace(self, high=high, runs=self.runs.append(rows), live=self.live.insert(rows))

    def closures(self, rows: KeyedRows) -> Closures:
        """What inserting these rows, by ascending id, says about ends: theirs and others'."""
        return caused(self.runs, rows)

    def current(self, high: int, instant: int, cut: int = FIRST) -> KeyedRows:
        """The rows current at the instant, as known from ids below `high`; by ascending id.

        Without those that by all that is known here had ended by `cut`: they are not retained.
        """
        found = self._from(high, instant).last_of_each(high, instant)
        found = found.take(found.ops == OP_ROW)
        if cut > FIRST and (high < self.high or instant < cut):
            found = found.take(self.runs.ends(found) > cut)
        return found.take(np.argsort(found.ids))

    def changed(self, old: int, new: int, instant: int) -> tuple[KeyedRows, KeyedRows]:
        """The rows that are current as known from ids below `old` and not from those below `new`,
        and those of which the opposite is true; by ascending id.

        For marks at which no row that is known lies ahead of NOW, which was `instant` at the old
        one. Costs as much as the keys that have rows in between.
        """
        runs = self._from(old, instant)
        among = runs.of_keys(np.unique(runs.between(old, new).keys))
        before, after = (among.last_of_each(high, NEVER) for high in (old, new))
        before, after = (rows.take(rows.ops == OP_ROW) for rows in (before, after))
        gone = before.take(~np.isin(before.ids, after.ids))
        gone = gone.take(np.argsort(gone.ids))
        come = after.take(~np.isin(after.ids, before.ids))
        return gone, come.take(np.argsort(come.ids))

    def least_ts(self, old: int, new: int) -> int:
        """Of the rows with ids in between; NEVER without any."""
        return self._from(old, NEVER).between(old, new).first_ts

    def _from(self, high: int, instant: int) -> Runs:
        """Rows among which all are that are current at the instant or later, with ids below `high`
        or greater ones known."""
        live = self.live
        return live.runs if instant >= live.since and high >= live.settled else self.runs

    def ended(self, cut: int) -> Int64s:
        """The ids of the rows that had ended by the instant, ascending."""
        whole = self.runs.whole()
        return np.sort(whole.ids[whole.ends() <= cut])

    def prune(self, cut: int) -> History:
        """Without the rows that had ended by the instant.

        Those left of a key are the last ones of its order, so no end changes.
        """
        return replace(self, cut=max(self.cut, cut), runs=self.runs.pruned(cut))

    def without(self, ids: Int64s) -> History:
        """Without these rows, all of which have ended. The ids ascend."""
        kept = (run.take(~np.isin(run.ids, ids, kind="sort")) for run in self.runs.runs)
        return replace(self, runs=Runs(tuple(run for run in kept if len(run))))

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
