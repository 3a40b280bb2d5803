"""What was computed of runs of rows, to be used again: a tree over row ids.

Rows never change, so what a run of them comes to stays true. The one thing that happens to rows
is that they outlive their retention; an entry says which ts it is of, and is used only in a region
that holds all of those, where none can be missing.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

_OVERHEAD = 400


@dataclass(frozen=True, slots=True)
class Entry:
    """Of all rows with ids in `[first, stop)`; their ts are in `[low, high]`."""

    first: int
    stop: int
    low: int
    high: int
    value: Any
    nbytes: int


class Summaries:
    """Entries by key, at most `limit` bytes of them; what was used longest ago leaves first.

    Thread-safe. Two threads may compute an entry twice.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, Entry] = OrderedDict()
        self._used = 0

    @property
    def used(self) -> int:
        return self._used

    def probe(self, key: Hashable) -> Entry | None:
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
            return entry

    def insert(self, key: Hashable, entry: Entry) -> None:
        with self._lock:
            old = self._entries.pop(key, None)
            self._entries[key] = entry
            self._used += entry.nbytes - (old.nbytes if old else 0) + (0 if old else _OVERHEAD)
            while self._used > self.limit and len(self._entries) > 1:
                _, gone = self._entries.popitem(last=False)
                self._used -= gone.nbytes + _OVERHEAD
