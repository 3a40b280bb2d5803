"""PublishStream: many batches in flight, accepted and answered in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

from psoup.server.core import Core
from psoup.server.errors import NoSuchStream
from psoup.server.publishing import accepted, response
from psoup.server.shares import CALLER
from psoup.v1 import psoup_pb2 as pb
from psoup.write.draft import Chain, Stale
from psoup.write.streams import Published

_IN_FLIGHT = 64

_Item = asyncio.Future[Published] | Exception | None


async def publish_stream(
    core: Core, requests: AsyncIterator[pb.PublishRequest]
) -> AsyncIterator[pb.PublishResponse]:
    """Raises the error of the first batch that is refused; no later one is taken."""
    queue: asyncio.Queue[_Item] = asyncio.Queue(_IN_FLIGHT)
    reader = asyncio.create_task(_enqueue(core, requests, queue))
    try:
        while (item := await queue.get()) is not None:
            if isinstance(item, Exception):
                raise item
            try:
                yield response(core, await item)
            except Stale:
                raise NoSuchStream(
                    "the stream was dropped during the call", hint="publish to another stream"
                ) from None
    finally:
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)
        _forget(queue)


async def _enqueue(
    core: Core, requests: AsyncIterator[pb.PublishRequest], queue: asyncio.Queue[_Item]
) -> None:
    chain = Chain()
    try:
        async for request in requests:
            CALLER.set(replace(CALLER.get(), tenant=request.tenant))
            batch = await accepted(core, request, chain)
            await queue.put(core.appender.enqueue(batch))
    except Exception as error:
        await queue.put(error)
    await queue.put(None)


def _forget(queue: asyncio.Queue[_Item]) -> None:
    """Nobody will ask after these: keeps their errors from being reported as lost."""
    while not queue.empty():
        item = queue.get_nowait()
        if isinstance(item, asyncio.Future):
            item.add_done_callback(lambda done: done.cancelled() or done.exception())
