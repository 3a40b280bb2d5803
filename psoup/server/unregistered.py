"""Predicates that are asked about without being registered, so that asking again is cheap.

What was computed for a predicate is kept by its id. Registered ones have positive ids, for ever;
these get negative ones, which only this server knows and which are never used again.
"""

from __future__ import annotations

from collections import OrderedDict

_CAPACITY = 10_000


class Unregistered:
    """Ids by (stream, key); what was asked longest ago is forgotten. For the event loop only."""

    def __init__(self, capacity: int = _CAPACITY) -> None:
        self._capacity = capacity
        self._ids: OrderedDict[tuple[int, str], int] = OrderedDict()
        self._last = 0

    def id_of(self, stream_id: int, key: str) -> int:
        known = self._ids.get((stream_id, key))
        if known is None:
            self._last -= 1
            known = self._last
        self._ids[stream_id, key] = known
        self._ids.move_to_end((stream_id, key))
        if len(self._ids) > self._capacity:
            self._ids.popitem(last=False)
        return known
