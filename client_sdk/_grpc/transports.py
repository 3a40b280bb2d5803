"""Transports: the interface through which a client makes calls, and its gRPC implementations.

Transports raise PsoupErrors.
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import Any, NamedTuple, Protocol

import grpc
from google.protobuf.message import Message

from client_sdk._credentials import Credentials, Metadata, TransportCredentials, metadata
from client_sdk._exceptions import ConnectionFailed, PsoupError, ServerError, Unauthenticated
from client_sdk._grpc.channels import Channels, CountedChannel, channel_options, from_rpc
from client_sdk._grpc.stubs import CHECKSUM_METADATA, ChecksumStub
from client_sdk._grpc.tls_mismatch import explain_mismatch, may_be_mismatch
from client_sdk._tracing import client_span


class Duplex(Protocol):
    """An open PublishStream."""

    def write(self, request: Message) -> None: ...

    def read(self) -> Any:
        """Wait for the next response. Raises ServerError if the server ended the call."""

    def finish(self) -> None:
        """Announce that no more requests follow, and wait until the server has ended the call."""

    def cancel(self) -> None:
        """Cancel the call. It never fails, and may be called twice."""


class AsyncDuplex(Protocol):
    """A `Duplex` with `await`."""

    async def write(self, request: Message) -> None: ...

    async def read(self) -> Any: ...

    async def finish(self) -> None: ...

    async def cancel(self) -> None: ...


class Transport(Protocol):
    """What `Client` makes its calls through.

    `method` is the name of a method of the service psoup.v1.Psoup. Timeouts are in seconds.
    """

    def unary(self, method: str, request: Message, timeout: float | None) -> Any: ...

    def stream(
        self, method: str, request: Message, timeout: float | None
    ) -> Generator[Any, None, None]:
        """Yield the responses in order. Closing the generator cancels the call."""

    def duplex(self, method: str, timeout: float | None) -> Duplex: ...

    def close(self) -> None: ...


class AsyncTransport(Protocol):
    """What `AsyncClient` makes its calls through: a `Transport` with `await`."""

    async def async_unary(self, method: str, request: Message, timeout: float | None) -> Any: ...

    def async_stream(
        self, method: str, request: Message, timeout: float | None
    ) -> AsyncGenerator[Any, None]: ...

    async def async_duplex(self, method: str, timeout: float | None) -> AsyncDuplex: ...

    async def async_close(self) -> None: ...


class CallStub(NamedTuple):
    """The stub for one call to a target, and the metadata that identifies the caller."""

    target: str
    stub: Any
    metadata: Metadata | None

    def call(self, method: str, *request: Any, timeout: float | None) -> Any:
        all_metadata = (CHECKSUM_METADATA, *(self.metadata or ()))
        return getattr(self.stub, method)(*request, timeout=timeout, metadata=all_metadata)


class GrpcTransport:
    """A transport of grpc, for several threads."""

    def __init__(
        self,
        targets: Sequence[str],
        max_message_bytes: int,
        credentials: Credentials | None = None,
    ) -> None:
        """Raise ValueError if a token would go to another machine in plain text."""
        self._credentials = TransportCredentials(credentials, targets)
        self._options = [*channel_options(max_message_bytes), *self._credentials.options()]
        self._channels = Channels(targets, self._make, self._credentials.files)

    def _make(self, target: str) -> tuple[Any, Any]:
        credentials = self._credentials.channel_credentials()
        if credentials is None:
            channel = grpc.insecure_channel(target, self._options)
        else:
            channel = grpc.secure_channel(target, credentials, self._options)
        return channel, ChecksumStub(channel)

    def unary(self, method: str, request: Message, timeout: float | None) -> Any:
        with self.calling(method) as stub:
            return stub.call(method, request, timeout=timeout)

    def stream(
        self, method: str, request: Message, timeout: float | None
    ) -> Generator[Any, None, None]:
        with self.calling(method) as stub:
            call = stub.call(method, request, timeout=timeout)
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
    def calling(self, method: str) -> Iterator[CallStub]:
        """Yield the stub for one call, which ends with the block."""
        token = self._credentials.token()
        # Taken after the token: if getting that fails, there is no channel to give back.
        channel, failure = self._channels.take(), None
        try:
            with client_span(method) as trace_metadata:
                shown = (*(metadata(token) or ()), *trace_metadata)
                yield CallStub(channel.target, channel.stub, shown)
        except grpc.RpcError as error:
            failure = self._failed(error, channel, token)
            raise failure from None
        finally:
            unused = self._channels.give_back(channel, failure)
            if unused is not None:
                unused.close()

    def _failed(
        self, error: grpc.RpcError, channel: CountedChannel, token: str | None
    ) -> PsoupError:
        """Return the exception for a failed call. If another thread has closed the client, it has a
        code that is not retried.
        """
        if self._channels.closed:
            return ConnectionFailed(
                "the client was closed during the call", code="FAILED_PRECONDITION"
            )
        failure = from_rpc(error, channel.target)
        if may_be_mismatch(failure, channel.target):
            return explain_mismatch(failure, channel.target, self._credentials.settings.encrypts)
        if isinstance(failure, Unauthenticated):
            failure.renewed = self._credentials.is_renewed(
                channel.files, token, self._credentials.token()
            )
        return failure


class GrpcDuplex:
    """A duplex of grpc. A thread of grpc takes the requests from a queue, up to a None."""

    def __init__(self, transport: GrpcTransport, method: str, timeout: float | None) -> None:
        self._stack = ExitStack()
        self._requests: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        stub = self._stack.enter_context(transport.calling(method))
        self._call = stub.call(method, iter(self._requests.get, None), timeout=timeout)

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
        self._stack.close()

    def cancel(self) -> None:
        # The thread of grpc that waits for requests would not end otherwise.
        self._requests.put(None)
        self._call.cancel()
        self._stack.close()

    @contextmanager
    def _ending(self) -> Iterator[None]:
        """End the call if something is raised inside, so that its channel can be replaced."""
        try:
            yield
        except BaseException as error:
            self._stack.__exit__(type(error), error, error.__traceback__)
            raise


_END: Any = vars(grpc.aio)["EOF"]  # the type stubs of grpc do not have it


class AsyncGrpcTransport:
    """A transport of grpc.aio. The first call opens the channel, so that it belongs to the running
    event loop.
    """

    def __init__(
        self,
        targets: Sequence[str],
        max_message_bytes: int,
        credentials: Credentials | None = None,
    ) -> None:
        """Raise ValueError if a token would go to another machine in plain text."""
        self._credentials = TransportCredentials(credentials, targets)
        self._options = [*channel_options(max_message_bytes), *self._credentials.options()]
        self._channels = Channels(targets, self._make, self._credentials.files)

    def _make(self, target: str) -> tuple[Any, Any]:
        credentials = self._credentials.channel_credentials()
        if credentials is None:
            channel = grpc.aio.insecure_channel(target, self._options)
        else:
            channel = grpc.aio.secure_channel(target, credentials, self._options)
        return channel, ChecksumStub(channel)

    async def async_unary(self, method: str, request: Message, timeout: float | None) -> Any:
        async with self.calling(method) as stub:
            return await stub.call(method, request, timeout=timeout)

    async def async_stream(
        self, method: str, request: Message, timeout: float | None
    ) -> AsyncGenerator[Any, None]:
        async with self.calling(method) as stub:
            call = stub.call(method, request, timeout=timeout)
            try:
                async for message in call:
                    yield message
            finally:
                call.cancel()

    async def async_duplex(self, method: str, timeout: float | None) -> AsyncGrpcDuplex:
        stack = AsyncExitStack()
        stub = await stack.enter_async_context(self.calling(method))
        return AsyncGrpcDuplex(stub.call(method, timeout=timeout), stack, stub.target)

    async def async_close(self) -> None:
        for channel in self._channels.close():
            await channel.close()

    @asynccontextmanager
    async def calling(self, method: str) -> AsyncIterator[CallStub]:
        """Yield the stub for one call, which ends with the block."""
        token = await self._credentials.async_token()
        channel, failure = self._channels.take(), None
        try:
            with client_span(method) as trace_metadata:
                shown = (*(metadata(token) or ()), *trace_metadata)
                yield CallStub(channel.target, channel.stub, shown)
        except grpc.RpcError as error:
            target = channel.target
            failure = from_rpc(error, target)
            if may_be_mismatch(failure, target):
                encrypts = self._credentials.settings.encrypts
                # Finding the reason may take a connection, which must not block the event loop.
                failure = await asyncio.to_thread(explain_mismatch, failure, target, encrypts)
            if isinstance(failure, Unauthenticated):
                now = await self._credentials.async_token()
                failure.renewed = self._credentials.is_renewed(channel.files, token, now)
            raise failure from None
        finally:
            unused = self._channels.give_back(channel, failure)
            if unused is not None:
                await unused.close()


class AsyncGrpcDuplex:
    def __init__(self, call: Any, stack: AsyncExitStack, target: str) -> None:
        self._call = call
        self._stack = stack
        self._target = target

    async def write(self, request: Message) -> None:
        """Send a request. Raises ConnectionFailed if the call has ended; grpc.aio does not say
        why.
        """
        try:
            await self._call.write(request)
        except (grpc.RpcError, asyncio.InvalidStateError):
            raise ConnectionFailed(f"the connection to {self._target} was cut") from None

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
        await self._stack.aclose()

    async def cancel(self) -> None:
        self._call.cancel()
        await self._stack.aclose()

    @asynccontextmanager
    async def _ending(self) -> AsyncIterator[None]:
        """End the call if something is raised inside, so that its channel can be replaced."""
        try:
            yield
        except BaseException as error:
            await self._stack.__aexit__(type(error), error, error.__traceback__)
            raise
