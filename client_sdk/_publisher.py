"""Publishers: they number what they publish, so that nothing is published twice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from client_sdk import _publishing
from client_sdk._models import Published
from client_sdk._operations import deletes
from client_sdk._publishing import Numbering, Progress, PublishedMany
from client_sdk._rows import Rows
from client_sdk._session import Session

Run = Callable[[Any], Any]
AsyncRun = Callable[[Any], Awaitable[Any]]


class Publisher:
    """Numbers its batches from `next_sequence` on. One thread at a time.

    The store takes each number once, for ever. So after an error, whatever it was, publish the
    same rows again: the number is kept until the store has acknowledged it. A program that starts
    over publishes everything from sequence 1; what is there already is acknowledged as duplicate.
    """

    def __init__(self, run: Run, session: Session, numbering: Numbering) -> None:
        self._run = run
        self._session = session
        self._numbering = numbering

    @property
    def name(self) -> str:
        return self._numbering.publisher

    @property
    def next_sequence(self) -> int:
        """The first number not acknowledged yet."""
        return self._numbering.next_sequence

    def publish(self, stream: str, rows: Rows) -> Published:
        """One batch, whole or not at all."""
        published: Published = self._run(
            _publishing.publish(self._session, stream, rows, self._numbering)
        )
        return published

    def publish_many(
        self, stream: str, batches: Iterable[Rows], *, progress: Progress | None = None
    ) -> PublishedMany:
        """Every batch in order, several in flight, large ones cut to what the server takes.

        `progress` is called for each acknowledged batch. When this raises, what had been
        acknowledged stays, and `next_sequence` is the first that was not.
        """
        many: PublishedMany = self._run(
            _publishing.publish_many(self._session, stream, batches, self._numbering, progress)
        )
        return many

    def delete(self, stream: str, keys: Iterable[Mapping[str, Any]]) -> Published:
        """One batch that deletes keys of a keyed stream, given as for `Client.delete`."""
        return self.publish(stream, deletes(keys))

    def heartbeat(self, stream: str, instant: datetime) -> Published:
        published: Published = self._run(
            _publishing.heartbeat(self._session, stream, instant, self._numbering)
        )
        return published


class AsyncPublisher:
    """The same for `AsyncClient`; one task at a time."""

    def __init__(self, run: AsyncRun, session: Session, numbering: Numbering) -> None:
        self._run = run
        self._session = session
        self._numbering = numbering

    @property
    def name(self) -> str:
        return self._numbering.publisher

    @property
    def next_sequence(self) -> int:
        return self._numbering.next_sequence

    async def publish(self, stream: str, rows: Rows) -> Published:
        published: Published = await self._run(
            _publishing.publish(self._session, stream, rows, self._numbering)
        )
        return published

    async def publish_many(
        self, stream: str, batches: Iterable[Rows], *, progress: Progress | None = None
    ) -> PublishedMany:
        many: PublishedMany = await self._run(
            _publishing.publish_many(self._session, stream, batches, self._numbering, progress)
        )
        return many

    async def delete(self, stream: str, keys: Iterable[Mapping[str, Any]]) -> Published:
        return await self.publish(stream, deletes(keys))

    async def heartbeat(self, stream: str, instant: datetime) -> Published:
        published: Published = await self._run(
            _publishing.heartbeat(self._session, stream, instant, self._numbering)
        )
        return published
