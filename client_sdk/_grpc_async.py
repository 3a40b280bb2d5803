"""The network for `AsyncClient`: a grpc.aio channel."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import grpc
from google.protobuf.message import Message

from client_sdk._channels import Channels, channel_options
from client_sdk._exceptions import ConnectionFailed, ServerError
from client_sdk._failures import from_rpc
from psoup.v1 import psoup_pb2_grpc

_END: Any = vars(grpc.aio)["EOF"]  # the stubs leave it out


class AsyncGrpcTransport:
    """A channel is made by the first call, so that it belongs to the loop that is running."""

    def __init__(self, target: str, max_message_bytes: int) -> None:
        self._target = target
        self._options = channel_options(max_message_bytes)
        self._channels = Channels(self._make)

    def _make(self) -> tuple[Any, Any]:
        channel = grpc.aio.insecure_channel(self._target, self._options)
        return channel, psoup_pb2_grpc.PsoupStub(channel)

    async def async_unary(self, method: str, request: Message, timeout: float | None) -> Any:
        async with self.calling() as stub:
            return await getattr(stub, method)(request, timeout=timeout)

    async def async_stream(
        self, method: str, request: Message, timeout: float | None
    ) -> AsyncGenerator[Any, None]:
        async with self.calling() as stub:
            call = getattr(stub, method)(request, timeout=timeout)
            try:
                async for message in call:
                    yield message
            finally:
                call.cancel()

    async def async_duplex(self, method: str, timeout: float | None) -> AsyncGrpcDuplex:
        held = AsyncExitStack()
        stub = await held.enter_async_context(self.calling())
        return AsyncGrpcDuplex(getattr(stub, method)(timeout=timeout), held, self._target)

    async def async_close(self) -> None:
        for channel in self._channels.close():
            await channel.close()

    @asynccontextmanager
    async def calling(self) -> AsyncIterator[Any]:
        """The stub for one call, which ends with the block."""
        held, failure = self._channels.take(), None
        try:
            yield held.stub
        except grpc.RpcError as error:
            failure = from_rpc(error, self._target)
            raise failure from None
        finally:
            unused = self._channels.give_back(held, failure)
            if unused is not None:
                await unused.close()


class AsyncGrpcDuplex:
    def __init__(self, call: Any, held: AsyncExitStack, target: str) -> None:
        self._call = call
        self._held = held
        self._target = target

    async def write(self, request: Message) -> None:
        """A call that has ended can't be written to; grpc.aio then no longer says why it ended."""
        try:
            await self._call.write(request)
        except (grpc.RpcError, asyncio.InvalidStateError):
            raise ConnectionFailed(f"the line to {self._target} was cut") from None

    async def read(self) -> Any:
        async with self._ending():
            response = await self._call.read()
            if response is _END:
                raise ServerError("the server ended the call before it had answered")
            return response

    async def finish(self) -> None:
        async with self._ending():
            await self._call.done_writing()
            if await self._call.read() is not _END:
                raise ServerError("the server answered more requests than it was sent")
        await self._held.aclose()

    async def cancel(self) -> None:
        self._call.cancel()
        await self._held.aclose()

    @asynccontextmanager
    async def _ending(self) -> AsyncIterator[None]:
        """What is raised inside ends the call, and is told to its channel."""
        try:
            yield
        except BaseException as error:
            await self._held.__aexit__(type(error), error, error.__traceback__)
            raise
