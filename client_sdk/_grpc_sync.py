"""The network for `Client`: a grpc channel."""

from __future__ import annotations

import queue
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import grpc
from google.protobuf.message import Message

from client_sdk._channels import Channels, channel_options
from client_sdk._exceptions import ConnectionFailed, PsoupError, ServerError
from client_sdk._failures import from_rpc
from psoup.v1 import psoup_pb2_grpc


class GrpcTransport:
    def __init__(self, target: str, max_message_bytes: int) -> None:
        self._target = target
        self._options = channel_options(max_message_bytes)
        self._channels = Channels(self._make)

    def _make(self) -> tuple[Any, Any]:
        channel = grpc.insecure_channel(self._target, self._options)
        return channel, psoup_pb2_grpc.PsoupStub(channel)

    def unary(self, method: str, request: Message, timeout: float | None) -> Any:
        with self.calling() as stub:
            return getattr(stub, method)(request, timeout=timeout)

    def stream(
        self, method: str, request: Message, timeout: float | None
    ) -> Generator[Any, None, None]:
        with self.calling() as stub:
            call = getattr(stub, method)(request, timeout=timeout)
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
    def calling(self) -> Iterator[Any]:
        """The stub for one call, which ends with the block."""
        held, failure = self._channels.take(), None
        try:
            yield held.stub
        except grpc.RpcError as error:
            failure = self._failed(error)
            raise failure from None
        finally:
            unused = self._channels.give_back(held, failure)
            if unused is not None:
                unused.close()

    def _failed(self, error: grpc.RpcError) -> PsoupError:
        """A call that another thread ended by closing the client is not made again."""
        if self._channels.closed:
            return ConnectionFailed("the client was closed meanwhile", code="FAILED_PRECONDITION")
        return from_rpc(error, self._target)


class GrpcDuplex:
    """grpc's own thread takes the requests from a queue; None ends them."""

    def __init__(self, transport: GrpcTransport, method: str, timeout: float | None) -> None:
        self._held = ExitStack()
        self._requests: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        stub = self._held.enter_context(transport.calling())
        self._call = getattr(stub, method)(iter(self._requests.get, None), timeout=timeout)

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
        """What is raised inside ends the call, and is told to its channel."""
        try:
            yield
        except BaseException as error:
            self._held.__exit__(type(error), error, error.__traceback__)
            raise
