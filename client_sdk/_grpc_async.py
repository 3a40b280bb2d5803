"""The network for `AsyncClient`: a grpc.aio channel."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import grpc
from google.protobuf.message import Message

from client_sdk._exceptions import ConnectionFailed, ServerError
from client_sdk._failures import from_rpc
from client_sdk._grpc_sync import channel_options
from psoup.v1 import psoup_pb2_grpc

_END: Any = vars(grpc.aio)["EOF"]  # the stubs leave it out


class AsyncGrpcTransport:
    """The channel is made by the first call, so that it belongs to the loop that is running."""

    def __init__(self, target: str, max_message_bytes: int) -> None:
        self._target = target
        self._options = channel_options(max_message_bytes)
        self._channel: Any = None
        self._stub: Any = None

    def _method(self, name: str) -> Any:
        if self._channel is None:
            self._channel = grpc.aio.insecure_channel(self._target, self._options)
            self._stub = psoup_pb2_grpc.PsoupStub(self._channel)
        return getattr(self._stub, name)

    async def async_unary(self, method: str, request: Message, timeout: float | None) -> Any:
        try:
            return await self._method(method)(request, timeout=timeout)
        except grpc.RpcError as error:
            raise from_rpc(error, self._target) from None

    async def async_stream(
        self, method: str, request: Message, timeout: float | None
    ) -> AsyncGenerator[Any, None]:
        call = self._method(method)(request, timeout=timeout)
        try:
            async for message in call:
                yield message
        except grpc.RpcError as error:
            raise from_rpc(error, self._target) from None
        finally:
            call.cancel()

    async def async_duplex(self, method: str, timeout: float | None) -> AsyncGrpcDuplex:
        return AsyncGrpcDuplex(self._method(method)(timeout=timeout), self._target)

    async def async_close(self) -> None:
        if self._channel is not None:
            await self._channel.close()


class AsyncGrpcDuplex:
    def __init__(self, call: Any, target: str) -> None:
        self._call = call
        self._target = target

    async def write(self, request: Message) -> None:
        """A call that has ended can't be written to; grpc.aio then no longer says why it ended."""
        try:
            await self._call.write(request)
        except (grpc.RpcError, asyncio.InvalidStateError):
            raise ConnectionFailed(f"the line to {self._target} was cut") from None

    async def read(self) -> Any:
        try:
            response = await self._call.read()
        except grpc.RpcError as error:
            raise from_rpc(error, self._target) from None
        if response is _END:
            raise ServerError("the server ended the call before it had answered")
        return response

    async def finish(self) -> None:
        try:
            await self._call.done_writing()
            if await self._call.read() is not _END:
                raise ServerError("the server answered more requests than it was sent")
        except grpc.RpcError as error:
            raise from_rpc(error, self._target) from None

    async def cancel(self) -> None:
        self._call.cancel()
