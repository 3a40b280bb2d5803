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

from datastem import native
from datastem.arrays import Array, Int64s, Mask, UInt16s, UInt32s, UInt64s
from datastem.blocks import BLOCK_MASK, BLOCK_ROWS

# Numbers of the roaring format: the cookies of bitmaps without and with runs, the lengths of the
# heads before an array (in 16-bit words) and before runs (in bytes), and the greatest count of an
# array.
_NO_RUNS, _RUNS = 12346, 12347
_ARRAY_HEAD, _RUN_HEAD = 8, 11
_MAX_ARRAY_COUNT = 4096
_BLOCK_WORDS = BLOCK_ROWS // 64
# Arrow's offsets have 32 bits.
_MAX_ARROW_BYTES = 2**31 - 1
# Cost model: listing the bits of a line costs this much per word and per bit, reading it with
# roaring this much per line.
_WORD_COST, _BIT_COST, _LINE_COST = 1, 2, 500
_WORDS_AT_ONCE = 1 << 15


def encode(lows: UInt16s) -> bytes:
    """Return the bytes of one set, whose members ascend."""
    # pyroaring copies the memory of an `array`; a numpy array it would read value by value.
    bitmap = pyroaring.BitMap(array("I", lows.astype(np.uint32).tobytes()))
    bitmap.run_optimize()
    return bytes(bitmap.serialize())


def decode(content: bytes) -> UInt16s:
    """Return the ascending members of a set; raise ValueError for bytes that `encode` did not
    make."""
    if not content:
        raise ValueError("a bitmap has at least one byte")
    bitmap = pyroaring.BitMap.deserialize(content)
    if not bitmap:
        return np.empty(0, np.uint16)
    if bitmap.max() > BLOCK_MASK:
        raise ValueError("a bitmap of one block holds no more than 16 bits")
    return np.frombuffer(bitmap.to_array(), np.uint32).astype(np.uint16)


# ---- many sets


