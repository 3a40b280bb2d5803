"""The stub of a store, which adds a checksum to each request.

Without TLS a request may arrive changed. The store then refuses it, and the client sends it again.
"""

from __future__ import annotations

import zlib
from typing import Any

from google.protobuf.message import Message

from psoup.v1 import psoup_pb2 as pb

# The metadata that announces that every message of a call has a checksum.
CHECKSUM_METADATA = ("psoup-checksum", "crc32")

_SERVICE = pb.DESCRIPTOR.services_by_name["Psoup"]
_TAG = bytes([pb.PublishRequest.CHECKSUM_FIELD_NUMBER << 3 | 5])


class ChecksumStub:
    """A stub of a channel, of grpc or of grpc.aio, with a method for each of the service's."""

    def __init__(self, channel: Any) -> None:
        for method in _SERVICE.methods:
            sides = "stream" if method.client_streaming else "unary"
            sides += "_stream" if method.server_streaming else "_unary"
            call = getattr(channel, sides)(
                f"/{_SERVICE.full_name}/{method.name}",
                request_serializer=with_checksum,
                response_deserializer=getattr(pb, method.output_type.name).FromString,
            )
            setattr(self, method.name, call)


def with_checksum(request: Message) -> bytes:
    """Return a request with the CRC-32 of its bytes as its last field."""
    content = request.SerializeToString()
    return b"".join((content, _TAG, zlib.crc32(content).to_bytes(4, "little")))
