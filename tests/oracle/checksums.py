"""Checksums and digests as docs/reference/protocol.md specifies them, one number at a time."""

from __future__ import annotations

import datetime
import decimal
import math
import struct
from collections.abc import Iterable, Sequence
from typing import Any

from datastem.instants import to_micros
from datastem.types import Kind, Type

_ALL = 2**64 - 1
STEP = 0x9E3779B97F4A7C15
LANES = (STEP, 0xC2B2AE3D27D4EB4F)
SINCE_EVER, FOR_EVER = -(2**63), 2**63 - 1


def mix(x: int) -> int:
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & _ALL
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & _ALL
    return x ^ (x >> 31)


def factor(place: int) -> int:
    return mix((place + 1) * STEP & _ALL) | 1


def sum_of(words: Iterable[int]) -> int:
    return sum(factor(place) * word for place, word in enumerate(words)) & _ALL


def sum_of_bytes(content: bytes) -> int:
    padded = content + bytes(-len(content) % 4)
    return sum_of(struct.unpack(f"<{len(padded) // 4}I", padded))


def checksum(
    row_id: int,
    visible_from: int | None,
    visible_until: int | None,
    sort_key: bytes,
    values: Sequence[Any],
    types: Sequence[Type],
) -> int:
    cells = [
        row_id,
        SINCE_EVER if visible_from is None else visible_from,
        FOR_EVER if visible_until is None else visible_until,
        len(sort_key),
        sum_of_bytes(sort_key),
    ]
    for value, type_ in zip(values, types, strict=True):
        cells += _cells(value, type_)
    return sum_of(word for cell in cells for word in (cell & 0xFFFFFFFF, cell >> 32 & 0xFFFFFFFF))


def digest(numbers: Iterable[int]) -> bytes:
    numbers = list(numbers)
    return struct.pack("<QQ", *(sum(mix(x ^ lane) for x in numbers) & _ALL for lane in LANES))


def _cells(value: Any, type_: Type) -> list[int]:
    if value is None:
        return [0] * (3 if type_.kind in (Kind.TEXT, Kind.DECIMAL) else 2)
    match type_.kind:
        case Kind.TEXT:
            return [1, len(value.encode()), sum_of_bytes(value.encode())]
        case Kind.DECIMAL:
            unscaled = int(decimal.Decimal(value).scaleb(type_.scale, decimal.Context(prec=60)))
            return [1, unscaled & _ALL, unscaled >> 64 & _ALL]
        case Kind.DOUBLE:
            bits = 0x7FF8000000000000 if math.isnan(value) else _bits(value)
            return [1, bits]
        case Kind.TIMESTAMP:
            return [1, value if isinstance(value, int) else to_micros(value)]
        case Kind.DATE:
            return [1, (value - datetime.date(1970, 1, 1)).days]
    return [1, int(value)]


def _bits(value: float) -> int:
    bits: int = struct.unpack("<Q", struct.pack("<d", value))[0]
    return bits
