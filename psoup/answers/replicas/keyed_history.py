"""The history of a keyed stream: which of its rows are current when.

A history is made when it is first asked for, from the files the epoch names and the rows that are
in memory, and goes on from there with every answer. So keyed answers are as fresh as the log.
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
from datastem.stem import StemView

# A history is pruned when it has grown to twice what was left of it, and this.
_SLACK = 1 << 16
_REMEMBERED = 4
_FEW_ROWS = 1024

Found: TypeAlias = tuple[KeyedRows, ...]


class KeyedStream:
    """The history of one stream, under the memory's budget. Thread-safe."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._lock = threading.Lock()
        self._history = History()
        self._left = 0
        self._found: LruCache[Hashable, Found] = LruCache(_REMEMBERED)

    def view(self, stem: StemView) -> KeyedView:
        """The stream at the moment that `stem` was taken."""
        return KeyedView(self, self._history, stem)

    def at(self, seen: History, stem: StemView, cut: int) -> History:
        """The history of exactly the stem's rows, but for some that had ended by `cut`.

        `seen` is no further than the stem. Raises what reading its files raises.
        """
        with self._lock:
            newest = self._history
            usable = newest.high <= stem.high and newest.cut <= cut
            history = newest if usable else seen
            history = _read(history if history.cut <= cut else History(), stem)
            if cut > SINCE_EVER and len(history) > 2 * self._left + _SLACK:
                history = history.prune(cut)
                self._left = len(history)
            if history.high >= newest.high:
                self._history = history
        kept = sum(rows.nbytes for found in self._found.values() for rows in found)
        self._memory.hold((self, 0), self._history.nbytes + kept)
        self._memory.shrink()
        return history

    def remembered(self, key: Hashable, find: Callable[[], Found]) -> Found:
        """The rows that `find` gives, or gave for this key just before: a transfer asks for equal
        rows for each of its pieces, and so do clients that come together."""
        return self._found.find(key, find, lambda _: 1)

    def forget(self) -> None:
        self._memory.drop((self, 0))
        self.evict(0)

    def evict(self, number: int) -> None:
        """Called by the memory when others need the room."""
        self._history = History()
        self._found.clear()


@dataclass(frozen=True, slots=True)
class KeyedView:
    """A keyed stream at one moment."""

    stream: KeyedStream
    seen: History
    stem: StemView

    def current(self, high: int, instant: int, cut: int | None) -> KeyedRows:
        """The rows current at the instant, as known from ids below `high`, by ascending id.

        Without those that had ended by `cut`: what had is not retained.
        """
        limit = SINCE_EVER if cut is None else cut
        history = self.stream.at(self.seen, self.stem, limit)
        # An instant later than any row's is as good as any other, and so is a cut where nothing
        # that is current can have ended.
        key: tuple[int, ...] = (high, min(instant, history.last_ts))
        if high < history.high or instant < limit:
            key = (*key, limit, history.high)
        (rows,) = self.stream.remembered(key, lambda: (history.current(high, instant, limit),))
        return rows

    def current_at(self, keys: Int64s, instants: Int64s, highs: Int64s) -> Int64s:
        """The id of the row of each key, given by its digest, that was current at an instant, as
        known from ids below a high one; −1 where none was."""
        return self.stream.at(self.seen, self.stem, SINCE_EVER).current_at(keys, instants, highs)

    def forgets(self, old: int, now: int, cut: int | None) -> bool:
        """Tells whether a row that was current at `old`, a high id of which NOW was `now`, may have
        ended by `cut`, so that it is not retained: by then, or by a row that came late."""
        if cut is None:
            return False
        return (
            now < cut
            or self.stream.at(self.seen, self.stem, cut).least_ts(old, self.stem.high) <= cut
        )

    def changed(self, old: int, now: int, cut: int | None) -> tuple[KeyedRows, KeyedRows] | None:
        """The rows current at `old`, a high id of which NOW was `now`, that are no longer so now;
        and those that are now and were not. By ascending id; costs as much as changed.

        None where so many rows came that looking at all keys costs less; or some that had ended
        others by `cut` already, which may be forgotten.
        """
        limit = SINCE_EVER if cut is None else cut
        history = self.stream.at(self.seen, self.stem, limit)
        high = self.stem.high
        few = max(_FEW_ROWS, len(history.live.runs) // 8)
        if high - old > few or history.least_ts(old, high) <= limit:
            return None
        found = self.stream.remembered(
            (old, high, "changed"), lambda: history.changed(old, high, now)
        )
        gone, come = found
        return gone, come


def _read(history: History, stem: StemView) -> History:
    """Goes on to the last row of the stem."""
    if history.high == stem.high:
        return history
    parts = [KeyedRows.of(rows) for rows in stem.columns(HISTORY_COLUMNS, history.high)]
    return history.insert(KeyedRows.joined(parts), stem.high)
