"""The metrics of a process as text, made in a thread and at most once a second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from http import HTTPStatus

from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from psoup.monitoring.listener import PageReply, PageRequest

_LEAST_AGE_SECONDS = 1.0
OTHER = "other"


def new_registry() -> CollectorRegistry:
    """Return a registry that has the processor time and the memory of this process."""
    # A second series for each counter, which says when it began, would help nobody here.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return registry


class Exposition:
    """The page `/metrics`, made at most once a second, however often it is asked for. `look` is
    called on the event loop before the text is made."""

    def __init__(
        self, registry: CollectorRegistry, look: Callable[[], None] = lambda: None
    ) -> None:
        self._registry = registry
        self._look = look
        self._lock = asyncio.Lock()
        self._text = b""
        self._made_at = float("-inf")

    async def page(self, request: PageRequest) -> PageReply:
        return await self.reply()

    async def reply(self) -> PageReply:
        async with self._lock:
            if time.monotonic() - self._made_at >= _LEAST_AGE_SECONDS:
                self._look()
                self._text = await asyncio.to_thread(generate_latest, self._registry)
                self._made_at = time.monotonic()
        return PageReply(HTTPStatus.OK, self._text, CONTENT_TYPE_PLAIN_0_0_4)


class BoundedNames:
    """The first names that come, up to a limit; those after it are `other`, so that no stranger
    makes metrics without end."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._names: set[str] = set()

    def label(self, name: str) -> str:
        if name not in self._names:
            if len(self._names) >= self._most:
                return OTHER
            self._names.add(name)
        return name
