"""Checksums of requests: one whose bits were flipped on the way is refused before it is looked at.

A message with a checksum ends with it: five bytes, the tag of field 15 and the CRC-32 of all bytes
before. A call that says so in its metadata has one in every message. Without TLS nothing else would
notice a flipped bit: in the name of a publisher it would store a batch under another name, and the
repeated one once more.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterable
from datetime import timedelta
from functools import cache
from typing import Any

from google.protobuf.descriptor import Descriptor

from psoup.errors import Garbled
from psoup.v1 import psoup_pb2 as pb

METADATA = ("psoup-checksum", "crc32")
_TAG = bytes([pb.PublishRequest.CHECKSUM_FIELD_NUMBER << 3 | 5])
_TAIL_BYTES = 5
# What is summed on the event loop, in about a millisecond; more is summed in a thread.
_LOOP_BYTES = 1 << 20


def is_promised(metadata: Iterable[tuple[str, str | bytes]] | None) -> bool:
    """Return whether every message of a call has a checksum."""
    return any((key, value) == METADATA for key, value in metadata or ())


async def is_intact(message: bytes) -> bool:
    """Return whether a message ends with the checksum of what is before it."""
    # The tail is the tag, one byte, and the checksum, four bytes, little-endian.
    if message[-_TAIL_BYTES : 1 - _TAIL_BYTES] != _TAG:
        return False
    content = memoryview(message)[:-_TAIL_BYTES]
    small = len(content) <= _LOOP_BYTES
    checksum = zlib.crc32(content) if small else await asyncio.to_thread(zlib.crc32, content)
    return checksum == int.from_bytes(message[1 - _TAIL_BYTES :], "little")


def has_checksum(request: Any) -> bool:
    """Return whether a request that was parsed has a checksum, wherever it stood."""
    return _takes_checksum(request.DESCRIPTOR) and request.HasField("checksum")


@cache
def _takes_checksum(kind: Descriptor) -> bool:
    return "checksum" in kind.fields_by_name


def garbled() -> Garbled:
    return Garbled(
        "the request is not what was sent: its checksum is another; nothing was done",
        field="checksum",
        retry_after=timedelta(0),
        hint="send it again; use TLS if that happens often",
    )
