"""Slices of UTF-8 texts as words of eight bytes, which are hashed and compared many at a time.

UTF-8 is self-synchronising: a text contains another one exactly if its bytes do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from datastem.arrays import Array, Int64s, Mask, UInt8s, UInt64s

WORD_BYTES = 8
# MASKS[n] keeps the first n bytes of a little-endian word.
MASKS = np.array([(1 << 8 * count) - 1 for count in range(WORD_BYTES + 1)], np.uint64)
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_SALT = np.uint64(0xC2B2AE3D27D4EB4F)
_HALF = np.uint64(32)


@dataclass(frozen=True, slots=True)
class ByteSlices:
    """Byte strings: number i is `content[begins[i]:ends[i]]`. Eight bytes of no meaning follow
    the last one, so that a word can be read at every place."""

    begins: Int64s
    ends: Int64s
    content: UInt8s

    @classmethod
    def of(cls, texts: pa.Array) -> ByteSlices:
        """Return the bytes of Arrow texts or binaries; those of a NULL are any."""
        _, offsets, octets = texts.buffers()
        if not len(texts) or offsets is None:
            none = np.zeros(len(texts), np.int64)
            return cls(none, none, np.zeros(WORD_BYTES, np.uint8))
        narrow = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
        edges = narrow.astype(np.int64)
        first, last = int(edges[0]), int(edges[-1])
        edges -= first
        if octets is not None and octets.size >= last + WORD_BYTES:
            content = np.frombuffer(octets, np.uint8)[first : last + WORD_BYTES]
            return cls(edges[:-1], edges[1:], content)
        content = np.zeros(last - first + WORD_BYTES, np.uint8)
        if octets is not None:
            content[:-WORD_BYTES] = np.frombuffer(octets, np.uint8)[first:last]
        return cls(edges[:-1], edges[1:], content)

    def __len__(self) -> int:
        return len(self.begins)

    @property
    def lengths(self) -> Int64s:
        return self.ends - self.begins

    @property
    def words(self) -> UInt64s:
        """The eight bytes from each place on, as a little-endian word: a view, not a copy."""
        return np.ndarray(len(self.content) - WORD_BYTES + 1, "<u8", self.content, strides=(1,))

    def take(self, places: Int64s) -> ByteSlices:
        """Return the strings at these places, of the same bytes."""
        return ByteSlices(self.begins[places], self.ends[places], self.content)


def first_keys(words: Array, length: Array) -> UInt64s:
    """Return the key of slices of up to eight bytes, of which these are the words. The arguments
    are broadcast against each other."""
    keys: UInt64s = words & MASKS.take(np.minimum(length, WORD_BYTES))
    keys ^= length.astype(np.uint64) * _SALT
    keys *= _FACTOR
    return keys


def mix_keys(keys: UInt64s, words: UInt64s) -> UInt64s:
    """Return the keys of slices that are longer by one word."""
    mixed: UInt64s = ((keys ^ (keys >> _HALF)) ^ words) * _FACTOR
    return mixed


def slice_keys(strings: ByteSlices) -> UInt64s:
    """Return a key for each whole string, as `first_keys` and `mix_keys` make it."""
    words, lengths = strings.words, strings.lengths
    keys = first_keys(words[strings.begins], lengths)
    for place in range(WORD_BYTES, int(lengths.max(initial=0)), WORD_BYTES):
        longer = np.flatnonzero(lengths > place)
        remaining = np.minimum(lengths[longer] - place, WORD_BYTES)
        more = words[strings.begins[longer] + place] & MASKS.take(remaining)
        keys[longer] = mix_keys(keys[longer], more)
    return keys


def equal_slices(
    first: UInt64s, first_begins: Int64s, second: UInt64s, second_begins: Int64s, lengths: Int64s
) -> Mask:
    """Return a mask of the slices whose bytes are equal; `first` and `second` are words at each
    place."""
    masks = MASKS.take(np.minimum(lengths, WORD_BYTES))
    same: Mask = (first[first_begins] ^ second[second_begins]) & masks == 0
    for place in range(WORD_BYTES, int(lengths.max(initial=0)), WORD_BYTES):
        pairs = np.flatnonzero(same & (lengths > place))
        masks = MASKS.take(np.minimum(lengths[pairs] - place, WORD_BYTES))
        words = first[first_begins[pairs] + place] ^ second[second_begins[pairs] + place]
        same[pairs] = words & masks == 0
    return same


def expand(begins: Int64s, counts: Int64s) -> tuple[Int64s, Int64s]:
    """Return the runs `begins[i], begins[i] + 1, …` of `counts[i]` numbers, one after the other:
    the run i of each, and its number."""
    runs = np.repeat(np.arange(len(counts)), counts)
    shift = begins - (np.cumsum(counts) - counts)
    return runs, np.arange(len(runs)) + shift.take(runs)
