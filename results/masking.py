"""Masked numbers of hidden values: equal ones stay equal, and they reveal nothing else.

The ids of groups and the digests of stream keys are hashes that anyone can compute. A client could
guess hidden values behind them by trying. Masked with a secret of the store, it can't.
"""

from __future__ import annotations

import numpy as np

from datastem.arrays import Int64s, UInt64s

MASK_BYTES = 16


def masked(numbers: Int64s, key: bytes) -> Int64s:
    """Return SipHash-2-4 of each number (its 8 bytes, little-endian) under a key of MASK_BYTES, as
    a number from 0 upwards. An empty key masks nothing."""
    if not key:
        return numbers
    k0, k1 = np.frombuffer(key, "<u8")
    words = numbers.view(np.uint64)
    start = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
    keys = (k0, k1, k0, k1)
    state = [
        np.full(len(words), np.uint64(constant) ^ k)
        for constant, k in zip(start, keys, strict=True)
    ]
    # The message has two words: the number, and its length in bytes.
    for word in (words, np.uint64(8 << 56)):
        state[3] ^= word
        _rounds(state, 2)
        state[0] ^= word
    state[2] ^= np.uint64(0xFF)
    _rounds(state, 4)
    hashed: UInt64s = state[0] ^ state[1] ^ state[2] ^ state[3]
    return (hashed >> np.uint64(1)).view(np.int64)


def _rounds(state: list[UInt64s], count: int) -> None:
    """Run the rounds of SipHash over the four words of each number's state."""
    for _ in range(count):
        v0, v1, v2, v3 = state
        v0 = v0 + v1
        v1 = _rotated(v1, 13) ^ v0
        v0 = _rotated(v0, 32)
        v2 = v2 + v3
        v3 = _rotated(v3, 16) ^ v2
        v0 = v0 + v3
        v3 = _rotated(v3, 21) ^ v0
        v2 = v2 + v1
        v1 = _rotated(v1, 17) ^ v2
        v2 = _rotated(v2, 32)
        state[:] = v0, v1, v2, v3


def _rotated(words: UInt64s, bits: int) -> UInt64s:
    return words << np.uint64(bits) | words >> np.uint64(64 - bits)
