"""The LRU cache with a budget of bytes that all other caches are made of.

Rows and predicates never change, so cached facts about them stay true. They may be dropped to save
memory, and are then read or computed again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """Values by key, of at most `limit` bytes together; the least recently used leave first.

    The newest value stays even if it alone is larger than the limit. Each value counts `overhead`
    bytes beside its own. Thread-safe; two threads may make one value twice.
    """

    def __init__(self, limit: int, overhead: int = 0) -> None:
        self.limit = limit
        self._overhead = overhead
        self._lock = threading.Lock()
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._used = 0

    @property
    def used(self) -> int:
        return self._used

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        """Return the value of a key and mark it as used; None if it is not cached."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: K, value: V, nbytes: int = 1) -> None:
        """Cache a value of `nbytes` bytes, in the place of an older one."""
        with self._lock:
            self._put(key, value, nbytes)

    def find(self, key: K, make: Callable[[], V], nbytes: Callable[[V], int]) -> V:
        """Return the value of a key. If it is not cached, call `make` without the lock and cache
        the result."""
        value = self.get(key)
        if value is None:
            value = make()
            self.put(key, value, nbytes(value))
        return value

    def change(self, key: K, change: Callable[[V | None], V], nbytes: Callable[[V], int]) -> V:
        """Replace a key's value by what `change` returns for it, in one step, and return it.

        `change` must be quick: the cache is locked while it runs.
        """
        with self._lock:
            entry = self._entries.get(key)
            value = change(None if entry is None else entry[0])
            self._put(key, value, nbytes(value))
            return value

    def values(self) -> list[V]:
        """Return all values; none of them counts as used."""
        with self._lock:
            return [value for value, _ in self._entries.values()]

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self._used = 0

    def _put(self, key: K, value: V, nbytes: int) -> None:
        previous = self._entries.pop(key, None)
        self._used += nbytes + self._overhead
        if previous is not None:
            self._used -= previous[1] + self._overhead
        self._entries[key] = value, nbytes
        while self._used > self.limit and len(self._entries) > 1:
            _, (_, freed) = self._entries.popitem(last=False)
            self._used -= freed + self._overhead
