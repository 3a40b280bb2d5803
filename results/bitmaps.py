"""Matches of a predicate in one block as portable roaring bytes: of one set, or of many at once.

A set holds the low 16 bits of row ids. Its single container is an array, a bitset or runs,
whichever is smallest, so equal sets have equal bytes on any machine, whichever function made them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyroaring

from datastem.arrays import Array, Int64s, Mask, UInt16s, UInt32s, UInt64s
from datastem.blocks import BLOCK_MASK, BLOCK_ROWS

# The format's numbers: what a bitmap without and with runs begins with, the length of what stands
# before an array and before runs, and the greatest count an array may have.
_NO_RUNS, _RUNS = 12346, 12347
_ARRAY_HEAD, _RUN_HEAD = 8, 11
_MOST_LISTED = 4096
_BLOCK_WORDS = BLOCK_ROWS // 64
# Arrow's offsets have 32 bits.
_MOST_BYTES = 2**31 - 1
# What a line costs to be listed, by word and by bit, against being read by roaring itself.
_WORD_COST, _BIT_COST, _LINE_COST = 1, 2, 500
_WORDS_AT_ONCE = 1 << 15


def encode(lows: UInt16s) -> bytes:
    """The bytes of one set, whose members ascend."""
    # From an `array` pyroaring copies memory; from numpy it would go value by value.
    bitmap = pyroaring.BitMap(array("I", lows.astype(np.uint32).tobytes()))
    bitmap.run_optimize()
    return bytes(bitmap.serialize())


def decode(content: bytes) -> UInt16s:
    """The ascending members of a set; raises ValueError for bytes that `encode` did not make."""
    if not content:
        raise ValueError("no bytes are no bitmap")
    bitmap = pyroaring.BitMap.deserialize(content)
    if not bitmap:
        return np.empty(0, np.uint16)
    if bitmap.max() > BLOCK_MASK:
        raise ValueError("a bitmap of one block holds no more than 16 bits")
    return np.frombuffer(bitmap.to_array(), np.uint32).astype(np.uint16)


# ---- many sets


def encode_lists(counts: Int64s, lows: UInt16s) -> pa.Array:
    """The bytes of many sets: `lows` has their members, which ascend in each, one set after the
    other, and `counts` says how many each has, at least one."""
    if not len(counts):
        return pa.array([], pa.binary())
    begins = np.cumsum(counts) - counts
    # A run begins where a member does not follow the one before it, and where a set begins.
    starts_run = np.empty(len(lows), np.bool_)
    starts_run[0] = True
    np.not_equal(lows[1:], lows[:-1] + np.uint16(1), out=starts_run[1:])
    starts_run[begins] = True
    seen = np.append(0, np.cumsum(starts_run))
    runs = seen[begins + counts] - seen[begins]
    otherwise = np.minimum(2 * counts, BLOCK_ROWS // 8)
    as_runs = 4 * runs + 2 < otherwise
    as_bits = (counts > _MOST_LISTED) & ~as_runs
    if not (as_runs | as_bits).any():
        return _arrays(counts, lows)
    chosen = [np.flatnonzero(kind) for kind in (~as_runs & ~as_bits, as_runs, as_bits)]
    parts = [
        _arrays(counts[chosen[0]], lows[_members(begins, counts, chosen[0])]),
        _runs(counts, lows, starts_run, begins, runs, chosen[1]),
        _bits(counts, lows, begins, chosen[2]),
    ]
    order = np.empty(len(counts), np.int64)
    order[np.concatenate(chosen)] = np.arange(len(counts))
    return pa.concat_arrays(parts).take(pa.array(order))


def encode_lines(words: UInt64s, lines: Int64s, counts: Int64s, first: int) -> pa.Array:
    """The bytes of the sets that some `lines` of the matrix `words` have as bits.

    `counts` says how many bits each has, at least one; the first column is word `first` of a block.
    """
    content, ends = bytearray(), [0]
    width = words.shape[1]
    step = max(_WORDS_AT_ONCE // max(width, 1), 1)
    for begin in range(0, len(lines), step):
        chosen, held = words[lines[begin : begin + step]], counts[begin : begin + step]
        if _WORD_COST * width + _BIT_COST * held.mean() < _LINE_COST:
            encoded = encode_lists(held, set_bits(chosen, first).astype(np.uint16)).to_pylist()
        else:
            encoded = _one_by_one(chosen, held, first)
        for octets in encoded:
            content += octets
            ends.append(len(content))
    return _binary(np.diff(ends), content)


def set_bits(words: UInt64s, first: int = 0) -> UInt32s:
    """The numbers of the bits that are set, line by line; the first column is word `first` of a
    block."""
    width = 64 * words.shape[1]
    flat = np.ascontiguousarray(words).reshape(-1)
    parts = [np.empty(0, np.uint32)]
    for begin in range(0, len(flat), _WORDS_AT_ONCE):
        part = flat[begin : begin + _WORDS_AT_ONCE]
        bits = [None, pa.py_buffer(part)]
        chosen = pa.BooleanArray.from_buffers(pa.bool_(), 64 * len(part), bits)
        held = _numbers().slice(0, len(chosen)).filter(chosen).to_numpy()
        parts.append(((held + np.uint64(64 * begin)) % width + 64 * first).astype(np.uint32))
    return np.concatenate(parts)


@cache
def _numbers() -> pa.Array:
    """The numbers of as many bits as are looked at together, to be filtered by them."""
    return pa.array(np.arange(64 * _WORDS_AT_ONCE, dtype=np.uint32))


def _binary(sizes: Int64s, content: Array | bytearray) -> pa.Array:
    offsets = np.append(0, np.cumsum(sizes))
    if offsets[-1] > _MOST_BYTES:
        raise OverflowError(f"{len(sizes):,} bitmaps of {offsets[-1]:,} bytes are too many at once")
    offsets = offsets.astype(np.int32)
    return pa.Array.from_buffers(
        pa.binary(), len(sizes), [None, pa.py_buffer(offsets), pa.py_buffer(content)]
    )


def _members(begins: Int64s, counts: Int64s, chosen: Int64s) -> Int64s:
    """The places of the members of the `chosen` sets, where set n begins at `begins[n]`."""
    sizes = counts[chosen]
    ends = np.cumsum(sizes)
    places = np.repeat(begins[chosen] - (ends - sizes), sizes)
    places += np.arange(len(places))
    return places


def _arrays(counts: Int64s, lows: UInt16s) -> pa.Array:
    """Sets as arrays: cookie, 1 container, key 0, count - 1, where it begins, the members."""
    sizes = counts + _ARRAY_HEAD
    heads = np.cumsum(sizes) - sizes
    content = np.empty(int(sizes.sum()), np.uint16)
    for place, value in enumerate((_NO_RUNS, 0, 1, 0, 0, 0, 2 * _ARRAY_HEAD, 0)):
        content[heads + place] = value
    content[heads + 5] = counts - 1
    places = np.repeat(np.arange(1, len(counts) + 1) * _ARRAY_HEAD, counts)
    places += np.arange(len(places))
    content[places] = lows
    return _binary(2 * sizes, content)


def _runs(
    counts: Int64s, lows: UInt16s, starts_run: Any, begins: Int64s, runs: Int64s, chosen: Int64s
) -> pa.Array:
    """The `chosen` sets as runs: cookie, which containers are runs, key 0, count - 1, how many
    runs, and (first, how many more) of each run."""
    members = _members(begins, counts, chosen)
    firsts = np.flatnonzero(starts_run[members])
    lengths = np.diff(np.append(firsts, len(members)))
    pairs = np.empty((len(firsts), 2), np.uint16)
    pairs[:, 0] = lows[members][firsts]
    pairs[:, 1] = lengths - 1
    sizes = 4 * runs[chosen] + _RUN_HEAD
    heads = np.cumsum(sizes) - sizes
    content = np.zeros(int(sizes.sum()), np.uint8)
    content[heads], content[heads + 1] = _RUNS & 255, _RUNS >> 8
    content[heads + 4] = 1
    for place, number in ((7, counts[chosen] - 1), (9, runs[chosen])):
        content[heads + place], content[heads + place + 1] = number & 255, number >> 8
    places = np.repeat(np.arange(1, len(chosen) + 1) * _RUN_HEAD, 4 * runs[chosen])
    places += np.arange(len(places))
    content[places] = pairs.reshape(-1).view(np.uint8)
    return _binary(sizes, content)


def _bits(counts: Int64s, lows: UInt16s, begins: Int64s, chosen: Int64s) -> pa.Array:
    """The `chosen` sets as bits: cookie, 1 container, key 0, count - 1, where it begins, and
    65,536 bits."""
    lines = np.zeros((len(chosen), BLOCK_ROWS), np.bool_)
    for line, list_ in enumerate(chosen.tolist()):
        lines[line, lows[begins[list_] : begins[list_] + counts[list_]]] = True
    packed = np.packbits(lines, axis=1, bitorder="little").view(np.uint64)
    content = _headed(packed.reshape(-1, _BLOCK_WORDS), counts[chosen])
    return _binary(np.full(len(chosen), content.shape[1] * 8), content)


def _headed(lines: UInt64s, counts: Int64s) -> UInt64s:
    """Whole blocks of bits, each with the head that stands before it."""
    content = np.empty((len(lines), 2 + _BLOCK_WORDS), np.uint64)
    heads = content[:, :2].view(np.uint16)
    heads[:] = (_NO_RUNS, 0, 1, 0, 0, 0, 2 * _ARRAY_HEAD, 0)
    heads[:, 5] = counts - 1
    content[:, 2:] = lines
    return content


def _one_by_one(words: UInt64s, counts: Int64s, first: int) -> Iterator[bytes | memoryview]:
    """The bytes of each line, most of them made by roaring itself.

    Roaring reads a bitset only where it holds many bits. The complement of a line with few bits
    does, so it is read instead, and flipped. Changes `words`.
    """
    blocks = _blocks(words, first)
    few = counts <= _MOST_LISTED
    ready = ~few
    ready[ready] = ~_may_be_runs(blocks[~few], counts[~few])
    blocks[few] = ~blocks[few]
    content = _headed(blocks, np.where(few, BLOCK_ROWS - counts, counts))
    for line, is_ready, flip in zip(content, ready.tolist(), few.tolist(), strict=True):
        if is_ready:
            yield line.data
            continue
        bitmap = pyroaring.BitMap.deserialize(line.tobytes())
        if flip:
            bitmap.flip_inplace(0, BLOCK_ROWS)
        bitmap.run_optimize()
        yield bitmap.serialize()


def _blocks(words: UInt64s, first: int) -> UInt64s:
    if words.shape[1] == _BLOCK_WORDS:
        return words
    blocks = np.zeros((len(words), _BLOCK_WORDS), np.uint64)
    blocks[:, first : first + words.shape[1]] = words
    return blocks


def _may_be_runs(lines: UInt64s, counts: Int64s) -> Mask:
    """A mask of the lines that may be smaller as runs, counted as if no run went on from word to
    word."""
    followed = lines & (lines << np.uint64(1))
    most = counts - np.bitwise_count(followed).sum(axis=1, dtype=np.int64)
    return np.asarray(4 * (most - _BLOCK_WORDS) + 2 < BLOCK_ROWS // 8)
