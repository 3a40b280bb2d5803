"""What patterns ask for besides their anchor, checked for pairs of a text and a pattern."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s, Mask, UInt8s
from querystem.index.byte_slices import MASKS, WORD_BYTES, ByteSlices, equal_slices, expand
from querystem.index.like.anchors import parts_of
from querystem.index.like.pieces import Check, PatternPieces
from querystem.kernel.text import like_matcher

# Longer texts are left to the kernel, which reads more bytes a second.
_MAX_SEARCHED_BYTES = 1 << 12
_PLACES_AT_ONCE = 1 << 18


class Checker:
    """The check of pairs of a text and a pattern, each a number among `octets` and `patterns`."""

    def __init__(
        self, patterns: pa.Array, pieces: PatternPieces, texts: pa.Array, octets: ByteSlices
    ) -> None:
        self._patterns, self._pieces = patterns, pieces
        self._texts, self._octets = texts, octets

    def check(self, rows: Int64s, places: Int64s, checks: UInt8s) -> tuple[Int64s, Int64s]:
        """Return the pairs that match, if every text has the pattern's anchor, and fulfils the
        pair's check."""
        if not checks.any():
            return rows, places
        matched = checks == Check.NOTHING
        whole = np.flatnonzero(checks == Check.WHOLE)
        if len(whole):
            lengths = self._octets.lengths[rows[whole]]
            matched[whole] = lengths == self._piece_bytes(places[whole])
        kernel = checks == Check.KERNEL
        if (checks == Check.PIECES).any():
            is_long = self._octets.lengths[rows] > _MAX_SEARCHED_BYTES
            kernel |= (checks == Check.PIECES) & is_long
            pairs = np.flatnonzero((checks == Check.PIECES) & ~is_long)
            matched[pairs] = self._have_pieces(rows[pairs], places[pairs])
        pairs = np.flatnonzero(kernel)
        if len(pairs):
            matched[pairs] = self._by_kernel(rows[pairs], places[pairs])
        return rows[matched], places[matched]

    def by_kernel(self, rows: Int64s, places: Int64s) -> tuple[Int64s, Int64s]:
        """Return the pairs that the kernel matches."""
        matched = self._by_kernel(rows, places)
        return rows[matched], places[matched]

    def match(self, rows: Int64s, places: Int64s) -> Mask:
        """Return a mask of the pairs that match; nothing needs to be known of the texts."""
        pieces, lengths = self._pieces, self._octets.lengths[rows]
        counts, has_any = pieces.counts[places], pieces.has_any[places]
        matched: Mask = has_any | (lengths == 0)
        is_kernel = pieces.has_one[places] | (lengths > _MAX_SEARCHED_BYTES)
        is_whole = (counts == 1) & ~has_any & ~is_kernel
        whole = np.flatnonzero(is_whole)
        if len(whole):
            firsts, starts = pieces.firsts[places[whole]], self._octets.begins[rows[whole]]
            same_length = lengths[whole] == pieces.pieces.lengths[firsts]
            ends = starts + lengths[whole]
            matched[whole] = same_length & self._stands_at(starts, ends, firsts, lengths[whole])
        pairs = np.flatnonzero((counts > 0) & ~is_whole & ~is_kernel)
        if len(pairs):
            matched[pairs] = self._have_pieces(rows[pairs], places[pairs])
        pairs = np.flatnonzero(is_kernel)
        if len(pairs):
            matched[pairs] = self._by_kernel(rows[pairs], places[pairs])
        return matched

    def _piece_bytes(self, places: Int64s) -> Int64s:
        """Return the length of patterns of one piece, or of none."""
        pieces = self._pieces
        has_piece = pieces.counts[places] > 0
        lengths = np.zeros(len(places), np.int64)
        lengths[has_piece] = pieces.pieces.lengths[pieces.firsts[places[has_piece]]]
        return lengths

    def _by_kernel(self, rows: Int64s, places: Int64s) -> Mask:
        """Return a mask of the pairs that the kernel matches, pattern by pattern."""
        order = np.argsort(places, kind="stable")
        edges = np.flatnonzero(np.diff(places[order])) + 1
        matched = np.zeros(len(rows), np.bool_)
        for pairs in np.split(order, edges):
            match = like_matcher(self._patterns[int(places[pairs[0]])].as_py())
            texts = self._texts.take(pa.array(rows[pairs]))
            matched[pairs] = match(texts).to_numpy(zero_copy_only=False)
        return matched

    def _have_pieces(self, rows: Int64s, places: Int64s) -> Mask:
        """Return a mask of the pairs whose text has the pattern's pieces in their order.

        The first may have to begin the text, and the last to end it. Each piece between is searched
        after the one before, and its leftmost place leaves most text to those that follow.
        """
        pieces = self._pieces
        firsts, lasts = pieces.firsts[places], pieces.firsts[places + 1] - 1
        # The text in which the remaining pieces are searched.
        begins, ends = self._octets.begins[rows], self._octets.ends[rows]
        starts, stops = pieces.starts[places], pieces.ends[places]
        matched = np.ones(len(rows), np.bool_)
        lengths = np.where(starts, pieces.pieces.lengths[firsts], 0)
        matched &= self._stands_at(begins, ends, firsts, lengths)
        begins = np.minimum(begins + lengths, ends)
        lengths = np.where(stops, pieces.pieces.lengths[lasts], 0)
        matched &= self._stands_at(np.maximum(ends - lengths, begins), ends, lasts, lengths)
        ends -= lengths
        firsts, lasts = firsts + starts, lasts - stops
        while True:
            pairs = np.flatnonzero(matched & (firsts <= lasts))
            if not len(pairs):
                return matched
            leftmost = self._search(begins[pairs], ends[pairs], firsts[pairs])
            matched[pairs] = leftmost >= 0
            begins[pairs] = leftmost + pieces.pieces.lengths[firsts[pairs]]
            firsts[pairs] += 1

    def _stands_at(self, begins: Int64s, ends: Int64s, numbers: Int64s, lengths: Int64s) -> Mask:
        """Return whether the first `lengths` bytes of pieces stand at `begins`, before `ends`."""
        pieces = self._pieces.pieces
        fits = begins + lengths <= ends
        lengths = np.where(fits, lengths, 0)
        same = equal_slices(
            self._octets.words, begins, pieces.words, pieces.begins[numbers], lengths
        )
        return same & fits

    def _search(self, begins: Int64s, ends: Int64s, numbers: Int64s) -> Int64s:
        """Return the leftmost place between `begins` and `ends` at which each piece stands, or
        -1."""
        pieces = self._pieces.pieces
        words, lengths = self._octets.words, pieces.lengths[numbers]
        first_words = pieces.words[pieces.begins[numbers]]
        masks = MASKS.take(np.minimum(lengths, WORD_BYTES))
        first_words = first_words & masks
        counts = np.maximum(ends - lengths - begins + 1, 0)
        leftmost = np.full(len(begins), -1, np.int64)
        for part in parts_of(counts, _PLACES_AT_ONCE):
            pairs, places = expand(begins[part], counts[part])
            pairs += part.start
            hits = np.flatnonzero((words[places] & masks[pairs]) == first_words[pairs])
            pairs, places = pairs[hits], places[hits]
            same = equal_slices(
                words, places, pieces.words, pieces.begins[numbers[pairs]], lengths[pairs]
            )
            pairs, places = pairs[same], places[same]
            # The places of a pair ascend, so the first one is written last.
            leftmost[pairs[::-1]] = places[::-1]
        return leftmost
