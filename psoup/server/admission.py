"""Which calls a server takes: so many at once, and so many that stay.

gRPC queues what it has not handed over yet, and drops what the queue can't hold with a bare
CANCELLED, which tells a client nothing. So the queue is given room for everything, every call is
taken from it at once, and a call too many is refused before a byte of its message is read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import grpc

from psoup.server.errors import Overloaded
from psoup.server.services import Context, abort
from psoup.server.settings import Settings

# Calls gRPC holds until they are looked at, some kilobytes each. By default it drops
# some beyond 1,000, all beyond 3,000, and whatever waits for half a minute.
_QUEUED = 1 << 17
QUEUE_OPTIONS = [
    ("grpc.server.max_pending_requests", _QUEUED),
    ("grpc.server.max_pending_requests_hard_limit", _QUEUED),
    ("grpc.server_max_unrequested_time_in_server", 1 << 20),
]

_WATCHES = frozenset({"/psoup.v1.Psoup/Watch", "/grpc.health.v1.Health/Watch"})
_ALWAYS = frozenset({"/grpc.health.v1.Health/Check"})

Handler = Any  # grpc.RpcMethodHandler: its attributes depend on the kind of call
Find = Callable[[grpc.HandlerCallDetails], Awaitable[Handler]]


class Gate:
    """Counts the calls of one kind that are under way, up to `limit`. For the event loop only."""

    def __init__(self, limit: int, name: str, flag: str, retry_after: int) -> None:
        self._limit = limit
        self._under_way = 0
        self._refusal = Overloaded(
            f"this server has {limit:,} {name} under way, and takes no more",
            retry_after=timedelta(seconds=retry_after),
            expected=f"at most {limit} {name} at once ({flag})",
            hint="try again after a while, or another server of the store",
        )

    def __enter__(self) -> None:
        """Raises Overloaded where there is no room."""
        if self._under_way >= self._limit:
            raise self._refusal
        self._under_way += 1

    def __exit__(self, *_: object) -> None:
        self._under_way -= 1


class Admission(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Lets calls in through the gate of their kind; a health check needs none."""

    def __init__(self, settings: Settings, store_id: str) -> None:
        self._store_id = store_id
        self._calls = Gate(settings.calls, "calls", "--calls", 1)
        self._watches = Gate(settings.watches, "watches", "--watches", 10)

    async def intercept_service(
        self, continuation: Find, details: grpc.HandlerCallDetails
    ) -> Handler:
        handler = await continuation(details)
        method = details.method
        if handler is None or method in _ALWAYS:
            return handler
        gate = self._watches if method in _WATCHES else self._calls
        if handler.response_streaming:
            return self._streaming(handler, gate)
        return self._single(handler, gate)

    # A handler of streams is called before a message is read, so a call counts from its first
    # moment to its last, and one that is refused costs no more than its headers.

    def _single(self, handler: Handler, gate: Gate) -> Handler:
        async def call(requests: AsyncIterator[Any], context: Context) -> Any:
            try:
                with gate:
                    if handler.stream_unary is not None:
                        return await handler.stream_unary(requests, context)
                    return await handler.unary_unary(await _only(requests, context), context)
            except Overloaded as error:
                await abort(context, error, self._store_id)

        return grpc.stream_unary_rpc_method_handler(
            call, handler.request_deserializer, handler.response_serializer
        )

    def _streaming(self, handler: Handler, gate: Gate) -> Handler:
        async def call(requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
            try:
                with gate:
                    if handler.stream_stream is not None:
                        responses = handler.stream_stream(requests, context)
                    else:
                        request = await _only(requests, context)
                        responses = handler.unary_stream(request, context)
                    async for response in responses:
                        yield response
            except Overloaded as error:
                await abort(context, error, self._store_id)

        return grpc.stream_stream_rpc_method_handler(
            call, handler.request_deserializer, handler.response_serializer
        )


async def _only(requests: AsyncIterator[Any], context: Context) -> Any:
    """The one message of a call whose request is no stream."""
    async for request in requests:
        return request
    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call came without a request")
