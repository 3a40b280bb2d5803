"""Sleepers by the instant at which time alone may change their answers."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import count

from psoup.server.watches.sleeper import Sleeper

_SPARE_ENTRIES = 64


class Timers:
    """A heap of instants. A sleeper has the one of its `until`; older entries of it are passed
    over, and cleared away once they are more than the others."""

    def __init__(self) -> None:
        # Instant, number and sleeper. The number breaks ties, since sleepers have no order.
        self._heap: list[tuple[int, int, Sleeper]] = []
        self._numbers = count()
        self._live = 0

    @property
    def first(self) -> int | None:
        """An instant before which no sleeper is due; None if none ever is."""
        return self._heap[0][0] if self._heap else None

    def put(self, sleeper: Sleeper, until: int | None) -> None:
        """Set when a sleeper is due; None for never."""
        if sleeper.until == until:
            return
        self._live += (until is not None) - (sleeper.until is not None)
        sleeper.until = until
        if until is not None:
            heapq.heappush(self._heap, (until, next(self._numbers), sleeper))
        # At least half of the entries are outdated then, so the cost of a sweep is spread over
        # them.
        if len(self._heap) > 2 * self._live + _SPARE_ENTRIES:
            self._heap = [entry for entry in self._heap if entry[2].until == entry[0]]
            heapq.heapify(self._heap)

    def due(self, now: int) -> Iterator[Sleeper]:
        """Remove the sleepers that are due, and yield them."""
        while self._heap and self._heap[0][0] <= now:
            until, _, sleeper = heapq.heappop(self._heap)
            if sleeper.until == until:
                sleeper.until = None
                self._live -= 1
                yield sleeper

    def _check(self) -> None:
        """Assert every invariant."""
        live = {id(sleeper) for until, _, sleeper in self._heap if sleeper.until == until}
        assert len(live) == self._live
        assert len(self._heap) <= 2 * self._live + _SPARE_ENTRIES
        heap = self._heap
        assert all(heap[(place - 1) // 2] <= heap[place] for place in range(1, len(heap)))
