"""Transports: the ports a client talks through, and gRPC behind them. They raise PsoupErrors."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import Any, NamedTuple, Protocol

import grpc
from google.protobuf.message import Message

from client_sdk._credentials import Credentials, Metadata, Shown, metadata
from client_sdk._exceptions import ConnectionFailed, PsoupError, ServerError, Unauthenticated
from client_sdk._grpc.channels import Channels, HeldChannel, channel_options, from_rpc
from client_sdk._grpc.stubs import METADATA, SummingStub
from client_sdk._grpc.tls_mismatch import explain_mismatch, may_be_mismatch


class Duplex(Protocol):
    """A duplex is a PublishStream under way."""

    def write(self, request: Message) -> None: ...

    def read(self) -> Any:
        """Waits for the next response. Raises ServerError where the server ended the call."""

    def finish(self) -> None:
        """Says that no more requests follow; returns when the server has ended the call."""

    def cancel(self) -> None:
        """Ends the call now, whatever is under way; never fails, may be called twice."""


class AsyncDuplex(Protocol):
    async def write(self, request: Message) -> None: ...

    async def read(self) -> Any: ...

    async def finish(self) -> None: ...

    async def cancel(self) -> None: ...


class Transport(Protocol):
    """`Client` needs this. `method` is a name of service psoup.v1.Psoup; timeouts are seconds."""

    def unary(self, method: str, request: Message, timeout: float | None) -> Any: ...

    def stream(
        self, method: str, request: Message, timeout: float | None
    ) -> Generator[Any, None, None]:
        """Yields the responses in order. Closing the generator cancels the call."""

    def duplex(self, method: str, timeout: float | None) -> Duplex: ...

    def close(self) -> None: ...


class AsyncTransport(Protocol):
    """`AsyncClient` needs this; it is `Transport` with `await`."""

    async def async_unary(self, method: str, request: Message, timeout: float | None) -> Any: ...

    def async_stream(
        self, method: str, request: Message, timeout: float | None
    ) -> AsyncGenerator[Any, None]: ...

    async def async_duplex(self, method: str, timeout: float | None) -> AsyncDuplex: ...

    async def async_close(self) -> None: ...


class Line(NamedTuple):
    """A line for one call: the stub, and the metadata that shows who calls."""

    stub: Any
    metadata: Metadata | None

    def call(self, method: str, *request: Any, timeout: float | None) -> Any:
        shown = (METADATA, *(self.metadata or ()))
        return getattr(self.stub, method)(*request, timeout=timeout, metadata=shown)


class GrpcTransport:
    def __init__(
        self, target: str, max_message_bytes: int, credentials: Credentials | None = None
    ) -> None:
        """Raises ValueError where a token would go to another machine in plain text."""
        self._target = target
        self._shown = Shown(credentials, target)
        self._options = [*channel_options(max_message_bytes), *self._shown.options()]
        self._channels = Channels(self._make, self._shown.files)

    def _make(self) -> tuple[Any, Any]:
        credentials = self._shown.channel_credentials()
        if credentials is None:
            channel = grpc.insecure_channel(self._target, self._options)
        else:
            channel = grpc.secure_channel(self._target, credentials, self._options)
        return channel, SummingStub(channel)

    def unary(self, method: str, request: Message, timeout: float | None) -> Any:
        with self.calling() as line:
            return line.call(method, request, timeout=timeout)

    def stream(
        self, method: str, request: Message, timeout: float | None
    ) -> Generator[Any, None, None]:
        with self.calling() as line:
            call = line.call(method, request, timeout=timeout)
            try:
                yield from call
            finally:
                call.cancel()

    def duplex(self, method: str, timeout: float | None) -> GrpcDuplex:
        return GrpcDuplex(self, method, timeout)

    def close(self) -> None:
        for channel in self._channels.close():
            channel.close()

    @contextmanager
    def calling(self) -> Iterator[Line]:
        """Gives the line for one call, which ends with the block."""
        token = self._shown.token()
        held, failure = self._channels.take(), None
        try:
            yield Line(held.stub, metadata(token))
        except grpc.RpcError as error:
            failure = self._failed(error, held, token)
            raise failure from None
        finally:
            unused = self._channels.give_back(held, failure)
            if unused is not None:
                unused.close()

    def _failed(self, error: grpc.RpcError, held: HeldChannel, token: str | None) -> PsoupError:
        """Makes the error of a call. One that another thread ended by closing the client is not
        made again.
        """
        if self._channels.closed:
            return ConnectionFailed("the client was closed meanwhile", code="FAILED_PRECONDITION")
        failure = from_rpc(error, self._target)
        if may_be_mismatch(failure, self._target):
            return explain_mismatch(failure, self._target, self._shown.given.encrypts)
        if isinstance(failure, Unauthenticated):
            failure.renewed = self._shown.is_renewed(held.files, token, self._shown.token())
        return failure


class GrpcDuplex:
    """A duplex of grpc, whose own thread takes the requests from a queue; None ends them."""

    def __init__(self, transport: GrpcTransport, method: str, timeout: float | None) -> None:
        self._held = ExitStack()
        self._requests: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        line = self._held.enter_context(transport.calling())
        self._call = line.call(method, iter(self._requests.get, None), timeout=timeout)

    def write(self, request: Message) -> None:
        self._requests.put(request)

    def read(self) -> Any:
        with self._ending():
            try:
                return next(self._call)
            except StopIteration:
                raise ServerError("the server ended the call before it had answered") from None

    def finish(self) -> None:
        self._requests.put(None)
        with self._ending():
            for _ in self._call:
                raise ServerError("the server answered more requests than it was sent")
        self._held.close()

    def cancel(self) -> None:
        self._requests.put(None)
        self._call.cancel()
        self._held.close()

    @contextmanager
    def _ending(self) -> Iterator[None]:
        """Ends the call, and tells its channel, where something is raised inside."""
        try:
            yield
        except BaseException as error:
            self._held.__exit__(type(error), error, error.__traceback__)
            raise


_END: Any = vars(grpc.aio)["EOF"]  # the stubs leave it out


class AsyncGrpcTransport:
    """A transport of grpc.aio. The first call makes the channel, so that it belongs to the running
    loop.
    """

    def __init__(
        self, target: str, max_message_bytes: int, credentials: Credentials | None = None
    ) -> None:
        """Raises ValueError where a token would go to another machine in plain text."""
        self._target = target
        self._shown = Shown(credentials, target)
        self._options = [*channel_options(max_message_bytes), *self._shown.options()]
        self._channels = Channels(self._make, self._shown.files)

    def _make(self) -> tuple[Any, Any]:
        credentials = self._shown.channel_credentials()
        if credentials is None:
            channel = grpc.aio.insecure_channel(self._target, self._options)
        else:
            channel = grpc.aio.secure_channel(self._target, credentials, self._options)
        return channel, SummingStub(channel)

    async def async_unary(self, method: str, request: Message, timeout: float | None) -> Any:
        async with self.calling() as line:
            return await line.call(method, request, timeout=timeout)

    async def async_stream(
        self, method: str, request: Message, timeout: float | None
    ) -> AsyncGenerator[Any, None]:
        async with self.calling() as line:
            call = line.call(method, request, timeout=timeout)
            try:
                async for message in call:
                    yield message
            finally:
                call.cancel()

    async def async_duplex(self, method: str, timeout: float | None) -> AsyncGrpcDuplex:
        held = AsyncExitStack()
        line = await held.enter_async_context(self.calling())
        return AsyncGrpcDuplex(line.call(method, timeout=timeout), held, self._target)

    async def async_close(self) -> None:
        for channel in self._channels.close():
            await channel.close()

    @asynccontextmanager
    async def calling(self) -> AsyncIterator[Line]:
        """Gives the line for one call, which ends with the block."""
        token = await self._shown.async_token()
        held, failure = self._channels.take(), None
        try:
            yield Line(held.stub, metadata(token))
        except grpc.RpcError as error:
            failure = from_rpc(error, self._target)
            if may_be_mismatch(failure, self._target):
                encrypts = self._shown.given.encrypts
                failure = await asyncio.to_thread(explain_mismatch, failure, self._target, encrypts)
            if isinstance(failure, Unauthenticated):
                now = await self._shown.async_token()
                failure.renewed = self._shown.is_renewed(held.files, token, now)
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
        """Writes a request. A call that has ended can't be written to, and grpc.aio no longer says
        why.
        """
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
        """Ends the call, and tells its channel, where something is raised inside."""
        try:
            yield
        except BaseException as error:
            await self._held.__aexit__(type(error), error, error.__traceback__)
            raise
