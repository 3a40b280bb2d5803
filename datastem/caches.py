"""One cache with a budget of bytes, which all others are made of.

What is remembered of rows and predicates stays true, since neither changes. It may be dropped to
save memory, and is then read or computed again.
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

    The newest value stays even where it alone is larger than the limit. Each value counts
    `overhead` bytes beside its own. Thread-safe; two threads may make one value twice.
    """

    def __init__(self, limit: int, overhead: int = 0) -> None:
        self.limit = limit
        self._overhead = overhead
        self._lock = threading.Lock()
        self._held: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._used = 0

    @property
    def used(self) -> int:
        return self._used

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: K) -> V | None:
        """The value of a key, which counts as used now; None where there is none."""
        with self._lock:
            found = self._held.get(key)
            if found is None:
                return None
            self._held.move_to_end(key)
            return found[0]

    def put(self, key: K, value: V, nbytes: int = 1) -> None:
        """Holds a value of so many bytes in the place of an older one."""
        with self._lock:
            self._put(key, value, nbytes)

    def find(self, key: K, make: Callable[[], V], nbytes: Callable[[V], int]) -> V:
        """The value of a key; made, without the lock, where there is none."""
        found = self.get(key)
        if found is None:
            found = make()
            self.put(key, found, nbytes(found))
        return found

    def change(self, key: K, change: Callable[[V | None], V], nbytes: Callable[[V], int]) -> V:
        """Puts what `change` makes of a key's value, and returns it; no other thread comes between.

        `change` must be quick, since the cache is locked meanwhile.
        """
        with self._lock:
            held = self._held.get(key)
            value = change(None if held is None else held[0])
            self._put(key, value, nbytes(value))
            return value

    def values(self) -> list[V]:
        """All values; none of them counts as used."""
        with self._lock:
            return [value for value, _ in self._held.values()]

    def clear(self) -> None:
        with self._lock:
            self._held.clear()
            self._used = 0

    def _put(self, key: K, value: V, nbytes: int) -> None:
        old = self._held.pop(key, None)
        self._used += nbytes + self._overhead
        if old is not None:
            self._used -= old[1] + self._overhead
        self._held[key] = value, nbytes
        while self._used > self.limit and len(self._held) > 1:
            _, (_, gone) = self._held.popitem(last=False)
            self._used -= gone + self._overhead
