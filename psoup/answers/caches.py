"""Answers share a memo, and ids for predicates that nobody registered."""

from __future__ import annotations

from collections.abc import Hashable

from datastem.caches import LruCache

_UNREGISTERED = 10_000

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
