"""A row's key as one integer: what a stem's `_key` holds.

Equal keys have equal digests on any machine: NaN is NaN, and -0.0 is 0.0. Different keys have
different ones but for chance: among a hundred million keys, 1 in 3,000 that any two are confused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from datastem.equality import canonical, codes

DIGEST_BYTES = 8
_LENGTH_BYTES = 4


def key_digests(columns: Sequence[pa.Array]) -> Int64s:
    """One for each row of the key's columns, which hold no NULL. Hashes each distinct key once."""
    length = len(columns[0])
    arrays = [canonical(column) for column in columns]
    code, firsts = codes(arrays, length)
    distinct = [_values(array.take(pa.array(firsts))) for array in arrays]
    digests = b"".join(map(_digest, zip(*distinct, strict=True)))
    return np.frombuffer(digests, "<i8").astype(np.int64)[code]


def _digest(values: tuple[bytes, ...]) -> bytes:
    """Each value with its length before it, so that no two keys run together."""
    text = b"".join(len(value).to_bytes(_LENGTH_BYTES, "little") + value for value in values)
    return hashlib.blake2b(text, digest_size=DIGEST_BYTES, person=b"psoup key").digest()


def _values(array: pa.Array) -> list[bytes]:
    """The bytes of each value; `array` begins at its buffers' beginning."""
    if pa.types.is_string(array.type):
        texts: list[bytes] = array.cast(pa.binary()).to_pylist()
        return texts
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.int8())
    width = array.type.bit_width // 8
    content = bytes(memoryview(array.buffers()[1])) if len(array) else b""
    return [content[place * width : (place + 1) * width] for place in range(len(array))]
