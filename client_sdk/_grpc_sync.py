"""The network for `Client`: a grpc channel."""

from __future__ import annotations

import queue
from collections.abc import Generator
from typing import Any

import grpc
from google.protobuf.message import Message

from client_sdk._exceptions import ServerError
from client_sdk._failures import from_rpc
from client_sdk._session import MEBIBYTE
from psoup.v1 import psoup_pb2_grpc


def channel_options(max_message_bytes: int) -> list[tuple[str, int]]:
    """Room for the largest message the server takes, and for the fields around its rows."""
    limit = max_message_bytes + MEBIBYTE
    return [("grpc.max_send_message_length", limit), ("grpc.max_receive_message_length", limit)]


class GrpcTransport:
    def __init__(self, target: str, max_message_bytes: int) -> None:
        self._target = target
        self._channel = grpc.insecure_channel(target, channel_options(max_message_bytes))
        self._stub: Any = psoup_pb2_grpc.PsoupStub(self._channel)

    def unary(self, method: str, request: Message, timeout: float | None) -> Any:
        try:
            return getattr(self._stub, method)(request, timeout=timeout)
        except grpc.RpcError as error:
            raise from_rpc(error, self._target) from None

    def stream(
        self, method: str, request: Message, timeout: float | None
    ) -> Generator[Any, None, None]:
        call = getattr(self._stub, method)(request, timeout=timeout)
        try:
            yield from call
        except grpc.RpcError as error:
            raise from_rpc(error, self._target) from None
        finally:
            call.cancel()

    def duplex(self, method: str, timeout: float | None) -> GrpcDuplex:
        return GrpcDuplex(getattr(self._stub, method), timeout, self._target)

    def close(self) -> None:
        self._channel.close()


class GrpcDuplex:
    """grpc's own thread takes the requests from a queue; None ends them."""

    def __init__(self, method: Any, timeout: float | None, target: str) -> None:
        self._target = target
        self._requests: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._call = method(iter(self._requests.get, None), timeout=timeout)

    def write(self, request: Message) -> None:
        self._requests.put(request)

    def read(self) -> Any:
        try:
            return next(self._call)
        except StopIteration:
            raise ServerError("the server ended the call before it had answered") from None
        except grpc.RpcError as error:
            raise from_rpc(error, self._target) from None

    def finish(self) -> None:
        self._requests.put(None)
        try:
            for _ in self._call:
                raise ServerError("the server answered more requests than it was sent")
        except grpc.RpcError as error:
            raise from_rpc(error, self._target) from None

    def cancel(self) -> None:
        self._requests.put(None)
        self._call.cancel()
