"""Small records of the file, each with its own checksum, so that a flipped bit is found."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def seal(content: Mapping[str, Any]) -> str:
    """JSON after its checksum. Bytes are written in hexadecimal."""
    text = json.dumps(content, separators=(",", ":"), sort_keys=True, default=bytes.hex)
    return f"{_sum(text)} {text}"


def unseal(sealed: Any) -> dict[str, Any] | None:
    """None where it is not what was sealed."""
    if not isinstance(sealed, str):
        return None
    checksum, _, text = sealed.partition(" ")
    if checksum != _sum(text):
        return None
    content: dict[str, Any] = json.loads(text)
    return content


def _sum(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
