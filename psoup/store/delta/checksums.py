"""Checksums of what the store writes: a data file's in the commit that names it, a commit's in
itself, a Delta checkpoint's in a small file beside the table.

A data file has two: a CRC of its footer, so that a damaged footer is never parsed, and a CRC of all
its bytes, for readers of the whole file. Pages have Parquet's own. A commit's hash is in its
`commitInfo`, which Delta readers ignore.
"""

from __future__ import annotations

import hashlib
import re
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

FILE_TAG = "psoup.crc32"
FOOTER_TAG = "psoup.footer.crc32"

# The end of a Parquet file: the length of its metadata, and a magic word.
_ENDING = struct.Struct("<I4s")
_MAGIC = b"PAR1"

# The hash has a fixed width; its place holds zeros while it is computed.
_ZEROS = b"0" * 16
_SEAL = re.compile(rb'"psoupHash":"([0-9a-f]{16})"')


@dataclass(frozen=True, slots=True)
class Checks:
    """CRC-32 of a file's bytes and of its footer: metadata, their length, the magic word."""

    file: int
    footer: int

    def tags(self) -> dict[str, str]:
        return {FILE_TAG: f"{self.file:08x}", FOOTER_TAG: f"{self.footer:08x}"}


def checks_of(content: Any) -> Checks:
    """Return the checksums of a Parquet file that was just made: bytes, or a buffer of them."""
    footer = footer_of(memoryview(content))
    assert footer is not None, "not a Parquet file"
    return Checks(zlib.crc32(content), zlib.crc32(footer))


def read_checks(tags: Mapping[str, str]) -> Checks:
    """Return the checksums in the tags of an add action; raise KeyError if it has none."""
    return Checks(int(tags[FILE_TAG], 16), int(tags[FOOTER_TAG], 16))


def footer_size(ending: bytes | memoryview) -> int | None:
    """Return the size of the footer, given the last eight bytes of the file; None if it is not
    Parquet."""
    if len(ending) < _ENDING.size:
        return None
    length, magic = _ENDING.unpack(ending[-_ENDING.size :])
    return length + _ENDING.size if magic == _MAGIC else None


def footer_of(content: memoryview) -> memoryview | None:
    """Return the footer at the end of these bytes; None if they are too few, or not Parquet."""
    size = footer_size(content)
    return None if size is None or size > len(content) else content[-size:]


def unsealed() -> dict[str, str]:
    """Return the field of `commitInfo` that `sealed` fills. It must come first in the commit."""
    return {"psoupHash": _ZEROS.decode()}


def sealed(content: bytes) -> bytes:
    """Return a commit with its hash, in the place that `unsealed` reserved."""
    return _SEAL.sub(b'"psoupHash":"' + _hash(content) + b'"', content, count=1)


def seal_holds(content: bytes) -> bool:
    """Return True if the hash in a commit is that of its bytes."""
    seal = _SEAL.search(content)
    if seal is None:
        return False
    blank = content[: seal.start(1)] + _ZEROS + content[seal.end(1) :]
    return _hash(blank) == seal[1]


def _hash(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=8, person=b"psoup commit").hexdigest().encode()
