"""Sync and Invoke through the wire alone, with every byte of a message counted.

Bytes are those of the serialized messages as they are sent, and the five bytes gRPC puts before
each; what HTTP/2 adds, headers and trailers, is not counted, for any way here.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property

import grpc

from psoup.v1 import psoup_pb2 as pb

FRAME = 5
SYNC, INVOKE = "/psoup.v1.Psoup/Sync", "/psoup.v1.Psoup/Invoke"
OPTIONS = (("grpc.max_receive_message_length", -1),)


@dataclass(frozen=True)
class Received:
    """One call brought these messages. `sent` are the bytes of the request."""

    messages: list[bytes]
    sent: int
    seconds: float

    @property
    def nbytes(self) -> int:
        return sum(len(message) + FRAME for message in self.messages)

    @cached_property
    def parts(self) -> list[pb.SyncPart]:
        return [pb.SyncPart.FromString(message) for message in self.messages]

    @property
    def token(self) -> bytes:
        return self.parts[-1].end.token

    @property
    def rows(self) -> int:
        """All that the copy has now."""
        return self.parts[-1].end.row_count

    @property
    def removals(self) -> int:
        return sum(len(part.removed.runs) // 2 for part in self.parts)


class Caller:
    def __init__(self, channel: grpc.Channel) -> None:
        self._calls = {name: channel.unary_stream(name, None, None) for name in (SYNC, INVOKE)}

    def sync(self, handle: bytes, token: bytes = b"", whole: bool = False) -> Received:
        return self._received(SYNC, sync_request(handle, token, whole))

    def invoke(self, handle: bytes) -> Received:
        request = pb.InvokeRequest(handle=handle, encoding=pb.ENCODING_ARROW)
        return self._received(INVOKE, request.SerializeToString())

    def _received(self, name: str, request: bytes) -> Received:
        began = time.perf_counter()
        messages = list(self._calls[name](request))
        return Received(messages, len(request) + FRAME, time.perf_counter() - began)


def sync_request(handle: bytes, token: bytes, whole: bool = False) -> bytes:
    item = pb.SyncItem(handle=handle, token=token, whole=whole)
    return pb.SyncRequest(items=[item], encoding=pb.ENCODING_ARROW).SerializeToString()
