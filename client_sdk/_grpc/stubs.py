"""The stub of a store, whose requests have a checksum.

The store refuses what comes otherwise than it was sent, as it may without TLS, and the client sends
it again.
"""

from __future__ import annotations

import zlib
from typing import Any

from google.protobuf.message import Message

from psoup.v1 import psoup_pb2 as pb

# What tells the store that every message of a call has a checksum.
METADATA = ("psoup-checksum", "crc32")

_SERVICE = pb.DESCRIPTOR.services_by_name["Psoup"]
_TAG = bytes([pb.PublishRequest.CHECKSUM_FIELD_NUMBER << 3 | 5])


class SummingStub:
    """A stub of a channel, of grpc or of grpc.aio, with a method for each of the service's."""

    def __init__(self, channel: Any) -> None:
        for method in _SERVICE.methods:
            sides = "stream" if method.client_streaming else "unary"
            sides += "_stream" if method.server_streaming else "_unary"
            call = getattr(channel, sides)(
                f"/{_SERVICE.full_name}/{method.name}",
                request_serializer=summed,
                response_deserializer=getattr(pb, method.output_type.name).FromString,
            )
            setattr(self, method.name, call)


def summed(request: Message) -> bytes:
    """Write a request with the CRC-32 of its bytes as its last field."""
    content = request.SerializeToString()
    return b"".join((content, _TAG, zlib.crc32(content).to_bytes(4, "little")))
