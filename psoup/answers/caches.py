"""One cache with a budget, which all others are made of: it holds what earlier answers found out.

Rows and predicates never change, so whatever is remembered of them stays true. It may be dropped to
save memory, and is then read or computed again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_UNREGISTERED = 10_000


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


# Whatever takes long to find out and is asked for again: folds, answers, texts that were read.
Memo = LruCache[Hashable, object]


class UnregisteredIds:
    """Ids for predicates that are asked about without being registered, so that asking is cheap
    the next time.

    What is computed for a predicate is kept by its id. Registered predicates have positive ids, for
    ever; these get negative ones, which only this process knows and which are never used again. The
    predicate that was asked about longest ago is forgotten first.
    """

    def __init__(self, capacity: int = _UNREGISTERED) -> None:
        self._ids: LruCache[tuple[int, str], int] = LruCache(capacity)
        self._last = 0

    def id_of(self, stream_id: int, key: str) -> int:
        """The id of a predicate of a stream, which `key` is the normal form of."""
        known = self._ids.get((stream_id, key))
        if known is None:
            self._last -= 1
            known = self._last
            self._ids.put((stream_id, key), known)
        return known
