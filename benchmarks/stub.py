"""Invoke through the generated stub alone: what a client in any language would pay."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import grpc

from benchmarks.timing import Times
from psoup.v1 import psoup_pb2 as pb
from psoup.v1 import psoup_pb2_grpc


class Stub:
    def __init__(self, channel: grpc.Channel) -> None:
        self._stub = psoup_pb2_grpc.PsoupStub(channel)

    def invoke(
        self, handle: bytes, encoding: pb.Encoding = pb.ENCODING_ARROW, **fields: Any
    ) -> pb.AnswerHeader:
        """All of the answer is received; its header."""
        request = pb.InvokeRequest(handle=handle, encoding=encoding, **fields)
        return _header(self._stub.Invoke(request))

    def connect(self) -> None:
        """Returns when the server has answered something."""
        self._stub.Status(pb.StatusRequest())

    def ask(self, sql: str) -> pb.AnswerHeader:
        return _header(self._stub.Ask(pb.AskRequest(sql=sql, encoding=pb.ENCODING_ARROW)))

    def pieces(self, handle: bytes) -> Iterator[bytes]:
        """The Arrow bytes, as they come."""
        request = pb.InvokeRequest(handle=handle, encoding=pb.ENCODING_ARROW)
        for message in self._stub.Invoke(request):
            if message.WhichOneof("part") == "arrow":
                yield message.arrow


class Invokes:
    """The nth call invokes the nth of some registrations, in turn; keeps what the headers say."""

    def __init__(
        self, stub: Stub, handles: Sequence[bytes], encoding: pb.Encoding = pb.ENCODING_ARROW
    ) -> None:
        self._stub = stub
        self._handles = handles
        self._encoding = encoding
        self.headers: list[pb.AnswerHeader] = []

    def __call__(self, number: int) -> None:
        handle = self._handles[number % len(self._handles)]
        self.headers.append(self._stub.invoke(handle, self._encoding))

    @property
    def work(self) -> Times:
        """The times the server says it took before the first byte."""
        return Times([header.elapsed.ToMicroseconds() / 1e6 for header in self.headers])


def _header(messages: Iterable[pb.InvokeResponse]) -> pb.AnswerHeader:
    first, *_ = messages
    return first.header
