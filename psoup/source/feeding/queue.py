"""A queue of batches between the thread that reads and the task that publishes."""

from __future__ import annotations

import asyncio
from collections import deque

from psoup.source.feeding.batches import Batch

# Beside them at most as many bytes are being published.
QUEUED_BYTES = 32 << 20
IN_FLIGHT = 8


class BatchQueue:
    """A queue that is full when it holds QUEUED_BYTES, so that nothing is read in vain while the
    store takes nothing.
    """

    def __init__(self) -> None:
        self._batches: deque[Batch] = deque()
        self._size = 0
        self._failure: Exception | None = None
        self._changed = asyncio.Condition()

    async def put(self, batch: Batch) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._size < QUEUED_BYTES)
            self._batches.append(batch)
            self._size += batch.nbytes
            self._changed.notify_all()

    async def fail(self, error: Exception) -> None:
        """Let `take` raise an error once the batches before it are taken."""
        async with self._changed:
            self._failure = error
            self._changed.notify_all()

    async def take(self) -> list[Batch]:
        """Wait for a batch; return those that are there, up to IN_FLIGHT and QUEUED_BYTES."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._batches or self._failure)
            if not self._batches and self._failure:
                raise self._failure
            batches, size = list[Batch](), 0
            while self._batches and len(batches) < IN_FLIGHT and size < QUEUED_BYTES:
                batch = self._batches.popleft()
                batches.append(batch)
                size += batch.nbytes
            self._size -= size
            self._changed.notify_all()
            return batches
