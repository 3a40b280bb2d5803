"""A queue of batches between the thread that reads and the task that publishes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from psoup.source.feeding.batches import BATCH_BYTES, Batch

# What the batches of a source hold that are read and not published: the shared part, and what each
# partition may have beside it, so that none waits for another for ever.
SHARED_BYTES = 32 << 20
OWN_BYTES = 16 << 20
IN_FLIGHT = 8


class MemoryBudget:
    """The bytes of all partitions of a source that are read and not published."""

    def __init__(self) -> None:
        self._used = 0
        self._changed = asyncio.Condition()

    async def take(self, size: int, is_own: Callable[[], bool]) -> None:
        """Wait for room; if `is_own` returns true it is there."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._used + size <= SHARED_BYTES or is_own())
            self._used += size

    async def give(self, size: int) -> None:
        """Return room that was taken."""
        async with self._changed:
            self._used -= size
            self._changed.notify_all()


def batch_bytes(partitions: int) -> int:
    """Return how large a batch may be in a source with so many partitions."""
    return min(BATCH_BYTES, OWN_BYTES // max(1, partitions))


class BatchQueue:
    """A queue of one partition. It takes nothing while the budget is used up, so that nothing is
    read in vain while the store takes nothing.
    """

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._batches: deque[Batch] = deque()
        # Bytes of the batches that are here or being published.
        self._size = 0
        self._failure: Exception | None = None
        self._changed = asyncio.Condition()

    async def put(self, batch: Batch) -> None:
        size = batch.nbytes
        await self._budget.take(size, lambda: not self._size)
        self._size += size
        async with self._changed:
            self._batches.append(batch)
            self._changed.notify_all()

    async def fail(self, error: Exception) -> None:
        """Let `take` raise an error once the batches before it are taken."""
        async with self._changed:
            self._failure = error
            self._changed.notify_all()

    async def take(self) -> list[Batch]:
        """Wait for a batch; return those that are there, up to IN_FLIGHT."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._batches or self._failure)
            if not self._batches and self._failure:
                raise self._failure
            return [self._batches.popleft() for _ in range(min(IN_FLIGHT, len(self._batches)))]

    async def release(self, batches: Sequence[Batch]) -> None:
        """Note that batches that were taken are published."""
        size = sum(batch.nbytes for batch in batches)
        self._size -= size
        await self._budget.give(size)

    async def close(self) -> None:
        """Drop everything."""
        size, self._size = self._size, 0
        await self._budget.give(size)
