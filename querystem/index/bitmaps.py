"""Sets of rows as bits: a matrix of uint64 words, one line a set, row r of the batch in bit r."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
WORD = 64
# Shorter lines are better joined many at a time, though each is then met several times.
_LONG_LINE = 128


def words_for(rows: int) -> int:
    return -(-rows // WORD)


def pack(mask: npt.NDArray[np.bool_]) -> Words:
    """One line for a mask."""
    line = np.zeros(words_for(len(mask)), np.uint64)
    packed = np.packbits(mask, bitorder="little")
    line.view(np.uint8)[: len(packed)] = packed
    return line


def scatter(lines: npt.NDArray[Any], count: int) -> Words:
    """Row r set in line `lines[r]` alone, of `count` lines."""
    matrix = np.zeros((count, words_for(len(lines))), np.uint64)
    octets = matrix.view(np.uint8)
    for bit in range(8):
        chosen = lines[bit::8]
        octets[chosen, np.arange(len(chosen))] |= np.uint8(1 << bit)
    return matrix


def accumulate(matrix: Words) -> Words:
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


def positions(matrix: Words) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
    """How many rows each line has, and the rows of one line after the other, ascending."""
    line, word = np.nonzero(matrix)
    words = matrix[line, word]
    sizes = np.bitwise_count(words).astype(np.int64)
    counts = np.bincount(line, sizes, len(matrix)).astype(np.int64)
    bits = np.unpackbits(words.view(np.uint8), bitorder="little").view(np.bool_)
    within = np.flatnonzero(bits).astype(np.uint32) & np.uint32(WORD - 1)
    return counts, np.repeat((word * WORD).astype(np.uint32), sizes) | within
