"""One bit that was turned over, found again with the help of a checksum."""

from __future__ import annotations

import zlib
from collections.abc import Callable

# CRC-32 of zlib, reflected.
_POLYNOMIAL = 0xEDB88320


def turned(content: bytes, bit: int) -> bytes:
    """The content with one bit turned over."""
    changed = bytearray(content)
    changed[bit >> 3] ^= 1 << (bit & 7)
    return bytes(changed)


def without_flip(content: bytes, holds: Callable[[bytes], bool]) -> bytes | None:
    """The content with the bit put right that makes `holds` true; None where none does."""
    candidates = (turned(content, bit) for bit in range(8 * len(content)))
    return next((one for one in candidates if holds(one)), None)


def without_flip_by_crc(content: bytes, expected: int) -> bytes | None:
    """The content whose CRC-32 is as expected, if one bit makes it so.

    A CRC is linear: what a bit changes in it depends on how many bits come after it, and not on
    the others. More than one damaged bit may look like one: the caller checks the result.
    """
    change = zlib.crc32(content) ^ expected
    effect = _POLYNOMIAL
    for bit in range(8 * len(content) - 1, -1, -1):
        if effect == change:
            return turned(content, bit)
        effect = effect >> 1 ^ (_POLYNOMIAL if effect & 1 else 0)
    return None
