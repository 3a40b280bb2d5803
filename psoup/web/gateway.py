"""The way of a request to the handlers of the service: through the Admission that gRPC's calls go
through, so that callers, gates, quotas and memory are the same for both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any

from google.protobuf.message import Message
from google.rpc import status_pb2

from psoup.errors import OutOfTime
from psoup.server.admission import END_OF_MESSAGES, Admission, OtherDoor
from psoup.server.call import Call
from psoup.server.core import Core
from psoup.web.exchange import Request
from psoup.web.problems import RefusedCall
from psoup.web.session import Sessions

_SERVICE = "/psoup.v1.Psoup/"
# Headers of HTTP that are of no concern to authentication, or mean something else in gRPC.
_OWN_HEADERS = "psoup-"

# Makes the message of a call, once its caller is known.
Make = Callable[[Call], Awaitable[Message]]


class WebContext(OtherDoor):
    """The context of one request, with the methods of gRPC's that a server uses."""

    def __init__(
        self,
        metadata: list[tuple[str, str]],
        peer: str,
        seconds: float | None = None,
        make: Make | None = None,
    ) -> None:
        self._metadata = metadata
        self._peer = peer
        self._seconds = seconds
        self._make = make
        self.status: status_pb2.Status | None = None

    def invocation_metadata(self) -> list[tuple[str, str]]:
        return self._metadata

    def peer(self) -> str:
        return self._peer

    def auth_context(self) -> Mapping[str, Any]:
        return {}

    def time_remaining(self) -> float | None:
        return self._seconds

    async def message(self, call: Call) -> Any:
        if self._make is None:
            return END_OF_MESSAGES
        make, self._make = self._make, None
        return (await make(call)).SerializeToString()

    def set_code(self, code: object) -> None:
        """Do nothing: the status says it."""

    def set_details(self, details: str) -> None:
        """Do nothing: the status says it."""

    def set_trailing_metadata(self, metadata: tuple[tuple[str, bytes], ...]) -> None:
        ((_, content),) = metadata
        self.status = status_pb2.Status.FromString(content)


class Gateway:
    """Calls of the service for requests of HTTP."""

    def __init__(self, core: Core, admission: Admission, handlers: Mapping[str, Any]) -> None:
        self.core = core
        self.sessions = Sessions(core)
        self.identify = admission.identify
        self._handlers = {
            rpc: admission.guarded(_SERVICE + rpc, handler) for rpc, handler in handlers.items()
        }

    def bare_context(self, request: Request) -> Any:
        """Return the context of a request that is no call, to identify who makes it."""
        return WebContext(*_origin(request))

    async def unary(self, request: Request, rpc: str, make: Make) -> Any:
        """Return the response of an RPC. Raise RefusedCall."""
        context, seconds = self._context(request, make)
        try:
            async with asyncio.timeout(seconds):
                response = await self._handlers[rpc].stream_unary(None, context)
        except TimeoutError:
            raise RefusedCall.by(_out_of_time(), self.core.store.id) from None
        if context.status is not None:
            raise RefusedCall(context.status)
        return response

    async def stream(self, request: Request, rpc: str, make: Make) -> AsyncGenerator[Any, None]:
        """Yield the responses of an RPC. Raise RefusedCall, after some of them perhaps."""
        context, seconds = self._context(request, make)
        responses = self._handlers[rpc].stream_stream(None, context)
        async with aclosing(responses):
            try:
                async with asyncio.timeout(seconds) as limit:
                    async for response in responses:
                        # The deadline is for the answer, not for a client that takes long to read.
                        limit.reschedule(None)
                        yield response
            except TimeoutError:
                raise RefusedCall.by(_out_of_time(), self.core.store.id) from None
        if context.status is not None:
            raise RefusedCall(context.status)

    def _context(self, request: Request, make: Make) -> tuple[WebContext, float | None]:
        self.core.precedence.arrived()
        seconds = request.parameters.seconds("timeout")
        return WebContext(*_origin(request), seconds, make), seconds


def _origin(request: Request) -> tuple[list[tuple[str, str]], str]:
    """Return the metadata of a request, and the name of its peer."""
    metadata = [header for header in request.header_list if not header[0].startswith(_OWN_HEADERS)]
    host, port = request.client
    return metadata, f"http:{host}:{port}"


def _out_of_time() -> OutOfTime:
    return OutOfTime(
        "the request took longer than its timeout", hint="give it more time, or ask for less"
    )
