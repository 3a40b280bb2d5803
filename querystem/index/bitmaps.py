"""Sets of rows as bits: a matrix of uint64 words, one line a set.

Row r of a batch stands in bit `shift + r`, so that lines can begin where a block's words do.
"""

from __future__ import annotations

import numpy as np

from datastem.arrays import Array, Mask, UInt64s

WORD = 64
# Shorter lines are better joined many at a time, though each is then met several times.
_LONG_LINE = 128


def words_for(bits: int) -> int:
    return -(-bits // WORD)


def pack(mask: Mask, shift: int = 0) -> UInt64s:
    """One line for a mask."""
    if shift:
        mask = np.concatenate([np.zeros(shift, np.bool_), mask])
    line = np.zeros(words_for(len(mask)), np.uint64)
    packed = np.packbits(mask, bitorder="little")
    line.view(np.uint8)[: len(packed)] = packed
    return line


def scatter(lines: Array, into: UInt64s, shift: int = 0) -> None:
    """Sets row r in line `lines[r]` alone; what `into` held is gone."""
    into[:] = 0
    octets = into.view(np.uint8)
    for first in range(min(8, len(lines))):
        chosen = lines[first::8]
        octet, bit = divmod(shift + first, 8)
        octets[chosen, np.arange(octet, octet + len(chosen))] |= np.uint8(1 << bit)


def accumulate(matrix: UInt64s) -> UInt64s:
    """Each line joined with all lines before it, in place."""
    count, width = matrix.shape
    if width >= _LONG_LINE:
        for line in range(1, count):
            np.bitwise_or(matrix[line], matrix[line - 1], out=matrix[line])
        return matrix
    step = 1
    while step < count:
        matrix[step:] |= matrix[:-step].copy()
        step *= 2
    return matrix
