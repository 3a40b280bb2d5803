"""A queue in which tenants take turns, so that a flood of one does not delay the others.

Whatever a server shares is waited for in one: messages that are to be taken up, threads and memory
(`psoup.server.sharing`), and places in a commit (`psoup.write.line`). The queue keeps the order.
Its users decide when the next entry goes, and which tenants have to wait.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class QueuePlace(Generic[T]):
    """The place of an entry in a queue. It has the entry as long as that waits."""

    __slots__ = ("_queue", "entry", "tenant", "waits")

    def __init__(self, queue: TenantQueue[T], tenant: str, entry: T) -> None:
        self._queue = queue
        self.tenant = tenant
        self.entry = entry
        self.waits = True

    def leave(self) -> None:
        """Take the entry out of its queue; do nothing if it does not wait any more."""
        if self.waits:
            self._queue._remove(self)


class _Line(Generic[T]):
    """The entries of one tenant: a heap by rank and arrival. Those that have left stay in it until
    they come first; `size` counts the others."""

    __slots__ = ("heap", "size")

    def __init__(self) -> None:
        self.heap: list[tuple[Any, int, QueuePlace[T]]] = []
        self.size = 0


class TenantQueue(Generic[T]):
    """Entries that wait, by tenant. Not thread-safe.

    Iterating yields the tenants that wait, in the order of their turns: a tenant that begins to
    wait comes last, and one whose entry was taken goes to the end. The entries of a tenant are
    ordered by `rank`, and by arrival if that is equal. A rank may rise while its entry waits.
    """

    def __init__(self, rank: Callable[[T], Any] = lambda entry: 0) -> None:
        self._rank = rank
        self._arrivals = count()
        self._lines: OrderedDict[str, _Line[T]] = OrderedDict()

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines)

    def __len__(self) -> int:
        """The number of tenants that wait."""
        return len(self._lines)

    def __contains__(self, tenant: str) -> bool:
        return tenant in self._lines

    def push(self, tenant: str, entry: T) -> QueuePlace[T]:
        """Add an entry; return its place, by which it can leave."""
        line = self._lines.get(tenant)
        if line is None:
            line = self._lines[tenant] = _Line()
        place = QueuePlace(self, tenant, entry)
        # Arrivals are unique, so places are never compared.
        heapq.heappush(line.heap, (self._rank(entry), next(self._arrivals), place))
        line.size += 1
        return place

    def head(self, tenant: str) -> T:
        """Return the first entry of a tenant that waits."""
        heap = self._lines[tenant].heap
        while True:
            rank, arrival, place = heap[0]
            if not place.waits:
                heapq.heappop(heap)
            # The rank has risen since it was pushed: sort the entry in again, with its old arrival.
            elif (present := self._rank(place.entry)) != rank:
                heapq.heapreplace(heap, (present, arrival, place))
            else:
                return place.entry

    def pop(self, tenant: str) -> T:
        """Take the first entry of a tenant that waits; its turn is over."""
        entry = self.head(tenant)
        self._remove(self._lines[tenant].heap[0][2])
        # The line is gone if that was its last entry.
        if tenant in self._lines:
            self.pass_over(tenant)
        return entry

    def pass_over(self, tenant: str) -> None:
        """End the turn of a tenant that waits, with nothing taken."""
        self._lines.move_to_end(tenant)

    def _remove(self, place: QueuePlace[T]) -> None:
        place.waits = False
        # An entry often knows its place: without this only the collector would free the two.
        del place.entry
        line = self._lines[place.tenant]
        line.size -= 1
        if not line.size:
            del self._lines[place.tenant]

    def _check(self) -> None:
        """Assert the invariants, for tests."""
        for tenant, line in self._lines.items():
            places = [place for _, _, place in line.heap if place.waits]
            assert line.size == len(places) > 0
            assert all(place.tenant == tenant for place in places)