def encode_lists(counts: Int64s, lows: UInt16s) -> pa.Array:
    """Return the bytes of many sets: `lows` has their members, which ascend in each, one set after
    the other, and `counts` says how many each has, at least one."""
    if not len(counts):
        return pa.array([], pa.binary())
    if native.core is not None:
        return native.encode_lists(counts, lows)
    begins = np.cumsum(counts) - counts
    # `starts_run[m]` is true if member m begins a run: it does not follow member m - 1, or begins a
    # set. `runs_before[m]` counts the runs that begin before member m, so that differences count
    # the runs of a set.
    starts_run = np.empty(len(lows), np.bool_)
    starts_run[0] = True
    np.not_equal(lows[1:], lows[:-1] + np.uint16(1), out=starts_run[1:])
    starts_run[begins] = True
    runs_before = np.append(0, np.cumsum(starts_run))
    runs = runs_before[begins + counts] - runs_before[begins]
    # Sizes in bytes: 2 for each member of an array, 8,192 for bits, 4 for each run and 2 for their
    # number. Runs are chosen only if they are smaller.
    otherwise = np.minimum(2 * counts, BLOCK_ROWS // 8)
    as_runs = 4 * runs + 2 < otherwise
    as_bits = (counts > _MAX_ARRAY_COUNT) & ~as_runs
    if not (as_runs | as_bits).any():
        return _arrays(counts, lows)
    chosen = [np.flatnonzero(kind) for kind in (~as_runs & ~as_bits, as_runs, as_bits)]
    parts = [
        _arrays(counts[chosen[0]], lows[_members(begins, counts, chosen[0])]),
        _runs(counts, lows, starts_run, begins, runs, chosen[1]),
        _bits(counts, lows, begins, chosen[2]),
    ]
    # `parts` holds arrays, then runs, then bits. `order` has the place of each set in them.
    order = np.empty(len(counts), np.int64)
    order[np.concatenate(chosen)] = np.arange(len(counts))
    return pa.concat_arrays(parts).take(pa.array(order))


def encode_lines(words: UInt64s, lines: Int64s, counts: Int64s, first: int) -> pa.Array:
    """Return the bytes of the sets that some `lines` of the bit matrix `words` hold.

    `counts` has the number of bits of each, at least one; the first column is word `first` of a
    block.
    """
    if native.core is not None and len(lines):
        return native.encode_lines(words, lines, first)
    content, ends = bytearray(), [0]
    width = words.shape[1]
    step = max(_WORDS_AT_ONCE // max(width, 1), 1)
    for begin in range(0, len(lines), step):
        chosen, bit_counts = words[lines[begin : begin + step]], counts[begin : begin + step]
        if _WORD_COST * width + _BIT_COST * bit_counts.mean() < _LINE_COST:
            encoded = encode_lists(
                bit_counts, set_bits(chosen, first).astype(np.uint16)
            ).to_pylist()
        else:
            encoded = _one_by_one(chosen, bit_counts, first)
        for octets in encoded:
            content += octets
            ends.append(len(content))
    return _binary(np.diff(ends), content)


def set_bits(words: UInt64s, first: int = 0) -> UInt32s:
    """Return the numbers of the bits that are set, line by line; the first column is word `first`
    of a block."""
    width = 64 * words.shape[1]
    flat = np.ascontiguousarray(words).reshape(-1)
    parts = [np.empty(0, np.uint32)]
    for begin in range(0, len(flat), _WORDS_AT_ONCE):
        part = flat[begin : begin + _WORDS_AT_ONCE]
        # The words are the bitmap of a boolean array as they stand: no bit is unpacked.
        bits = [None, pa.py_buffer(part)]
        chosen = pa.BooleanArray.from_buffers(pa.bool_(), 64 * len(part), bits)
        numbers = _numbers().slice(0, len(chosen)).filter(chosen).to_numpy()
        # Bits are numbered through all lines; the remainder is the number within a line.
        parts.append(((numbers + np.uint64(64 * begin)) % width + 64 * first).astype(np.uint32))
    return np.concatenate(parts)


@cache
def _numbers() -> pa.Array:
    """Return 0, 1, 2, … for all bits of `_WORDS_AT_ONCE` words: filtered by the bits, the positions
    of those set."""
    return pa.array(np.arange(64 * _WORDS_AT_ONCE, dtype=np.uint32))


def _binary(sizes: Int64s, content: Array | bytearray) -> pa.Array:
    offsets = np.append(0, np.cumsum(sizes))
    if offsets[-1] > _MAX_ARROW_BYTES:
        raise OverflowError(f"{len(sizes):,} bitmaps of {offsets[-1]:,} bytes are too many at once")
    offsets = offsets.astype(np.int32)
    return pa.Array.from_buffers(
        pa.binary(), len(sizes), [None, pa.py_buffer(offsets), pa.py_buffer(content)]
    )


def _members(begins: Int64s, counts: Int64s, chosen: Int64s) -> Int64s:
    """Return the places of the members of the `chosen` sets, where set n begins at `begins[n]`."""
    sizes = counts[chosen]
    ends = np.cumsum(sizes)
    places = np.repeat(begins[chosen] - (ends - sizes), sizes)
    places += np.arange(len(places))
    return places


def _arrays(counts: Int64s, lows: UInt16s) -> pa.Array:
    """Return the sets as arrays: cookie, 1 container, key 0, count - 1, offset, the members."""
    sizes = counts + _ARRAY_HEAD
    heads = np.cumsum(sizes) - sizes
    content = np.empty(int(sizes.sum()), np.uint16)
    for place, value in enumerate((_NO_RUNS, 0, 1, 0, 0, 0, 2 * _ARRAY_HEAD, 0)):
        content[heads + place] = value
    content[heads + 5] = counts - 1
    # The members of set n come after n + 1 heads and the members of all earlier sets.
    places = np.repeat(np.arange(1, len(counts) + 1) * _ARRAY_HEAD, counts)
    places += np.arange(len(places))
    content[places] = lows
    return _binary(2 * sizes, content)


def _runs(
    counts: Int64s, lows: UInt16s, starts_run: Any, begins: Int64s, runs: Int64s, chosen: Int64s
) -> pa.Array:
    """Return the `chosen` sets as runs: cookie, bits of the containers that are runs, key 0, count
    - 1, number of runs, and (first, length - 1) of each run."""
    # `members` are places in `lows`, set by set; `firsts` are those in `members` that begin a run.
    # Each set begins one, so no run crosses a set's end.
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
    """Return the `chosen` sets as bits: cookie, 1 container, key 0, count - 1, offset, 65,536
    bits."""
    lines = np.zeros((len(chosen), BLOCK_ROWS), np.bool_)
    for line, list_ in enumerate(chosen.tolist()):
        lines[line, lows[begins[list_] : begins[list_] + counts[list_]]] = True
    packed = np.packbits(lines, axis=1, bitorder="little").view(np.uint64)
    content = _headed(packed.reshape(-1, _BLOCK_WORDS), counts[chosen])
    return _binary(np.full(len(chosen), content.shape[1] * 8), content)


def _headed(lines: UInt64s, counts: Int64s) -> UInt64s:
    """Return whole blocks of bits, each preceded by its head."""
    content = np.empty((len(lines), 2 + _BLOCK_WORDS), np.uint64)
    heads = content[:, :2].view(np.uint16)
    heads[:] = (_NO_RUNS, 0, 1, 0, 0, 0, 2 * _ARRAY_HEAD, 0)
    heads[:, 5] = counts - 1
    content[:, 2:] = lines
    return content


def _one_by_one(words: UInt64s, counts: Int64s, first: int) -> Iterator[bytes | memoryview]:
    """Yield the bytes of each line, most of them made by roaring itself.

    Roaring reads a bitset only if it holds many bits. The complement of a line with few bits does,
    so that is read instead, and flipped. `words` is changed.
    """
    blocks = _blocks(words, first)
    few = counts <= _MAX_ARRAY_COUNT
    ready = ~few
    # Lines with many bits that can't be smaller as runs are in their final form already.
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
    """Return a mask of the lines that may be smaller as runs, counted as if no run crossed a word's
    end."""
    followed = lines & (lines << np.uint64(1))
    most = counts - np.bitwise_count(followed).sum(axis=1, dtype=np.int64)
    return np.asarray(4 * (most - _BLOCK_WORDS) + 2 < BLOCK_ROWS // 8)
