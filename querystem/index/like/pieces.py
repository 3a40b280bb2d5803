"""Patterns cut at their wildcards, for many patterns in columns.

A piece is a run of plain characters between two wildcards, without the backslashes that escape
them. This reads patterns as `kernel.text` does.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s, Mask, UInt8s
from querystem.index.byte_slices import WORD_BYTES, ByteSlices

_ANY, _ONE, _ESCAPE = b"%_\\"


class Check(enum.IntEnum):
    """What a text has to fulfil besides having the anchor of a pattern in its place."""

    NOTHING = 0
    # It ends with the anchor.
    WHOLE = 1
    # It has all pieces, in their order.
    PIECES = 2
    # The kernel decides.
    KERNEL = 3


@dataclass(frozen=True, slots=True)
class PatternPieces:
    """The pieces of patterns: pattern i has the pieces `firsts[i]` to `firsts[i + 1]`. It starts
    or ends with a piece if `starts[i]` or `ends[i]`, otherwise with a wildcard or nothing."""

    pieces: ByteSlices
    firsts: Int64s
    starts: Mask
    ends: Mask
    has_any: Mask
    has_one: Mask

    @classmethod
    def of(cls, patterns: pa.Array) -> PatternPieces:
        """Return the pieces of patterns, none of which may be NULL."""
        texts = ByteSlices.of(patterns)
        octets = texts.content[:-WORD_BYTES]
        escaped = _escaped(texts, octets)
        wild = ((octets == _ANY) | (octets == _ONE)) & ~escaped
        plain = ~wild
        if escaped.any():
            # A backslash at the very end escapes nothing, and stands for itself.
            escapes = (octets == _ESCAPE) & ~escaped
            escapes[texts.ends[texts.lengths > 0] - 1] = False
            plain &= ~escapes
        owners = np.repeat(np.arange(len(texts)), texts.lengths)
        # The pattern of each plain byte, and the number of wildcards before it.
        plain_owners, wild_before = owners[plain], np.cumsum(wild)[plain]
        is_new = np.ones(len(plain_owners), np.bool_)
        is_new[1:] = (np.diff(plain_owners) != 0) | (np.diff(wild_before) != 0)
        begins = np.flatnonzero(is_new)
        content = np.append(octets[plain], np.zeros(WORD_BYTES, np.uint8))
        pieces = ByteSlices(begins, np.append(begins[1:], len(plain_owners)), content)
        counts = np.bincount(plain_owners[begins], minlength=len(texts))
        is_any, is_one = wild & (octets == _ANY), wild & (octets == _ONE)
        return cls(
            pieces if len(begins) else ByteSlices(begins, begins, content),
            np.append(0, np.cumsum(counts)),
            _at(~wild, texts.begins, texts.lengths),
            _at(~wild, texts.ends - 1, texts.lengths),
            np.bincount(owners[is_any], minlength=len(texts)) > 0,
            np.bincount(owners[is_one], minlength=len(texts)) > 0,
        )

    @property
    def counts(self) -> Int64s:
        return np.diff(self.firsts)

    def checks(self, is_cut: Mask) -> UInt8s:
        """Return the `Check` of each pattern, if its anchor is its only piece, or its longest, or
        was cut from that."""
        checks = np.full(len(self.starts), Check.NOTHING, np.uint8)
        checks[~self.has_any & ~self.has_one] = Check.WHOLE
        checks[self.counts > 1] = Check.PIECES
        checks[self.has_one | is_cut] = Check.KERNEL
        return checks


def _escaped(texts: ByteSlices, octets: UInt8s) -> Mask:
    """Return a mask of the bytes that a backslash escapes: an odd number of backslashes stands
    directly before them."""
    is_escape: Mask = octets == _ESCAPE
    if not is_escape.any():
        return is_escape
    places = np.arange(len(octets))
    # The place after the last byte before each place that is no backslash of the same text.
    stops = np.zeros(len(octets) + 1, np.int64)
    stops[1:][~is_escape] = places[~is_escape] + 1
    stops[texts.begins] = np.maximum(stops[texts.begins], texts.begins)
    return np.asarray((places - np.maximum.accumulate(stops)[:-1]) % 2 == 1)


def _at(mask: Mask, places: Int64s, lengths: Int64s) -> Mask:
    """Return the mask at these places; false for empty patterns."""
    truth = np.zeros(len(places), np.bool_)
    truth[lengths > 0] = mask[places[lengths > 0]]
    return truth
