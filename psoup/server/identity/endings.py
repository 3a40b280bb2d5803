"""Streams that stay open end when what their caller has shown expires, or is revoked.

Once a second every credential that has a stream open is looked at, not every stream. A stream is
ended while it waits for its next message; one whose client does not read gets nothing new anyway.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import TypeVar

from psoup.access.principal import Principal
from psoup.errors import Unauthenticated
from psoup.server.identity.authenticator import Authenticator

log = logging.getLogger("psoup.server")

T = TypeVar("T")

LOOK = 1.0


class _Stream:
    """A stream of responses: `end` makes its next one, or the wait for that, an error."""

    def __init__(self) -> None:
        self.ended: Unauthenticated | None = None
        self._waiting: asyncio.Task[object] | None = None

    def end(self, why: Unauthenticated) -> None:
        self.ended = why
        if self._waiting is not None:
            self._waiting.cancel()

    async def next(self, responses: AsyncIterator[T]) -> T:
        """Raise StopAsyncIteration after the last, and Unauthenticated once it was ended."""
        task = self._waiting = asyncio.current_task()
        assert task is not None
        try:
            if self.ended is not None:
                raise self.ended
            return await anext(responses)
        except asyncio.CancelledError:
            # A call that its client has cancelled too stays cancelled.
            if self.ended is None or task.uncancel():
                raise
            raise self.ended from None
        finally:
            self._waiting = None


class Endings:
    """The open streams, by what their callers have shown."""

    def __init__(self, authenticator: Callable[[], Authenticator]) -> None:
        self._authenticator = authenticator
        self._open: dict[str, tuple[Principal, set[_Stream]]] = {}

    async def until_ended(
        self, caller: Principal, responses: AsyncIterator[T]
    ) -> AsyncGenerator[T, None]:
        """Yield the responses, for as long as the caller is one. Raise Unauthenticated."""
        stream = _Stream()
        _, streams = self._open.setdefault(caller.credential, (caller, set()))
        streams.add(stream)
        try:
            while True:
                try:
                    response = await stream.next(responses)
                except StopAsyncIteration:
                    return
                yield response
        finally:
            streams.discard(stream)
            if not streams:
                self._open.pop(caller.credential, None)

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(LOOK)
            self.look()

    def look(self) -> None:
        """End the streams whose credential has ended."""
        authenticator = self._authenticator()
        for caller, streams in list(self._open.values()):
            try:
                authenticator.check(caller)
            except Unauthenticated as error:
                for stream in streams:
                    stream.end(error)
            except Exception:
                # The others are looked at all the same, and this one again in a second.
                log.exception("can't check whether %s is still valid", caller.credential)
