"""The history of a keyed stream: which of its rows are current at which instants.

A history is built when it is first needed, from the files that the epoch names and the rows in
memory, and extended by every later answer. So keyed answers are as fresh as the log.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TypeAlias

from datastem.arrays import Int64s
from datastem.caches import LruCache
from datastem.codec import HISTORY_COLUMNS
from datastem.history import History
from datastem.instants import SINCE_EVER
from datastem.keyed_rows import KeyedRows
from datastem.memory import Memory
from datastem.stem_view import StemView

# A history is pruned when it has twice as many rows as after the last pruning, and this many more.
_PRUNE_SLACK_ROWS = 1 << 16
_CACHED_RESULTS = 4
# A change of at most this many new rows is computed from their stream keys alone.
_FEW_ROWS = 1024

Results: TypeAlias = tuple[KeyedRows, ...]


class KeyedStream:
    """The history of one stream, under the memory's budget. Thread-safe."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._lock = threading.Lock()
        self._history = History()
        self._pruned_rows = 0
        self._results: LruCache[Hashable, Results] = LruCache(_CACHED_RESULTS)

    def view(self, stem: StemView) -> KeyedView:
        """Return the stream at the moment of a view of its stem."""
        return KeyedView(self, self._history, stem)

    def at(self, earlier: History, stem: StemView, cut: int) -> History:
        """Return the history of exactly the stem's rows, without some that had ended by `cut`.

        `earlier` must not be ahead of the stem. Raises what reading the stem's files raises.
        """
        # One thread reads new rows while the others wait, instead of all reading the same files.
        with self._lock:
            newest = self._history
            # A history that is ahead of the stem, or pruned beyond `cut`, can't serve this answer.
            usable = newest.high <= stem.high and newest.cut <= cut
            history = newest if usable else earlier
            history = _read(history if history.cut <= cut else History(), stem)
            if cut > SINCE_EVER and len(history) > 2 * self._pruned_rows + _PRUNE_SLACK_ROWS:
                history = history.prune(cut)
                self._pruned_rows = len(history)
            # An answer over an older view must not set the shared history back.
            if history.high >= newest.high:
                self._history = history
        nbytes = sum(rows.nbytes for results in self._results.values() for rows in results)
        self._memory.hold((self, 0), self._history.nbytes + nbytes)
        self._memory.shrink()
        return history

    def cached(self, key: Hashable, find: Callable[[], Results]) -> Results:
        """Return the rows that `find` gives, from the cache if it gave some for this key lately. A
        transfer needs equal rows for each of its pieces, and so do clients that come together."""
        return self._results.find(key, find, lambda _: 1)

    def forget(self) -> None:
        self._memory.drop((self, 0))
        self.evict(0)

    def evict(self, number: int) -> None:
        """Drop what can be read again. Called by the memory when it needs the room."""
        self._history = History()
        self._results.clear()


@dataclass(frozen=True, slots=True)
class KeyedView:
    """A keyed stream at one moment."""

    stream: KeyedStream
    history: History
    stem: StemView

    def current(self, high: int, instant: int, cut: int | None) -> KeyedRows:
        """Return the rows current at the instant, as known from ids below `high`, by ascending id.

        Rows that had ended by `cut` are not retained, and left out.
        """
        limit = SINCE_EVER if cut is None else cut
        history = self.stream.at(self.history, self.stem, limit)
        # All instants later than any row's are equivalent, and so are all cuts by which nothing
        # that is current can have ended: they share an entry of the cache.
        key: tuple[int, ...] = (high, min(instant, history.last_ts))
        if high < history.high or instant < limit:
            key = (*key, limit, history.high)
        (rows,) = self.stream.cached(key, lambda: (history.current(high, instant, limit),))
        return rows

    def current_at(self, keys: Int64s, instants: Int64s, highs: Int64s) -> Int64s:
        """Return, for each digest of a stream key, the id of the row that was current at an
        instant, as known from ids below a high one; −1 if none was."""
        history = self.stream.at(self.history, self.stem, SINCE_EVER)
        return history.current_at(keys, instants, highs)

    def last(self, keys: Int64s, cut: int | None) -> KeyedRows:
        """Return, for each digest of a stream key, its last row of all, be it a delete; with the
        id −1 if there is none. Rows that had ended by `cut` need not be known for that."""
        limit = SINCE_EVER if cut is None else cut
        return self.stream.at(self.history, self.stem, limit).last(keys)

    def forgets(self, old: int, now: int, cut: int | None) -> bool:
        """Return True if a row that was current when ids below `old` were known and NOW was `now`
        may have ended by `cut`, so that it is not retained: by then, or by a row that came late."""
        if cut is None or now < cut:
            return cut is not None
        history = self.stream.at(self.history, self.stem, cut)
        return history.least_ts(old, self.stem.high) <= cut

    def changed(self, old: int, now: int, cut: int | None) -> tuple[KeyedRows, KeyedRows] | None:
        """Return the rows that were current when ids below `old` were known and NOW was `now`, but
        no longer are; and those that are now but were not. Both by ascending id.

        The cost is that of the changes. None if so many rows came that comparing all keys costs
        less; or if some ended others by `cut` already, which may be pruned.
        """
        limit = SINCE_EVER if cut is None else cut
        history = self.stream.at(self.history, self.stem, limit)
        high = self.stem.high
        few = max(_FEW_ROWS, len(history.live.runs) // 8)
        if high - old > few or history.least_ts(old, high) <= limit:
            return None
        removed, added = self.stream.cached(
            (old, high, "changed"), lambda: history.changed(old, high, now)
        )
        return removed, added


def _read(history: History, stem: StemView) -> History:
    """Return the history extended to the last row of the stem."""
    if history.high == stem.high:
        return history
    return history.insert(read_keyed(stem, history.high), stem.high)


def read_keyed(stem: StemView, low: int) -> KeyedRows:
    """Return the keyed rows of a stem with ids from `low` on, ascending."""
    return KeyedRows.joined([KeyedRows.of(rows) for rows in stem.columns(HISTORY_COLUMNS, low)])
