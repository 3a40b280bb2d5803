"""Messages in the aside stream: what they say beside their value, and how they are read again."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

# The timestamp is the one that the producer or the broker has set: no matter which.
_CREATE_TIME = 1


def metadata_of(message: Any, raw: str, record: int | None) -> str:
    """Return a JSON object of all that a message has beside `raw`, which is its value as a text.

    `record` is the number of its record, if it has several.
    """
    metadata = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": message.timestamp()[1],
        "key": _encoded(message.key()),
        "headers": [[name, _encoded(value)] for name, value in message.headers() or ()],
    }
    if message.value() != raw.encode():
        metadata["value"] = _encoded(message.value())
    if record is not None:
        metadata["record"] = record
    return json.dumps(metadata, ensure_ascii=False)


def _encoded(content: bytes | None) -> Any:
    """Return bytes as a text, or in base64 if they are not UTF-8."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


def _decoded(content: Any) -> bytes | None:
    if isinstance(content, Mapping):
        return base64.b64decode(content["base64"])
    return None if content is None else str(content).encode()


class StoredMessage:
    """A message that was put aside, with the methods of one that comes from a broker."""

    def __init__(self, raw: str, metadata: Mapping[str, Any]) -> None:
        self._raw, self._metadata = raw, metadata

    def value(self) -> bytes | None:
        return _decoded(self._metadata.get("value", self._raw))

    def key(self) -> bytes | None:
        return _decoded(self._metadata.get("key"))

    def headers(self) -> list[tuple[str, bytes | None]]:
        return [(name, _decoded(value)) for name, value in self._metadata.get("headers", ())]

    def timestamp(self) -> tuple[int, int]:
        return _CREATE_TIME, int(self._metadata.get("timestamp", -1))

    def offset(self) -> int | None:
        return self._metadata.get("offset")

    def partition(self) -> int | None:
        return self._metadata.get("partition")

    def topic(self) -> str | None:
        return self._metadata.get("topic")
