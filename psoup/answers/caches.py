"""What answers share: a memo, and ids for predicates that are not registered."""

from __future__ import annotations

from collections.abc import Hashable

from datastem.caches import LruCache

_MAX_UNREGISTERED = 10_000

# A cache of what takes long to compute and is needed again: folds, answers, parsed texts.
Memo = LruCache[Hashable, object]


class UnregisteredIds:
    """Ids for predicates of queries that are not registered.

    Matches are cached by predicate id, so that the same query is cheap the next time. Registered
    predicates have positive ids, which never change. These get negative ids, which are local to
    this process and never used again. The least recently used predicate is forgotten first.
    """

    def __init__(self, capacity: int = _MAX_UNREGISTERED) -> None:
        self._ids: LruCache[tuple[int, str], int] = LruCache(capacity)
        self._last = 0

    def id_of(self, stream_id: int, key: str) -> int:
        """Return the id of a predicate of a stream. `key` is its predicate key, the normal form."""
        id_ = self._ids.get((stream_id, key))
        if id_ is None:
            self._last -= 1
            id_ = self._last
            self._ids.put((stream_id, key), id_)
        return id_
