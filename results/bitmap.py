"""A predicate's matches in one block: the low 16 bits of row ids, as portable roaring bytes."""

from __future__ import annotations

from array import array

import numpy as np
import pyroaring

from datastem.arrays import UInt16s

BLOCK_BITS = 16
BLOCK_MASK = (1 << BLOCK_BITS) - 1


def encode(lows: UInt16s) -> bytes:
    """`lows` ascend. The bytes are the same for the same set, on any machine."""
    # From an `array` pyroaring copies memory; from numpy it would go value by value.
    bitmap = pyroaring.BitMap(array("I", lows.astype(np.uint32).tobytes()))
    bitmap.run_optimize()
    return bytes(bitmap.serialize())


def decode(content: bytes) -> UInt16s:
    """Raises ValueError for anything `encode` did not make."""
    if not content:
        raise ValueError("no bytes are no bitmap")
    bitmap = pyroaring.BitMap.deserialize(content)
    if not bitmap:
        return np.empty(0, np.uint16)
    if bitmap.max() > BLOCK_MASK:
        raise ValueError("a bitmap of one block holds no more than 16 bits")
    return np.frombuffer(bitmap.to_array(), np.uint32).astype(np.uint16)
