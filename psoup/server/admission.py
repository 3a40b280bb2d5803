"""Which calls a server takes: so many at once, and so many that stay.

gRPC queues what it has not handed over yet, and drops what the queue can't hold with a bare
CANCELLED, which tells a client nothing. So the queue is given room for everything, every call is
taken from it at once, and a call too many is refused before a byte of its message is read. So is a
call of somebody who does not show who they are, but for a health check.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from datetime import timedelta
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from psoup.access.principal import Principal
from psoup.errors import BadRequest, Overloaded
from psoup.server.core import Core
from psoup.server.identity import identify
from psoup.server.memory import HOLD, SMALL
from psoup.server.precedence import TAKEN, sending
from psoup.server.status_codes import FAMILIES, Context, abort
from psoup.v1 import psoup_pb2 as pb

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
# Calls of anybody.
_OPEN = "/grpc.health.v1.Health/"
# Calls that stay: they end with what their caller has shown, also where that was nothing.
_STAYING = frozenset({"/psoup.v1.Psoup/Watch", "/psoup.v1.Psoup/PublishStream"})

Handler = Any  # grpc.RpcMethodHandler: its attributes depend on the kind of call
Find = Callable[[grpc.HandlerCallDetails], Awaitable[Handler]]


class Gate:
    """Counts the calls of one kind that are under way, up to `limit`. For the event loop only.

    Three quarters of them may be of any tenant. The last quarter is shared by those tenants that
    have few, so that there is a place for them whatever one of them does. A call without a name of
    its tenant counts for nobody.
    """

    def __init__(self, limit: int, name: str, flag: str, retry_after: int) -> None:
        self._limit = limit
        self._under_way = 0
        self._of_tenants: Counter[str] = Counter()
        self._refusal = Overloaded(
            f"this server has {limit:,} {name} under way, and takes no more",
            retry_after=timedelta(seconds=retry_after),
            expected=f"at most {limit} {name} at once ({flag})",
            hint="try again after a while, or another server of the store",
        )

    @contextmanager
    def entered(self, tenant: str) -> Iterator[None]:
        """Counts a call while it is under way. Raises Overloaded where there is no room."""
        if self._under_way >= self._limit or (tenant and not self._has_place(tenant)):
            raise self._refusal
        self._under_way += 1
        self._of_tenants[tenant] += 1
        try:
            yield
        finally:
            self._under_way -= 1
            self._of_tenants[tenant] -= 1
            if not self._of_tenants[tenant]:
                del self._of_tenants[tenant]

    def _has_place(self, tenant: str) -> bool:
        reserved = self._limit // 4
        if self._under_way < self._limit - reserved:
            return True
        others = len(self._of_tenants) - (tenant in self._of_tenants)
        return self._of_tenants[tenant] < max(1, reserved // (others + 1))


class Admission(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Lets calls in through the gate of their kind, and reads their messages where there is room.

    A health check needs neither, and no caller who is known.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._room = core.room
        self._precedence = core.precedence
        self._store_id = core.store.id
        self._calls = Gate(core.settings.calls, "calls", "--calls", 1)
        self._watches = Gate(core.settings.watches, "watches", "--watches", 10)
        self._guarded: dict[str, Handler] = {}

    async def intercept_service(
        self, continuation: Find, details: grpc.HandlerCallDetails
    ) -> Handler:
        self._precedence.arrived()
        handler = await continuation(details)
        method = details.method
        if handler is None or method in _ALWAYS:
            return handler
        if method not in self._guarded:
            gate = self._watches if method in _WATCHES else self._calls
            guard = self._streaming if handler.response_streaming else self._single
            self._guarded[method] = guard(handler, method, gate)
        return self._guarded[method]

    # A handler of streams is called before a message is read, so a call counts from its first
    # moment to its last, and one that is refused costs no more than its headers. It gets messages
    # as bytes, so that they are parsed where there is room.

    def _single(self, handler: Handler, method: str, gate: Gate) -> Handler:
        async def call(messages: AsyncIterator[bytes], context: Context) -> Any:
            try:
                whose = _tenant(await self._identify(method, context))
                with gate.entered(whose):
                    requests = self._requests(messages, method, handler, whose, context.peer())
                    async with aclosing(requests):
                        return await handler.unary_unary(await anext(requests), context)
            except FAMILIES as error:
                await abort(context, error, self._store_id)

        return grpc.stream_unary_rpc_method_handler(call, None, handler.response_serializer)

    def _streaming(self, handler: Handler, method: str, gate: Gate) -> Handler:
        async def call(messages: AsyncIterator[bytes], context: Context) -> AsyncIterator[Any]:
            try:
                caller = await self._identify(method, context)
                whose = _tenant(caller)
                with gate.entered(whose):
                    requests = self._requests(messages, method, handler, whose, context.peer())
                    async with aclosing(requests):
                        if handler.stream_stream is not None:
                            responses = handler.stream_stream(requests, context)
                        else:
                            responses = handler.unary_stream(await anext(requests), context)
                        if inspect.isawaitable(responses):
                            # A handler that writes to the context by itself: Health/Watch.
                            await responses
                            return
                        # They end before the requests, which they may be reading.
                        async with (
                            aclosing(responses),
                            aclosing(self._until_ended(caller, method, responses)) as shown,
                        ):
                            async for response in shown:
                                yield response
                                sending()
            except FAMILIES as error:
                await abort(context, error, self._store_id)

        return grpc.stream_stream_rpc_method_handler(call, None, handler.response_serializer)

    def _until_ended(
        self, caller: Principal | None, method: str, responses: AsyncGenerator[Any, None]
    ) -> AsyncGenerator[Any, None]:
        """The responses, for as long as what the caller has shown holds."""
        if caller is None or (caller.anyone and method not in _STAYING):
            return responses
        return self._core.endings.until_ended(caller, responses)

    async def _identify(self, method: str, context: Context) -> Principal | None:
        """The caller; None where anybody may call. Raises Unauthenticated."""
        if method.startswith(_OPEN):
            return None
        return await identify(self._core.authenticator, context)

    async def _requests(
        self,
        messages: AsyncIterator[bytes],
        method: str,
        handler: Handler,
        tenant: str,
        peer: str,
    ) -> AsyncGenerator[Any, None]:
        """The requests of a call, each with a hold until the next one is asked for, or the call
        ends. Those that wait have turns by tenant, or by connection where that is not known.
        Raises Overloaded, BadRequest."""
        count = 0
        async for message in messages:
            taken = await self._precedence.turn(tenant, peer, len(message))
            hold = self._room.hold(tenant or peer, taken.end)
            HOLD.set(hold)
            TAKEN.set(taken)
            try:
                parsing, kept = weight(method, message)
                if parsing > SMALL:
                    await hold.reserve(parsing)
                request = _parsed(handler, message)
                hold.shrink(kept)
                count += 1
                if method in _WATCHES:
                    taken.end()
                yield request
            finally:
                hold.release()
        if not count and not handler.request_streaming:
            raise BadRequest("the call came without a request")


def _parsed(handler: Handler, message: bytes) -> Any:
    try:
        return handler.request_deserializer(message)
    except DecodeError:
        raise BadRequest("a message that is none of psoup.v1") from None


# ---- how much memory a message will take

# A typed value takes two bytes and more on the wire, and a hundred as an object on its way to a
# column. What is left of other requests, once they are parsed, is about as large as the message.
_PARSED = 40
_KEPT = 4

# More fields than any request has.
_MOST_FIELDS = 64

_ARROW = {
    "/psoup.v1.Psoup/Publish": pb.PublishRequest.ARROW_FIELD_NUMBER,
    "/psoup.v1.Psoup/PublishStream": pb.PublishRequest.ARROW_FIELD_NUMBER,
    "/psoup.v1.Psoup/RegisterMany": pb.RegisterManyRequest.ARROW_FIELD_NUMBER,
}


def _tenant(caller: Principal | None) -> str:
    """The tenant of a caller who has shown who they are; else empty."""
    return "" if caller is None or caller.anyone else caller.tenant


def weight(method: str, message: bytes) -> tuple[int, int]:
    """The bytes a message takes while it is parsed, and once it is.

    An Arrow batch weighs nothing here: it stays bytes, and is weighed when it is unpacked.
    """
    number = _ARROW.get(method)
    if number is None:
        return _PARSED * len(message), _KEPT * len(message)
    if _has(message, number):
        return 0, 0
    return _PARSED * len(message), _PARSED * len(message)


def _has(message: bytes, number: int) -> bool:
    """Tells whether one of the first fields of a message has that number, which is one of bytes."""
    at, wanted = 0, number << 3 | 2
    try:
        for _ in range(_MOST_FIELDS):
            tag, at = _varint(message, at)
            if tag == wanted:
                return True
            size, after = _varint(message, at)
            at = {0: after, 1: at + 8, 2: after + size, 5: at + 4}[tag & 7]
    except (IndexError, KeyError):
        pass
    return False


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """The number there, and where it ends."""
    value = shift = 0
    while message[at] & 0x80:
        value |= (message[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return value | message[at] << shift, at + 1
