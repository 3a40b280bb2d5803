"""The network for `Client`: a grpc channel."""

from __future__ import annotations

import queue
from collections.abc import Callable, Generator
from typing import Any

import grpc
from google.protobuf.message import Message

from client_sdk._exceptions import ConnectionFailed, PsoupError, ServerError
from client_sdk._failures import from_rpc
from client_sdk._session import MEBIBYTE
from psoup.v1 import psoup_pb2_grpc

# gRPC's own pauses between two connects grow to two minutes: a client that comes back would stay
# cut off. One connect may take the last of these, for slow links; then another is tried.
_FIRST_PAUSE, _LONGEST_PAUSE, _LONGEST_CONNECT = 100, 1000, 5000


def channel_options(max_message_bytes: int) -> list[tuple[str, int]]:
    """For clients that come and go: they connect anew soon, and a new one at once.

    There is room for the largest message the server takes, and for the fields around its rows.
    Channels of a process share no connection, else a new one waits for the pauses of the others.
    """
    limit = max_message_bytes + MEBIBYTE
    return [
        ("grpc.max_send_message_length", limit),
        ("grpc.max_receive_message_length", limit),
        ("grpc.initial_reconnect_backoff_ms", _FIRST_PAUSE),
        ("grpc.max_reconnect_backoff_ms", _LONGEST_PAUSE),
        ("grpc.min_reconnect_backoff_ms", _LONGEST_CONNECT),
        ("grpc.use_local_subchannel_pool", 1),
    ]


class GrpcTransport:
    def __init__(self, target: str, max_message_bytes: int) -> None:
        self._target = target
        self._closed = False
        self._channel = grpc.insecure_channel(target, channel_options(max_message_bytes))
        self._stub: Any = psoup_pb2_grpc.PsoupStub(self._channel)

    def unary(self, method: str, request: Message, timeout: float | None) -> Any:
        try:
            return getattr(self._stub, method)(request, timeout=timeout)
        except grpc.RpcError as error:
            raise self._failed(error) from None

    def stream(
        self, method: str, request: Message, timeout: float | None
    ) -> Generator[Any, None, None]:
        call = getattr(self._stub, method)(request, timeout=timeout)
        try:
            yield from call
        except grpc.RpcError as error:
            raise self._failed(error) from None
        finally:
            call.cancel()

    def duplex(self, method: str, timeout: float | None) -> GrpcDuplex:
        return GrpcDuplex(getattr(self._stub, method), timeout, self._failed)

    def close(self) -> None:
        self._closed = True
        self._channel.close()

    def _failed(self, error: grpc.RpcError) -> PsoupError:
        """A call that another thread ended by closing the client is not made again."""
        if self._closed:
            return ConnectionFailed("the client was closed meanwhile", code="FAILED_PRECONDITION")
        return from_rpc(error, self._target)


class GrpcDuplex:
    """grpc's own thread takes the requests from a queue; None ends them."""

    def __init__(
        self, method: Any, timeout: float | None, failed: Callable[[grpc.RpcError], PsoupError]
    ) -> None:
        self._failed = failed
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
            raise self._failed(error) from None

    def finish(self) -> None:
        self._requests.put(None)
        try:
            for _ in self._call:
                raise ServerError("the server answered more requests than it was sent")
        except grpc.RpcError as error:
            raise self._failed(error) from None

    def cancel(self) -> None:
        self._requests.put(None)
        self._call.cancel()
